"""MiniLM: the published weights give the vectors of transformers' BERT; any text becomes tokens."""

import pytest
import torch
from torch.nn import functional as F

from labkit import models
from labkit.errors import DataError, Unavailable
from labkit.models import encoder, minilm
from labkit.text import padded

TEXTS = [
    "How small can a network get before it forgets?",
    "A cache keeps what was computed.",
    "Ja.",
    "",
]


@pytest.fixture(scope="module")
def network():
    return models.build("minilm")[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_it_agrees_with_transformers_bert(network):
    from transformers.models.bert.modeling_bert import BertModel

    batch = padded(minilm.tokens(TEXTS))
    there = (batch != encoder.PADDING).long()
    theirs = BertModel.from_pretrained(minilm.folder()).eval()
    with torch.inference_mode():
        hidden = theirs(input_ids=batch, attention_mask=there).last_hidden_state
        wanted = F.normalize((hidden * there[:, :, None]).sum(1), dim=1)
        assert (network(batch) - wanted).abs().max() < 1e-5


def test_like_meaning_points_the_same_way(network):
    texts = [
        "The cat sleeps on the sofa.",
        "A kitten naps on the couch.",
        "Interest rates rose last year.",
    ]
    with torch.inference_mode():
        vectors = network(padded(minilm.tokens(texts)))
    alike = vectors @ vectors.T
    assert torch.allclose(alike.diagonal(), torch.ones(3), atol=1e-5)
    assert alike[0, 1] > alike[0, 2] + 0.3


def test_tokens_are_the_published_ones():
    (found,) = minilm.tokens(["How small can a network get?"])
    assert found.tolist() == [101, 2129, 2235, 2064, 1037, 2897, 2131, 1029, 102]
    assert [minilm._tokenizer().id_to_token(token) for token in found[:3].tolist()] == [
        "[CLS]",
        "how",
        "small",
    ]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 2),
        ("\0", 2),
        ("word " * 10_000, 256),
        ("日本語 🎉 Ünïcödé", 7),
        ("x" * 10_000_000, 3),
        ("\ud800", 3),
    ],
    ids=["empty", "null byte", "10,000 words", "no ASCII", "one endless word", "half a character"],
)
def test_any_text_becomes_tokens_and_a_finite_vector(network, text, count):
    (found,) = minilm.tokens([text])
    assert len(found) == count
    with torch.inference_mode():
        assert network(found[None]).isfinite().all()


def test_a_text_that_holds_the_marks_is_read_as_letters():
    (found,) = minilm.tokens(["[PAD] [SEP]"])
    assert encoder.PADDING not in found.tolist()
    assert found.tolist().count(102) == 1


def test_other_weights_are_refused(monkeypatch, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"not the weights")
    monkeypatch.setattr(minilm, "folder", lambda: tmp_path)
    with pytest.raises(DataError, match="not the published one"):
        minilm.weights()


def test_without_the_package_a_stand_in_takes_as_long_and_says_why(monkeypatch):
    def missing():
        raise Unavailable("The weights of all-MiniLM-L6-v2 are not here.")

    monkeypatch.setattr(minilm, "_package", missing)
    network, rows, reason = minilm.network_and_tokens(["a b c", "d " * 999], longest=16)
    assert [len(row) for row in rows] == [3, 16]
    assert min(map(min, rows)) > encoder.PADDING
    assert "not here" in reason
    assert network(padded(rows)).shape == (2, 384)
