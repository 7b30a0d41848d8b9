"""A decoder in ONNX Runtime, its cache as inputs and outputs."""

import torch
from torch.export import Dim

from labkit.export import session, to_onnx
from labkit.models.decoder import WithCache
from labkit.text.writing import chances, draw


def to_onnx_with_cache(decoder, path):
    """Write a decoder in the form of `WithCache` as an ONNX file, for any number of texts and tokens: the path."""
    batch, new, past = Dim("batch"), Dim("new"), Dim("past", min=0)
    cache = torch.zeros(len(decoder.layers), 2, decoder.groups, 5, decoder.size)
    given = torch.ones(2, 3, dtype=torch.int64), cache, cache.clone()  # one tensor twice would be one input
    shapes = {0: batch, 1: new}, {1: batch, 3: past}, {1: batch, 3: past}
    names = {
        "input_names": ["tokens", "keys", "values"],
        "output_names": ["logits", "keys_after", "values_after"],
    }
    return to_onnx(WithCache(decoder), given, path, dynamic_shapes=shapes, **names)


def generate_with(file, prompt, count, *, temperature=0.0, seed=0, threads=1):
    """`count` tokens after a prompt (1, T), as `labkit.text.writing.generate` writes them, by such a file: a list.

    file  its path, or a session of it, which then is opened once for many texts
    """
    opened = file if hasattr(file, "run") else session(file, threads=threads)
    _, keys, _ = opened.get_inputs()
    layers, _, groups, _, size = keys.shape
    nothing = torch.zeros(layers, 1, groups, 0, size).numpy()
    cache, random = [nothing, nothing], torch.Generator().manual_seed(seed)
    new, written = prompt, []
    while len(written) < count:
        logits, *cache = opened.run(None, {"tokens": new.numpy(), "keys": cache[0], "values": cache[1]})
        new = draw(chances(torch.from_numpy(logits[:, -1]), temperature), random)[None]
        written.append(int(new))
    return written
