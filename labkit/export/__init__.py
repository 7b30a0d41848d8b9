"""From torch to ONNX: export, check that it computes the same, look at its operators, simplify it."""
