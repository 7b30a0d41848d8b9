"""The register of claims: where a bound comes from, and what recorded runs said."""

import re

import pandas as pd
import pytest

from labkit.ledger.rows import Claim
from labkit.lesson import cards, claims

ROW = Claim(run_key="r", claim_id="c", sentence="s", verdict="fails", value=1.0, low=0.5, high=1.5)


def test_a_claim_is_found_by_its_id_also_where_the_run_fills_in_a_part_of_it(monkeypatch):
    fast = claims.Entry("Batch {n} is fast", "at least 2", "A reason.")
    monkeypatch.setattr(claims, "register", lambda: {"x": {"pays-{n}": fast}})
    assert claims.entry("07_x", "pays-32") is fast
    assert claims.entry("08_x", "pays-32") is fast, "lessons may be renumbered"
    assert claims.entry("07_x", "pays-") is None
    assert claims.entry("07_x", "what pays-32") is None
    assert claims.entry("08_y", "pays-32") is None


def test_a_card_says_why_the_bound_is_where_it_is_and_which_it_was_before():
    line = "2026-11-22, from at least 1.3: Failed in 3 of 5 seeds."
    shown = cards.plain(
        cards.card("claimed", ROW, claims.Entry("s", "at least 2", "As <b>", (line,)))
    )
    assert "Why this bound" in shown
    assert "As <b>" in shown
    assert line in shown
    assert "Why this bound" not in cards.card("claimed", ROW, None)


@pytest.mark.parametrize("lesson", claims.register())
def test_a_bound_that_was_changed_has_a_dated_line_newest_first(lesson):
    for claim in claims.register()[lesson].values():
        dates = [re.match(r"(\d{4}-\d\d-\d\d), from .+: .", line)[1] for line in claim.changed]
        assert dates == sorted(dates, reverse=True)


WHERE = {
    "hardware": "A laptop",
    "instructions": "avx2",
    "profile": "lab",
    "recorded_on": "2026-01-01",
}


@pytest.fixture
def recorded(monkeypatch):
    """Two recorded claims of the lesson x, one of them under another bound than the register's."""
    said = {
        "claim_id": "fast",
        "verdict": "fails",
        "value": 1.0,
        "low": 0.9,
        "high": 1.1,
        "unit": "x",
    }
    said |= {"reason": None, "basis": None, **WHERE}
    sentences = ("Batch 8 is at least twice as fast", "Batch 8 is three times as fast")
    rows = pd.DataFrame(
        [{"experiment": "x", "sentence": sentence, **said} for sentence in sentences]
    )
    monkeypatch.setattr(claims, "recorded", {"claims": rows}.get)


def test_a_recorded_verdict_is_found_after_the_lessons_are_renumbered_and_only_under_the_same_words(
    recorded, monkeypatch
):
    fast = claims.Entry("Batch {n} is at least twice as fast", "at least 2", "A reason.")
    monkeypatch.setattr(claims, "register", lambda: {"x": {"fast": fast}, "y": {"fast": fast}})
    said = claims.recorded_verdicts()
    assert [verdict.where for verdict in said["x", "fast"]] == ["A laptop, avx2, lab, 2026-01-01"]
    assert said["y", "fast"] == []


def test_the_page_lists_what_failed_first_with_the_number_and_where(recorded, monkeypatch):
    fast = claims.Entry("Batch {n} is at least twice as fast", "at least 2", "A reason.")
    monkeypatch.setattr(claims, "register", lambda: {"x": {"fast": fast}})
    page = claims.as_page()
    assert "Of 1 claims, a recorded run refuted 1" in page
