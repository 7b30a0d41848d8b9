"""How the teaching words look: escaped, readable, and clickable where somebody can click."""

import pytest

from labkit.ledger.rows import Claim, Prediction
from labkit.lesson import cards

ROW = Prediction(run_key="r", prediction_id="p", question="Is 1 < 2?", answer="yes", source="default")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2.16463, "x", "2.165 x"),
        (None, "x", "–"),
        (float("nan"), None, "–"),
        (12345.6, None, "12,346"),
        (0.00123456, "s", "0.001235 s"),
    ],
)
def test_a_number_has_four_digits_and_its_unit(value, unit, text):
    assert cards.number(value, unit) == text


def test_text_from_a_notebook_is_escaped():
    row = Claim(run_key="r", claim_id="c", sentence="<script>1</script>", verdict="holds", value=1.0, low=1.0, high=1.0)
    assert "<script>" not in cards.claimed(row)
    assert "&lt;script&gt;" in cards.claimed(row)


def test_a_card_without_a_notebook_is_plain_text():
    assert cards.plain(cards.asked(ROW, ["yes", "no"])).splitlines() == [
        "Predict: Is 1 < 2?",
        "Options: yes · no",
        "yes (taken because nobody answered)",
    ]


def test_a_claim_shows_its_interval_or_its_reason():
    known = Claim(run_key="r", claim_id="c", sentence="s", verdict="holds", value=1.2, low=1.1, high=1.3, unit="x")
    unknown = Claim(run_key="r", claim_id="c", sentence="s", verdict="inconclusive", reason="no GPU")
    assert cards.evidence(known) == "1.2 x (from 1.1 to 1.3 x)"
    assert cards.evidence(unknown) == "no GPU"
