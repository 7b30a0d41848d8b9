"""The teaching words: what they record, how they judge, and that they never block."""

import asyncio
import inspect
import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from labkit import ledger, lesson
from labkit.errors import LabError, LessonError
from labkit.ledger.rows import Answer, Claim, Decision, LessonAnswer, Memory, Prediction
from labkit.lesson import _exercise, _predicting, _run, cards, exercises
from labkit.lesson.exercises import Exercise, expect_close
from labkit.measure.stats import Interval, mean_interval


@pytest.fixture
def running(capsys):
    """A lesson that has begun; what it printed so far is dropped."""
    begun = lesson.start("99_test", "quick", 3)
    capsys.readouterr()
    yield begun
    _run._lesson = None


def only(table):
    (row,) = ledger.load(table).to_dict("records")
    return row


def test_start_opens_a_run_that_names_profile_seed_machine_and_commit():
    lesson.start("99_test", "quick", 3)
    run, machine = only("runs"), only("machines")
    assert (run["notebook"], run["profile"], run["seed"]) == ("99_test", "quick", 3)
    assert run["machine_key"] == machine["machine_key"]


def test_start_takes_the_run_key_of_the_runner(monkeypatch):
    monkeypatch.setenv("LABKIT_RUN_KEY", "batch-1/99")
    assert lesson.start("99_test").run_key == "batch-1/99"
    assert only("runs")["batch_key"] == "batch-1"


@pytest.mark.parametrize("key", [None, "papermill-0123456789ab"])
def test_a_run_by_hand_or_by_plain_papermill_is_of_no_batch(key, monkeypatch):
    if key:
        monkeypatch.setenv("LABKIT_RUN_KEY", key)
    lesson.start("99_test")
    assert only("runs")["batch_key"] is None


def test_start_makes_random_numbers_repeatable(running):
    import random

    import numpy as np
    import torch

    def draw():
        return torch.rand(1).item(), np.random.rand(), random.random()  # noqa: NPY002

    lesson.start("99_test", "quick", 3)
    first = draw()
    lesson.start("99_test", "quick", 3)
    assert draw() == first
    lesson.start("99_test", "quick", 4)
    assert all(new != old for new, old in zip(draw(), first, strict=True))


def test_an_unknown_profile_is_refused_with_the_ones_there_are():
    with pytest.raises(LessonError, match="quick or lab or paper"):
        lesson.start("99_test", "fast")


def test_a_word_before_start_says_what_to_do(monkeypatch):
    monkeypatch.setattr(_run, "_lesson", None)
    with pytest.raises(LessonError, match=r"start\(\.\.\.\)"):
        lesson.claim("c", "s", 1.0, above=0)


@pytest.mark.parametrize("seed", [-1, 2**32, 0.5, "abc"])
def test_a_seed_that_cannot_be_used_is_refused_in_words_and_the_cell_to_change_is_named(seed):
    with pytest.raises(LessonError, match="seed cannot be used") as refused:
        lesson.start("99_test", "quick", seed)
    assert "the first code cell, the one with profile and seed" in str(refused.value)


def test_choose_follows_the_profile_and_paper_falls_back_to_lab(running):
    assert running.choose(quick=1, lab=2, paper=3) == 1
    assert lesson.start("99_test", "paper").choose(quick=1, lab=2) == 2


def test_a_prediction_takes_its_default_until_the_reader_answers(running):
    lesson.predict("p", "How much?", unit="x", default=2)
    assert (only("predictions")["answer"], only("predictions")["source"]) == ("2", "default")
    _predicting._record_answer("p", 3.5)
    assert (only("predictions")["answer"], only("predictions")["source"]) == ("3.5", "reader")


def test_running_the_cell_again_keeps_the_readers_answer(running):
    lesson.predict("p", "Which?", ["a", "b"], default="a")
    _predicting._record_answer("p", "b")
    lesson.predict("p", "Which?", ["a", "b"], default="a")
    assert (only("predictions")["answer"], only("predictions")["source"]) == ("b", "reader")


def test_an_answer_given_after_the_result_is_marked_as_such(running):
    lesson.predict("p", "Which?", ["a", "b"], default="a")
    lesson.reveal("p", "b")
    row = _predicting._record_answer("p", "b")
    assert (row.source, row.verdict) == ("reader, afterwards", "right")


def test_an_answer_inside_the_interval_of_the_result_stays_open(running, capsys):
    lesson.predict("p", "How many points?", unit="points", default=3)
    _predicting._record_answer("p", 3)
    lesson.reveal("p", Interval(0.5, 3.5, 20, median=1.9))
    row = only("predictions")
    assert (row["verdict"], row["result"], row["low"], row["high"]) == ("open", "1.9", 0.5, 3.5)
    assert "1.9 points (from 0.5 to 3.5; your answer lies in it)" in capsys.readouterr().out


def test_what_nobody_answered_is_shown_without_a_verdict(running, capsys):
    lesson.predict("p", "How much?", unit="x", default=2)
    lesson.reveal("p", 4.0)
    assert only("predictions")["verdict"] == "no answer"
    said = capsys.readouterr().out
    assert "no answer given" in said
    assert "Measured: 4 x." in said
    assert "off" not in said
    assert _predicting._record_answer("p", 3.9).verdict == "right"


@pytest.mark.parametrize(
    ("options", "default", "answer", "result"),
    [
        (["fused", "loop"], "loop", "fused", "fused"),
        (None, 4, 9, Interval(4.02, 5.86, 9, median=4.28)),
    ],
)
def test_too_few_pairs_leave_a_prediction_open_and_say_so(
    running, capsys, options, default, answer, result
):
    lesson.predict("p", "Which, or how much?", options, default=default)
    _predicting._record_answer("p", answer)
    lesson.reveal("p", result, rests_on=Interval(4.02, 5.86, 9))
    assert only("predictions")["verdict"] == "open"
    said = capsys.readouterr().out
    assert "only 9 of the 11 samples that are needed" in said
    assert f"Measured: {'fused' if options else '4.28'}" in said.replace("measured", "Measured")


def test_a_run_that_cannot_tell_leaves_the_prediction_open_and_says_why(running, capsys):
    lesson.predict("p", "Which?", ["a", "b"], default="a")
    lesson.reveal("p", None, reason="no GPU")
    row = only("predictions")
    assert (row["verdict"], row["reason"], row["result"]) == ("no answer", "no GPU", None)
    row = _predicting._record_answer("p", "b")
    assert (row.verdict, row.source) == ("open", "reader, afterwards")
    capsys.readouterr()
    lesson.recap()
    assert "no GPU" in capsys.readouterr().out


def test_revealing_what_was_never_asked_is_refused(running):
    with pytest.raises(LessonError, match="Nothing was predicted"):
        lesson.reveal("p", 1)


ABOVE_ONE = {"above": 1}


def between(low, high):
    return Interval(low, high, samples=20)


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        *[
            (between(1.1, 1.3), "holds"),
            (between(0.9, 1.2), "inconclusive"),
            (between(0.5, 0.8), "fails"),
        ],
        *[(1.5, "holds"), (0.5, "fails")],
    ],
)
def test_a_claim_holds_for_its_whole_interval_or_stays_open_or_fails(running, value, verdict):
    lesson.claim("c", "faster", value, **ABOVE_ONE)
    assert only("claims")["verdict"] == verdict


def test_a_claim_of_no_difference_holds_when_the_interval_lies_near_enough(running):
    lesson.claim("c", "alike", between(0.98, 1.02), at_least=0.97, at_most=1.03)
    assert only("claims")["verdict"] == "holds"
    lesson.claim("c", "alike", between(1.1, 1.2), at_least=0.97, at_most=1.03)
    assert only("claims")["verdict"] == "fails"


def test_a_claim_without_a_bound_is_refused_because_nothing_could_refute_it(running):
    with pytest.raises(LessonError, match="no bound"):
        lesson.claim("c", "fast", 2.0)


def test_a_claim_keeps_the_point_estimate_and_the_interval(running):
    lesson.claim("c", "faster", Interval(1.1, 1.5, 20, median=1.2), unit="x", **ABOVE_ONE)
    row = only("claims")
    assert (row["low"], row["value"], row["high"], row["unit"]) == (1.1, 1.2, 1.5, "x")


def test_a_pair_that_does_not_say_how_many_samples_it_rests_on_is_refused(running):
    lesson.predict("p", "How much?", unit="x", default=2)
    with pytest.raises(LessonError, match="number of its samples"):
        lesson.reveal("p", (1.1, 1.3))
    with pytest.raises(LessonError, match="number of its samples"):
        lesson.claim("c", "faster", (1.1, 1.3), **ABOVE_ONE)


def test_the_same_number_and_interval_stand_in_the_claim_and_in_the_revealed_prediction(
    running, capsys
):
    lesson.predict("p", "How many times?", unit="x", default=2)
    lesson.reveal("p", Timed())
    assert "1.04 x (from 0.99 to 1.09)" in capsys.readouterr().out
    lesson.claim("c", "faster", Timed(), unit="x", **ABOVE_ONE)
    assert "1.04 x (from 0.99 to 1.09)" in capsys.readouterr().out


class Timed:
    low, high, median, floor, pairs = 1.02, 1.06, 1.04, 0.03, 40


def test_a_ratio_within_its_floor_neither_holds_nor_fails_and_says_why(running):
    lesson.claim("c", "faster", Timed(), unit="x", **ABOVE_ONE)
    row = only("claims")
    assert (row["verdict"], row["low"]) == ("inconclusive", pytest.approx(1.02 / 1.03))
    assert row["reason"] == "the same code twice differed by up to 3 % here"


def test_a_ratio_of_a_few_pairs_neither_holds_nor_fails_and_says_how_many_are_missing(running):
    class Few(Timed):
        low, floor, pairs = 1.9, 0.0, 5

    lesson.claim("c", "faster", Few(), unit="x", **ABOVE_ONE)
    assert only("claims")["verdict"] == "inconclusive"
    assert "only 5 of the 11 pairs" in only("claims")["reason"]


@pytest.mark.parametrize("value", [None, float("nan"), Interval(float("nan"), 1.0, 20)])
def test_a_claim_without_a_value_is_inconclusive_and_says_why(running, value, capsys):
    lesson.claim("c", "cheaper", value, below=1, reason="no energy counter")
    row = only("claims")
    assert (row["verdict"], row["reason"]) == ("inconclusive", "no energy counter")
    assert row["value"] != row["value"]
    assert "no energy counter" in capsys.readouterr().out


def test_a_claim_from_a_busy_machine_stays_open_but_shows_its_value(running, capsys):
    lesson.claim("c", "faster", 2.0, above=1, reason="other processes used 50 % of the cores")
    row = only("claims")
    assert (row["verdict"], row["value"]) == ("inconclusive", 2.0)
    assert "2; other processes used 50 % of the cores" in capsys.readouterr().out


def test_kept_rows_belong_to_this_run(running):
    kept = lesson.keep(Memory(run_key="", name="copy", device="cpu", threads=2, peak_bytes=10**9))
    assert kept.run_key == running.run_key == only("memories")["run_key"]


def double(x):
    return 2 * x


def verify_double(answer):
    expect_close(answer(3), 6, "double(3)")


TASK = Exercise(
    id="double",
    task="Write twice x.",
    difficulty=1,
    minutes=1,
    hint="Add it to itself.",
    reference=double,
    verify=verify_double,
)


@pytest.fixture
def task(monkeypatch, running):
    monkeypatch.setattr(exercises, "registry", lambda: {"double": TASK})
    return lesson.exercise("double")


def test_a_right_answer_passes_and_is_handed_back(task):
    mine = lambda x: x + x  # noqa: E731
    assert task.check(mine) is mine
    assert only("answers")["verdict"] == "passed"


def test_a_solution_is_shown_on_request_and_after_a_pass_and_not_in_a_first_run(task, capsys):
    source = inspect.getsource(TASK.reference).rstrip().splitlines()[-1].strip()
    for answer in (stub, lambda x: x):
        task.check(answer)
        shown = capsys.readouterr().out
        assert source not in shown
        assert 'exercise("double").solution()' in shown
    task.solution()
    assert source in capsys.readouterr().out
    task.check(lambda x: x + x)
    assert source in capsys.readouterr().out


def stub(x):
    """Twice x."""


def passing(x):
    pass


def unwritten(x):
    raise NotImplementedError


@pytest.mark.parametrize("answer", [stub, passing, unwritten, None, ..., lambda x: None])
def test_a_stub_is_unsolved_and_hands_back_the_reference(task, answer):
    assert task.check(answer) is double
    assert only("answers")["verdict"] == "unsolved"


def recursing(x):
    return recursing(x)


def leaving(x):
    raise SystemExit(0)


def cancelled(x):
    raise asyncio.CancelledError


class Unspeakable(Exception):
    def __str__(self):
        raise ValueError


def unspeakable(x):
    raise Unspeakable


class Spoilt:
    def __float__(self):
        raise TypeError

    def __repr__(self):
        raise ValueError


HOSTILE = {
    "squares": lambda x: x * x,
    "takes too much": lambda x, y: x,
    "divides by zero": lambda x: x / 0,
    "not a function": 6,
    "gives text": lambda x: "six",
    "gives nan": lambda x: float("nan"),
    "gives a list": lambda x: [6],
    "gives what cannot be shown": lambda x: Spoilt(),
    "recurses for ever": recursing,
    "leaves the program": leaving,
    "is cancelled": cancelled,
    "raises what cannot be shown": unspeakable,
    "gives infinity": lambda x: float("inf"),
    "gives a class": lambda x: int,
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_a_wrong_answer_never_passes_and_never_stops_the_lesson(task, answer):
    assert task.check(answer) is double
    row = only("answers")
    assert row["verdict"] == "wrong"
    assert row["message"]


def endless(x):
    while True:
        pass


def test_an_answer_that_never_ends_is_wrong_after_a_while(task, monkeypatch):
    monkeypatch.setattr(_exercise, "LONGEST_S", 0.05)
    assert task.check(endless) is double
    assert "had not finished" in only("answers")["message"]


def stopped(x):
    raise KeyboardInterrupt


def test_an_answer_that_the_reader_stops_is_wrong_and_the_reference_takes_its_place(
    task, monkeypatch
):
    monkeypatch.setattr(cards, "interactive", lambda: True)
    assert task.check(stopped) is double
    assert "You stopped" in only("answers")["message"]


def test_a_stopped_batch_is_not_taken_for_a_wrong_answer(task):
    with pytest.raises(KeyboardInterrupt):
        task.check(stopped)


def talking(x):
    for number in range(2000):
        print("line", number)
    return 2 * x


def test_of_what_an_answer_prints_only_the_first_lines_are_shown_below_the_verdict(task, capsys):
    task.check(talking)
    said = capsys.readouterr().out
    assert "Your answer printed more than 20 lines; the first of them:" in said
    assert said.index("passed") < said.index("line 0")
    assert "line 19" in said
    assert "line 20" not in said


def test_stderr_is_shown_as_what_is_printed_is(task, capsys):
    task.check(lambda x: (print("to stderr\n" * 2000, file=sys.stderr), 2 * x)[1])
    said, errors = capsys.readouterr()
    assert said.count("to stderr") == 20
    assert not errors


def test_what_an_answer_writes_past_python_is_dropped_and_later_writing_is_not(capfd):
    with _exercise._output_captured():
        os.write(1, b"past Python, on stdout\n")
        os.write(2, b"past Python, on stderr\n")
    os.write(1, b"back\n")
    os.write(2, b"back\n")
    assert capfd.readouterr() == ("back\n", "back\n")


GLOBAL = {
    "torch's seed": lambda: torch.manual_seed(99),
    "NumPy's random numbers": lambda: np.random.seed(99),  # noqa: NPY002
    "Python's random numbers": lambda: random.seed(99),
    "torch's threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "torch's default dtype": lambda: torch.set_default_dtype(torch.float64),
    "torch's grad mode": lambda: torch.set_grad_enabled(False),
    "the working folder": lambda: os.chdir("/"),
    "environment variables": lambda: os.environ.update(LABKIT_HEADLESS="none"),
}


def global_state():
    torchs = (
        torch.get_rng_state().tolist(),
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
    )
    return torchs, repr(np.random.get_state()), random.getstate(), Path.cwd(), dict(os.environ)  # noqa: NPY002


@pytest.mark.parametrize("name", GLOBAL)
def test_what_an_answer_changes_globally_is_put_back_and_named(task, name, capsys):
    before = global_state()
    for factor in (2, 3):  # a right answer, a wrong one
        task.check(lambda x, factor=factor: (GLOBAL[name](), factor * x)[1])
        assert global_state() == before
        assert f"changed {name} for the whole notebook" in capsys.readouterr().out


def test_an_unknown_exercise_is_refused_with_the_ones_there_are(running):
    with pytest.raises(LabError, match="image-bytes"):
        lesson.exercise("no-such-thing")


def test_recap_shows_everything_of_this_run_only_and_writes_the_completion(running, capsys):
    lesson.predict("p", "How much?", unit="x", default=2)
    lesson.reveal("p", 4)
    lesson.claim("c", "it is faster", 2.0, **ABOVE_ONE)
    lesson.start("99_test", "quick", 4)
    lesson.claim("d", "it is smaller", 2.0, **ABOVE_ONE)
    capsys.readouterr()
    lesson.recap()
    shown = capsys.readouterr().out
    assert "it is smaller" in shown
    assert "it is faster" not in shown
    assert only("completions")["notebook"] == "99_test"


LIMITS = {"because": "half the bytes", "holds_for": "large layers", "not_for": "small batches"}


@pytest.mark.parametrize(
    ("value", "unit", "found"),
    [
        (Interval(1.1, 1.5, 20, median=1.2), "points", (1.1, 1.2, 1.5, "points", None)),
        (
            Interval(1.1, 1.5, 3, median=1.2),
            None,
            (1.1, 1.2, 1.5, None, "only 3 of the 11 samples that are needed"),
        ),
        (12.5, "ms", (12.5, 12.5, 12.5, "ms", None)),
        (None, "J", (None, None, None, "J", "not measured in this run")),
    ],
)
def test_an_answer_goes_to_the_ledger_with_its_number_interval_cause_and_limits(
    running, value, unit, found
):
    lesson.answer("It is faster", value, unit=unit, **LIMITS)
    (row,) = ledger.find(LessonAnswer)
    assert (row.low, row.value, row.high, row.unit, row.reason) == found
    assert (row.sentence, row.because, row.holds_for, row.not_for) == (
        "It is faster",
        *LIMITS.values(),
    )


def test_claims_and_answers_say_what_an_interval_over_seeds_rests_on(running, capsys):
    over_seeds = mean_interval([1.0, 2.0, 3.0])
    lesson.claim("c", "it gains", over_seeds, above=-1)
    lesson.answer("It gains", over_seeds, **LIMITS)
    assert ledger.find(Claim)[0].basis == ledger.find(LessonAnswer)[0].basis == "t, n = 3"
    assert capsys.readouterr().out.count("-0.484 to 4.48; t, n = 3") == 2


def test_an_answer_that_is_a_ratio_is_counted_in_x_and_widened_by_its_floor_as_in_a_claim(running):
    lesson.answer("It is faster", Timed(), **LIMITS)
    (row,) = ledger.find(LessonAnswer)
    assert (row.unit, row.value) == ("x as fast", 1.04)
    assert (row.low, row.high) == pytest.approx((1.02 / 1.03, 1.06 * 1.03))


def test_an_answer_is_readable_as_plain_text_line_by_line(running, capsys):
    lesson.answer("It is <b>faster</b>", Timed(), **LIMITS)
    assert capsys.readouterr().out.splitlines() == [
        "The answer",
        "It is <b>faster</b>",
        "1.04 x as fast from 0.99 to 1.09",
        "Because half the bytes",
        "Holds for large layers",
        "Not for small batches",
    ]


def test_a_lesson_has_one_answer_and_a_pair_without_its_number_of_samples_is_none(running):
    lesson.answer("It is faster", 1.0, **LIMITS)
    lesson.answer("It is slower", 1.0, **LIMITS)
    assert only("lesson_answers")["sentence"] == "It is slower"
    with pytest.raises(LessonError, match="number of its samples"):
        lesson.answer("It is faster", (1.1, 1.3), **LIMITS)


def test_a_decision_is_kept_once_with_its_numbers_and_says_when_one_rests_on_too_little(
    running, capsys
):
    lesson.decide("Ship the large one.", because={"file, in kB": 900})
    numbers = {
        "right, in %": mean_interval([80.0, 82.0, 84.0]),
        "times as fast": Interval(1.1, 1.5, 3, median=1.2),
    }
    lesson.decide("Ship the <b>small</b> one.", because=numbers | {"file, in kB": 90})
    (row,) = ledger.find(Decision)
    assert row.text == "Ship the <b>small</b> one."
    assert row.because == (
        "right, in %: 82 (from 77 to 87; t, n = 3); times as fast: 1.2 (from 1.1 to 1.5); "
        "only 3 of the 11 samples that are needed; file, in kB: 90"
    )
    said = capsys.readouterr().out.splitlines()
    assert said[-3:] == ["The decision", row.text, f"It rests on {row.because}."]
    with pytest.raises(LessonError, match="number of its samples"):
        lesson.decide("Ship it.", because={"ratio": (1.1, 1.3)})


def test_the_recap_counts_verdicts_folds_its_tables_below_an_answer_and_says_when_there_is_none(
    running, capsys
):
    lesson.claim("c", "it is faster", 2.0, **ABOVE_ONE)
    lesson.claim("d", "it is smaller", 0.5, **ABOVE_ONE)
    lesson.claim("e", "it is lighter", 3.0, **ABOVE_ONE)
    capsys.readouterr()
    lesson.recap()
    without = capsys.readouterr().out
    assert "does not end with an answer yet" in without
    assert "What this run says ✓ holds 2 ✗ fails 1" in without
    found = [ledger.find(kind) for kind in (LessonAnswer, Prediction, Claim, Answer)]
    assert "<details open>" in cards.card("recap", *found)
    lesson.answer("It is faster", 1.0, **LIMITS)
    page = cards.card("recap", ledger.find(LessonAnswer), *found[1:])
    assert "<details>" in page and "open" not in page
    assert "yet" not in page
