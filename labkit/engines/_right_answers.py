"""What an ONNX file or a torch module answers: the file as it is written, without optimizations."""

import functools
from pathlib import Path

from labkit import export
from labkit.engines.served import named_tensors
from labkit.export.runtime import answers, session_as_written
from labkit.files import sha256


def is_file(network):
    """Return True where the network is the path of an ONNX file, False for a torch module."""
    return isinstance(network, (str, Path))


def answers_as_written(network, batch):
    """Return the right answers to a batch: {name of an output: tensor}, the first output first.

    An ONNX file is run without optimizations. A torch module is run as it is. Outputs that are no
    tensors are left out. ONNX Runtime's sessions of the last two files are kept open.
    """
    import torch

    if not is_file(network):
        with torch.inference_mode():
            return named_tensors(network(*batch))
    opened = _session_of(sha256(Path(network)), str(network))
    first, *further = opened.get_outputs()
    names = [first.name, *(output.name for output in further if output.type.startswith("tensor("))]
    arrays = answers(opened, tuple(tensor.cpu().numpy() for tensor in batch), outputs=names)
    return dict(zip(names, map(torch.from_numpy, arrays), strict=True))


def outputs_without_numbers(path):
    """Return the names of a file's outputs that are no tensors, such as a sequence of maps."""
    outputs = _session_of(sha256(Path(path)), str(path)).get_outputs()
    return [output.name for output in outputs if not output.type.startswith("tensor(")]


@functools.lru_cache(maxsize=2)
def _session_of(digest, path):
    """Return ONNX Runtime's session of a file, without optimizations. The file is checked first.

    digest  sha256 of the file; it is there so that a changed file gets a new session
    """
    export.checked(path)
    return session_as_written(path)
