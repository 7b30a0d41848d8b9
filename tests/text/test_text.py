"""Texts in batches: nothing is lost or mixed up, little is padding; search finds what is meant."""

import itertools

import pytest
import torch

from labkit import text
from labkit.models import minilm
from labkit.text import search

ROWS = [torch.arange(1, length + 1) for length in (3, 9, 1, 4)]


def lengths_of(batch):
    """An encoder that only counts what is not padding."""
    return (batch != 0).sum(1, keepdim=True).float()


def test_the_paragraphs_are_those_of_all_lessons_and_no_tables_or_headings():
    found = text.paragraphs()
    assert len({each.lesson for each in found}) >= 12
    assert not any(
        each.text.startswith(("|", "# ")) and len(each.text.split()) < 6 for each in found
    )
    assert all("\n" not in each.text for each in found)


def test_padding_fills_up_to_the_longest_or_to_a_length():
    assert text.padded(ROWS).shape == (4, 9)
    assert text.padded(ROWS)[2].tolist() == [1, *[0] * 8]
    assert text.padded(ROWS, 4)[1].tolist() == [1, 2, 3, 4]


AS_THEY = [[0, 1, 2], [3, 4, 5], [6]]  # come


def test_batches_by_length_hold_each_text_once_and_less_padding():
    lengths = [3, 90, 4, 88, 5, 91, 2]
    found = text.by_length(lengths, 3)
    assert sorted(itertools.chain(*found)) == list(range(7))
    assert max(map(len, found)) == 3
    tokens_of = [
        sum(len(batch) * max(lengths[place] for place in batch) for batch in way)
        for way in (found, AS_THEY)
    ]
    assert tokens_of[0] < tokens_of[1]


def test_rows_come_back_in_their_own_order():
    assert text.encoded(ROWS, lengths_of, 2).flatten().tolist() == [3, 9, 1, 4]


def test_agreement_by_hand():
    exact = torch.nn.functional.normalize(
        torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]), dim=1
    )
    assert text.nearest(exact).tolist() == [1, 0, 3, 2]
    other = exact[[0, 2, 1, 3]]
    assert text.agreement(exact, exact).tolist() == [1, 1, 1, 1]
    assert text.agreement(exact, other).tolist() == [0, 0, 0, 0]


@pytest.mark.slow
def test_the_course_is_searched_by_meaning_and_read_again_only_when_it_changed(
    monkeypatch, own_artifacts
):
    known = text.paragraphs()[:12]
    monkeypatch.setattr(search, "paragraphs", lambda: known)
    monkeypatch.setattr(search, "guides", list)
    monkeypatch.setattr(search, "_pointers", list)
    found = text.course_index().search(known[3].text, 2)
    assert found[0].paragraph == known[3]
    assert found[0].cosine == pytest.approx(1, abs=1e-3)
    monkeypatch.setattr(search, "encoded", lambda rows, answer: minilm.no_such_function)
    with pytest.raises(AttributeError):
        text.course_index().search("a question is embedded", 2)
    assert len(list((own_artifacts / "minilm").glob("*.safetensors"))) == 1
