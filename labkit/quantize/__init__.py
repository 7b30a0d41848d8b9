"""Small number formats: by hand, and by library, written into the ONNX graph."""
