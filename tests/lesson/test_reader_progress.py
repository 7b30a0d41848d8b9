"""Progress: what the reader did counts, and neither the reference answers, nor the runner, nor
what others sent.
"""

import json

import pytest
from rows_made_up import write_lesson
from test_cli import call

from labkit import ledger, lesson
from labkit.ledger.rows import Answer, Batch, Prediction, Run
from labkit.lesson import cards
from labkit.lesson.progress import progress

DAYS = [f"2026-01-{day:02d}T10:00:00+00:00" for day in range(1, 10)]


def begin(run_key, notebook="03_what_limits_speed", *, day=0, **more):
    row = Run(
        run_key=run_key,
        notebook=notebook,
        profile="lab",
        seed=0,
        started_utc=DAYS[day],
        machine_key="m",
        **more,
    )
    ledger.add(row)


def guess(run_key, name, answer, result, verdict, *, unit="x", source="reader", reason=None):
    row = {"question": "How much?", "unit": unit, "source": source, "reason": reason}
    numbers = {"answer": str(answer), "result": str(result), "verdict": verdict}
    ledger.add(Prediction(run_key=run_key, prediction_id=name, **row, **numbers))


def solve(run_key, verdict="passed", exercise_id="image-bytes"):
    ledger.add(Answer(run_key=run_key, exercise_id=exercise_id, verdict=verdict))


def first():
    """The step of the lesson that `begin` begins."""
    [step] = [step for step in progress().steps if step.name == "03_what_limits_speed"]
    return step


def test_an_empty_ledger_is_no_progress_and_says_where_to_begin():
    assert not progress()
    assert first().state == ""
    assert "0 of " in call("progress")
    assert "Next: 00_start_here" in call("progress")


def test_a_lesson_is_begun_and_when_it_ran_to_its_end_it_is_done():
    begin("r0")
    assert first().state == "begun"
    write_lesson("r1")
    assert first().state == "done"
    write_lesson("r2", "00_start_here")
    assert progress().following == "01_deployment_fundamentals"


def test_an_exercise_counts_when_the_reader_solved_it_once_and_not_when_the_reference_did():
    ledger.add(Batch(batch_key="b1", settings=json.dumps({"solutions": True}), started_utc=DAYS[0]))
    ledger.add(
        Batch(batch_key="b2", settings=json.dumps({"solutions": False}), started_utc=DAYS[0])
    )
    begin("solved-by-the-reference", batch_key="b1")
    solve("solved-by-the-reference")
    begin("of-another-student", reported_by="ada.zip")
    solve("of-another-student")
    begin("unsolved")
    solve("unsolved", "wrong")
    assert first().solved == 0
    begin("graded", batch_key="b2")
    solve("graded")
    begin("later", day=3)
    solve("later", "wrong")
    assert first().solved == 1
    assert first().exercises >= 1


def test_the_first_answer_to_a_question_counts_and_none_that_came_after_the_result():
    begin("again", day=5)
    begin("before", day=1)
    guess("again", "bf16", 2, 2, "right")
    guess("before", "bf16", 9, 2, "off")
    guess("before", "late", 2, 2, "right", source="reader, afterwards")
    guess("before", "nobody", 2, 2, "no answer", source="default")
    assert (first().near, first().off) == (0, 1)


@pytest.mark.parametrize(
    "verdict, reason, counted",
    [("right", None, 1), ("close", None, 1), ("open", None, 1), ("open", "noisy", 0)],
)
def test_a_guess_is_near_within_a_quarter_or_inside_what_the_run_allows(verdict, reason, counted):
    begin("r")
    guess("r", "bf16", 2, 2.1, verdict, reason=reason)
    assert (first().near, first().off) == (counted, 0)


def test_guesses_twice_too_high_are_called_so_by_their_kind():
    begin("r")
    for name, answer, result in (("a", 4, 2), ("b", 6, 3), ("c", 1, 2), ("d", 8, 2)):
        guess("r", name, answer, result, "off", unit="s")
    guess("r", "too-few", 4, 2, "off", unit="points")
    guess("r", "option", "memory", "compute", "off", unit=None)
    assert progress().leanings == (
        "Your guesses about time: 3 of 4 too high, 1 too low; the middle one is 2 times too high.",
    )
    assert "the middle one is 2 times too high" in call("progress")


def test_a_guess_of_nothing_or_of_a_loss_has_no_factor():
    begin("r")
    for name, answer, result in (("a", -1, 2), ("b", 0, 3), ("c", 5, -2)):
        guess("r", name, answer, result, "off", unit="points")
    assert progress().leanings == ("Your guesses about points: 1 of 3 too high, 2 too low.",)


def test_the_card_says_how_far_and_lists_the_lessons_that_were_begun():
    write_lesson("r1")
    guess("r1", "bf16", 2, 2, "right")
    text = cards.plain(cards.card("progress", progress(), True))
    assert "exercises solved by you, 1 of 1 predictions near." in text
    assert "03_what_limits_speed done 0 of" in text
    assert "01_deployment_fundamentals" not in text


def test_the_recap_says_how_far_the_reader_is_and_in_a_headless_run_it_does_not(
    monkeypatch, capsys
):
    lesson.start("03_what_limits_speed", "quick")
    lesson.recap()
    assert "Your progress" not in capsys.readouterr().out
    monkeypatch.setattr(cards, "interactive", lambda: True)
    lesson.recap()
    assert "Your progress\n1 of" in capsys.readouterr().out
