"""How large a network is as a file, in every form the course knows."""

import lzma
import tempfile
from pathlib import Path

from labkit import export, models
from labkit.quantize import static


def file_sizes(network, *, packed=None, images=None, name=None):
    """{form: bytes}: fp32 safetensors, the same through lzma and zstd, ONNX INT8, the packed file.

    network  is written as it is
    packed   path of a file that `packed.save` wrote
    images   an ImageSet to observe ranges on; None leaves INT8 out
    name     of the network in `labkit.models`, where there are images
    """
    import pyarrow
    from safetensors.torch import save

    plain = save({key: tensor.detach().cpu().contiguous() for key, tensor in network.state_dict().items()})
    found = {"fp32": len(plain), "fp32, lzma": len(lzma.compress(plain, preset=0))}  # higher ones find no more
    found["fp32, zstd"] = len(pyarrow.Codec("zstd", compression_level=9).compress(plain))
    if images is not None:
        shape = tuple(images.images.shape[1:])
        with tempfile.TemporaryDirectory() as folder:
            whole = export.to_onnx(network, models.example(name, 2, shape=shape), Path(folder) / "whole.onnx")
            found["ONNX INT8"] = static(whole, Path(folder) / "int8.onnx", images).stat().st_size
    if packed is not None:
        found["packed"] = Path(packed).stat().st_size
    return found
