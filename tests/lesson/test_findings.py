"""conclude, tempting answers, claims on one line, the picture to remember, and check_yourself."""

import base64
import sys

import numpy as np
import pytest

from labkit import ledger, lesson, plots, report
from labkit.errors import LessonError
from labkit.files import artifacts
from labkit.ledger.rows import Claim, LessonAnswer
from labkit.lesson import _predicting, _run, cards
from labkit.lesson.claims import Entry
from labkit.measure.stats import Interval, mean_interval

LIMITS = {"because": "b", "holds_for": "h", "not_for": "n"}


@pytest.fixture
def running(capsys):
    begun = lesson.start("99_test", "quick", 3)
    capsys.readouterr()
    yield begun
    _run._lesson = None


def said(capsys, *arguments, **settings):
    lesson.conclude(*arguments, **settings)
    return capsys.readouterr().out.strip()


# ---- conclude


def test_a_difference_that_is_certain_is_told_with_names_number_and_interval(capsys):
    # mean 2, deviation 1, n = 4: half width 3.1824 * 1 / 2 = 1.591 by Student's t (t of 3 degrees:
    # 3.1824)
    seeds = np.array([2 - 1.0, 2 + 1.0, 2 - 1.0, 2 + 1.0])
    half = 3.182446 * seeds.std(ddof=1) / 2
    assert said(capsys, seeds, "LARS", "plain SGD", unit="points") == (
        f"LARS is better than plain SGD by 2 points (95 % interval from {2 - half:.3g} to "
        f"{2 + half:.3g}; t, n = 4)."
    )


def test_a_difference_on_the_other_side_says_worse_and_by_how_much_without_a_sign(capsys):
    text = said(capsys, Interval(-3.0, -1.0, 20, median=-2.0), "LARS", "plain SGD", unit="points")
    assert text.startswith("LARS is worse than plain SGD by 2 points (95 % interval from 1 to 3)")


@pytest.mark.parametrize(
    "value", [Interval(-1.0, 2.0, 20, median=0.5), Interval(0.0, 2.0, 20, median=1.0)]
)
def test_an_interval_that_reaches_zero_is_no_difference(capsys, value):
    assert said(capsys, value, "A", "B").startswith(
        "No difference between A and B can be told (95 % interval"
    )


def test_two_seeds_decide_nothing_and_the_sentence_says_why(capsys):
    text = said(capsys, np.array([5.0, 5.1]), "A", "B", unit="points")
    assert text.startswith("No difference between A and B can be told")
    assert "only 2 of the 3 samples that are needed" in text


def test_where_lower_is_better_a_negative_difference_speaks_for_the_first_name(capsys):
    faster = {"better": "lower", "words": ("faster", "slower"), "unit": "s"}
    assert said(capsys, -1.5, "A", "B", **faster) == "A is faster than B by 1.5 s."
    assert said(capsys, 1.5, "A", "B", **faster) == "A is slower than B by 1.5 s."


class Timed:
    low, high, median, floor, pairs = 1.9, 2.1, 2.0, 0.02, 40


class NoisyTimes(Timed):
    low, high, median, floor = 1.01, 1.05, 1.03, 0.05


def test_a_ratio_is_held_against_one_with_its_noise_floor(capsys):
    words = {"words": ("faster", "slower")}
    assert said(capsys, Timed(), "the engine", "PyTorch", **words).startswith(
        "the engine is faster than PyTorch by a factor of 2 (95 % interval from 1.86 to 2.14"
    )
    assert said(capsys, NoisyTimes(), "A", "B", **words).startswith("No difference between A and B")
    slower = said(capsys, Interval(0.4, 0.625, 20, median=0.5), "A", "B", unit="x", **words)
    assert slower == "A is slower than B by a factor of 2 (95 % interval from 1.6 to 2.5)."


def test_own_sentences_take_the_place_of_the_two_names(capsys):
    own = {"above": "It grew.", "below": "It shrank.", "unclear": "Who knows."}
    assert said(capsys, 3, **own) == "It grew."
    assert said(capsys, -3, **own) == "It shrank."
    assert said(capsys, Interval(-1, 1, 20, median=0), **own).startswith(
        "Who knows (95 % interval from -1 to 1)"
    )
    assert said(capsys, 3, bound=5, **own) == "It shrank."
    assert said(capsys, None, **own).startswith("Who knows; not measured in this run")


@pytest.mark.parametrize("given", [{}, {"name": "A"}, {"above": "It grew."}])
def test_to_conclude_without_names_or_both_sentences_is_refused(given):
    with pytest.raises(LessonError, match="nothing to conclude with"):
        lesson.conclude(1.0, **given)


def test_a_name_with_a_sign_of_html_stays_text():
    finding = lesson._findings.Finding("a < b", 1.0, 1.0, 1.0, None, None, None)
    assert "a &lt; b" in cards.card("concluded", finding)


# ---- tempting answers


def revealed(capsys, answer, result, tempting, **settings):
    lesson.predict("p", "Which?", **({"default": 1} | settings))
    if answer is not None:
        _predicting._record_answer("p", answer)
    capsys.readouterr()
    lesson.reveal("p", result, tempting=tempting)
    return capsys.readouterr().out


TEMPTING = {"a": "it is first", "b": "it is last", "c": "it is famous"}


def test_a_reader_is_told_why_their_own_wrong_answer_tempts_and_no_other(running, capsys):
    text = revealed(capsys, "a", "b", TEMPTING, options=["a", "b", "c"], default="a")
    assert "a tempts: it is first" in text
    assert "famous" not in text


def test_without_an_answer_all_tempting_ones_are_told_but_not_the_right_one(running, capsys):
    text = revealed(capsys, None, "b", TEMPTING, options=["a", "b", "c"], default="a")
    assert "a tempts: it is first" in text
    assert "c tempts: it is famous" in text
    assert "it is last" not in text


def test_a_tempting_number_meets_an_answer_near_it(running, capsys):
    text = revealed(capsys, 10.5, 64, {10: "ten is a round number", 1: "one is a start"}, unit="x")
    assert "10 x tempts: ten is a round number" in text
    assert "one is a start" not in text


def test_where_nothing_was_measured_nothing_tempts(running, capsys):
    assert "tempts" not in revealed(capsys, "a", None, TEMPTING, options=["a", "b"], default="a")


# ---- claims on one line


def claimed(verdict, entry=None):
    row = Claim(
        run_key="r",
        claim_id="c",
        sentence="x is large",
        verdict=verdict,
        value=3.0,
        low=3.0,
        high=3.0,
    )
    return cards.plain(cards.card("claimed", row, entry)).splitlines()


def test_a_claim_that_holds_is_one_line_with_the_reason_behind_a_fold():
    assert claimed("holds") == ["✓ holds: x is large · 3"]
    entry = Entry(
        "x is large", "at least 2", "Theory says 2.", ("2026-11-24, from at least 1: Too low.",)
    )
    line, *folded = claimed("holds", entry)
    assert line == "✓ holds: x is large · 3"
    assert folded == [
        "Why this bound: Theory says 2.",
        "Changed 2026-11-24, from at least 1: Too low.",
    ]
    row = Claim(
        run_key="r", claim_id="c", sentence="s", verdict="holds", value=3.0, low=3.0, high=3.0
    )
    assert "<details><summary" in cards.card("claimed", row, entry)
    assert "<details" not in cards.card("claimed", row, None)


def test_a_claim_that_fails_says_so_of_the_sentence_that_follows():
    assert claimed("fails")[-1] == "What the next sentence says does not hold here."
    assert claimed("inconclusive")[-1] == "Whether the next sentence holds, this run cannot say."


# ---- the picture to remember


def draw(height):
    figure, ax = plots.canvas(4, 2)
    ax.plot([0, 1, 2], [0, height, 1], label="curve")
    ax.set(title=f"to {height}")
    return figure


def answered(**settings):
    lesson.answer("So it is", 3.0, **LIMITS, **settings)
    [row] = ledger.find(LessonAnswer)
    return row


def test_the_picture_goes_with_the_answer_into_a_small_file_and_into_the_report(running):
    draw(5)
    row = answered(picture="canvas")
    png = (artifacts() / row.picture).read_bytes()
    assert png.startswith(b"\x89PNG")
    assert len(png) < 100_000
    assert "to 5" in row.picture_words
    page = report.write_report().read_text(encoding="utf-8")
    assert f"data:image/png;base64,{base64.b64encode(png).decode()}" in page
    assert f'alt="{row.picture_words}"' in page


def test_of_two_pictures_of_a_name_the_last_one_is_kept_and_a_figure_may_be_given_instead(running):
    first = draw(5)
    draw(7)
    assert "to 7" in answered(picture="canvas").picture_words
    assert "to 5" in answered(picture=first).picture_words
    assert len(list((artifacts() / "pictures").iterdir())) == 1


def test_a_picture_has_the_name_of_the_call_that_a_page_made(monkeypatch):
    module = sys.modules["labkit.plots.canvas"]
    monkeypatch.setattr(module, "drawn", {})
    room = {"__name__": "labkit.plots.made_up", "canvas": plots.canvas}
    exec("def inner():\n    return canvas()\n\ndef ladder():\n    return inner()", room)
    room["ladder"]()
    draw(1)
    assert list(module.drawn) == ["ladder", "canvas"]


def test_a_picture_that_was_not_drawn_is_refused_with_those_that_were(running):
    draw(5)
    with pytest.raises(LessonError, match="No picture 'stairs' was drawn") as refused:
        answered(picture="stairs")
    assert "canvas" in str(refused.value)


def test_a_report_without_the_file_of_a_picture_shows_the_answer_alone(running):
    draw(5)
    (artifacts() / answered(picture="canvas").picture).unlink()
    page = report.write_report().read_text(encoding="utf-8")
    assert "So it is" in page
    assert "data:image/png" not in page


# ---- check yourself


def test_each_question_has_its_answer_behind_a_fold():
    page = cards.card("questions", [("Why `x`?", "Because."), ("1 < 2?", "Yes.")])
    assert page.count("<details>") == page.count("<summary") == 2
    assert "Why <code>x</code>?" in page
    assert "1 &lt; 2?" in page
    assert page.index("Because.") > page.index("<details>")


def test_the_mean_of_seeds_and_its_interval_say_the_same(capsys):
    seeds = np.array([1.0, 2.0, 4.0])
    assert said(capsys, seeds, "A", "B") == said(capsys, mean_interval(seeds), "A", "B")
