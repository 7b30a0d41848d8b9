"""How the teaching words look: escaped, readable, and clickable where somebody can click."""

import re
from dataclasses import replace

import pytest

from labkit.ledger.rows import Claim, Prediction
from labkit.lesson import cards

ROW = Prediction(
    run_key="r", prediction_id="p", question="Is 1 < 2?", answer="yes", source="default"
)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2.16463, "x", "2.16 x"),
        (None, "x", "–"),
        (float("nan"), None, "–"),
        (12345.6, None, "12,346"),
        (0.00123456, "s", "0.00123 s"),
        (1, "graphs", "1 graph"),
        (-0.0, "points", "0 points"),
        (1928.0, "images", "1,928 images"),
        (0.008219, "x", "1/122"),
        (0.008219, "x as long", "1/122 as long"),
    ],
)
def test_a_number_has_three_digits_and_its_unit(value, unit, text):
    assert cards.number(value, unit) == text


def test_text_from_a_notebook_is_escaped():
    row = Claim(
        run_key="r",
        claim_id="c",
        sentence="<script>1</script>",
        verdict="holds",
        value=1.0,
        low=1.0,
        high=1.0,
    )
    assert "<script>" not in cards.card("claimed", row)
    assert "&lt;script&gt;" in cards.card("claimed", row)


def test_what_stands_between_backticks_is_shown_as_code_and_stays_escaped():
    row = replace(ROW, question="How long does `a < b`, or `c`, take?")
    page = cards.card("asked", row, None)
    assert "How long does <code>a &lt; b</code>, or <code>c</code>, take?" in page
    assert cards.plain(page) == "Predict: How long does a < b, or c, take?"


def test_a_card_without_a_notebook_is_plain_text():
    assert cards.plain(cards.card("asked", ROW, ["yes", "no"])).splitlines() == [
        "Predict: Is 1 < 2?",
        "Options: yes · no",
    ]


def test_a_card_in_a_notebook_is_also_plain_text_for_what_shows_no_pages(monkeypatch):
    shown = []
    monkeypatch.setattr(cards, "shell", lambda: object())
    monkeypatch.setattr("IPython.display.display", lambda page, raw: shown.append(page))
    cards.show("asked", ROW, ["yes", "no"])
    assert shown[0]["text/plain"] == "Predict: Is 1 < 2?\nOptions: yes · no"
    assert "Is 1 &lt; 2?</div>" in shown[0]["text/html"]


def test_a_claim_shows_its_interval_or_its_reason():
    known = Claim(
        run_key="r",
        claim_id="c",
        sentence="s",
        verdict="holds",
        value=1.2,
        low=1.1,
        high=1.3,
        unit="x",
    )
    unknown = Claim(
        run_key="r", claim_id="c", sentence="s", verdict="inconclusive", reason="no GPU"
    )
    assert cards.card("evidence", known) == "1.2 x (from 1.1 to 1.3)"
    assert cards.card("evidence", unknown) == "no GPU"


def test_an_interval_is_given_as_many_digits_as_its_ends_differ_in():
    row = Claim(
        run_key="r",
        claim_id="c",
        sentence="s",
        verdict="holds",
        value=1.0321,
        low=1.0311,
        high=1.0342,
        unit="x",
    )
    assert cards.card("evidence", row) == "1.03 x (from 1.031 to 1.034)"
    assert cards.span(replace(row, low=-0.0, high=12_345.4)) == "0 to 12,345"
    assert cards.span(replace(row, low=0.9981, high=1.0004)) == "0.998 to 1.000"
    assert cards.span(replace(row, low=2.07, high=6.001)) == "2.07 to 6.00"
    assert (
        cards.span(replace(row, sentence="at least 1.1 times", low=1.098, high=1.36))
        == "1.098 to 1.36"
    )
    assert (
        cards.span(replace(row, sentence="at least 1.1 times", low=1.1, high=1.36)) == "1.1 to 1.36"
    )


def test_a_measured_number_without_an_interval_says_so_and_a_count_does_not():
    row = Claim(
        run_key="r",
        claim_id="c",
        sentence="s",
        verdict="holds",
        value=1.25,
        low=1.25,
        high=1.25,
        unit="x",
    )
    assert cards.card("evidence", row) == "1.25 x (one number, no interval)"
    assert (
        cards.card("evidence", replace(row, value=1.0, low=1.0, high=1.0, unit="graphs"))
        == "1 graph"
    )


def mixed(colour, text):
    """Red, green and blue of a card's colour on a page with that text colour."""
    parts = [re.search(r"#(\w{6}) 70%", colour)[1], text]
    own, other = ([int(part[at : at + 2], 16) for at in (0, 2, 4)] for part in parts)
    return [0.7 * a + 0.3 * b for a, b in zip(own, other, strict=True)]


def luminance(rgb):
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (part / 255 for part in rgb)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colour", sorted({*cards.macros().colours.values(), cards.macros().blue}))
@pytest.mark.parametrize(
    ("text", "page"), [("212121", (255, 255, 255)), ("ffffff", (0x11, 0x11, 0x11))]
)
def test_every_colour_can_be_read_in_jupyterlabs_light_and_dark_theme(colour, text, page):
    """WCAG asks for a contrast of 4.5."""
    darker, lighter = sorted((luminance(mixed(colour, text)), luminance(page)))
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5
