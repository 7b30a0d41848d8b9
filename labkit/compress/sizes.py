"""How large a network is as a file, in every form the course knows."""


def sizes(network, packed=None, *, images=None):
    """{form: bytes of the file}: fp32 safetensors, the same through lzma and zstd, ONNX INT8, the packed file.

    network  the one to write as it is
    packed   path of a file written by `packed.save`
    images   an ImageSet to observe ranges on, for ONNX INT8; None leaves it out
    """
    raise NotImplementedError
