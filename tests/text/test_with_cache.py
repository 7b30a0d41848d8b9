"""The ONNX file with the cache outside writes what the decoder writes."""

import numpy as np
import pytest
import torch

from benchmarks.decoding import generate, generate_with, to_onnx_with_cache
from labkit import export
from labkit.models.trained import trained
from labkit.text.writing import to_tokens

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return to_onnx_with_cache(
        trained("decoder-small")[0], tmp_path_factory.mktemp("onnx") / "decoder.onnx"
    )


def test_it_writes_the_same_text(file):
    decoder, prompt = trained("decoder-small")[0], to_tokens("A batch of ")
    assert generate_with(export.session(file, threads=1), prompt, 40) == generate(
        decoder, prompt, 40
    )


@pytest.mark.parametrize("texts, past, new", [(1, 0, 1), (1, 0, 9), (3, 5, 1), (4, 7, 3)])
def test_any_number_of_texts_and_tokens(file, texts, past, new):
    decoder = trained("decoder-small")[0]
    tokens = torch.randint(0, 256, (texts, past + new), generator=torch.Generator().manual_seed(0))
    opened, cache = export.session(file, threads=1), np.zeros((1, texts, 1, 0, 32), np.float32)
    feed = {"tokens": tokens[:, :past].numpy(), "keys": cache, "values": cache}
    if past:
        _, feed["keys"], feed["values"] = opened.run(None, feed)
    found, keys, _ = opened.run(None, feed | {"tokens": tokens[:, past:].numpy()})
    with torch.inference_mode():
        wanted = decoder(tokens).transpose(1, 2)[:, past:]
    assert np.allclose(found, wanted, atol=1e-4)
    assert keys.shape == (1, texts, 1, past + new, 32)
