"""The table of claims over seeds, and what a run says otherwise than a recorded one."""

import json
import os
from dataclasses import replace

import pytest
from rows_made_up import LIMITS

from labkit import device, ledger
from labkit.errors import LedgerError
from labkit.files import write_text
from labkit.ledger.claims import Tally, by_seed, flips
from labkit.ledger.rows import Attempt, Claim, Completion, LessonAnswer, Machine, Run
from labkit.lesson.claims import as_markdown

HERE = ("m", None)  # a machine of which no row says more, and no host


def run(
    seed, verdicts, *, at, notebook="04_batch", profile="lab", complete=True, machine="m", host=None
):
    """One run of a lesson that made these claims."""
    key = f"{notebook}-{seed}-{at}"
    started = f"2026-01-01T10:00:{at:02}+00:00"
    ledger.add(
        Run(
            run_key=key,
            notebook=notebook,
            profile=profile,
            seed=seed,
            started_utc=started,
            machine_key=machine,
        )
    )
    about = {
        "run_key": key,
        "batch_key": "b",
        "notebook": notebook,
        "profile": profile,
        "started_utc": started,
    }
    ledger.add(Attempt(**about, status="passed", seed=seed, host=host))
    for claim, verdict in verdicts.items():
        ledger.add(
            Claim(run_key=key, claim_id=claim, sentence=f"{claim} of run {at}", verdict=verdict)
        )
    if complete:
        ledger.add(
            Completion(
                run_key=key, notebook=notebook, cell_count=1, seconds=1.0, finished_utc=started
            )
        )


def test_of_each_seed_the_newest_complete_run_of_the_profile_counts():
    run(0, {"gap": "fails"}, at=1)
    run(0, {"gap": "holds"}, at=2)
    run(1, {"gap": "inconclusive"}, at=3)
    run(2, {"gap": "fails"}, at=4, complete=False)
    run(3, {"gap": "fails"}, at=5, profile="quick")
    verdicts = {(0, HERE, None): "holds", (1, HERE, None): "inconclusive"}
    assert by_seed("lab") == {("04_batch", "gap"): ("gap of run 3", verdicts)}
    assert by_seed("lab", seeds=iter([0, 1])) == by_seed("lab")
    assert by_seed("lab", seeds=[1])["04_batch", "gap"].verdicts == {
        (1, HERE, None): "inconclusive"
    }


def test_a_claim_that_the_newest_run_no_longer_makes_is_left_out_and_a_new_one_counts_its_own_seeds():
    run(0, {"old": "holds", "both": "holds"}, at=1)
    run(1, {"new": "fails", "both": "holds"}, at=2)
    assert {claim: tally.verdicts for (_, claim), tally in by_seed("lab").items()} == {
        "new": {(1, HERE, None): "fails"},
        "both": {(0, HERE, None): "holds", (1, HERE, None): "holds"},
    }


def test_the_page_counts_verdicts_and_a_bar_in_a_sentence_does_not_break_its_table():
    run(0, {"|w|": "holds"}, at=1)
    run(1, {"|w|": "holds"}, at=2)
    page = as_markdown("lab")
    assert "2 holds, 0 fails, 0 inconclusive" in page
    assert (
        page.splitlines()[-1]
        == "| 04 | \\|w\\| of run 2 | holds in 2 of 2 | seeds 0 and 1 on 1 machine |"
    )


def test_a_claim_says_in_how_many_seeds_it_holds_and_on_how_many_machines():
    for seed, host in enumerate(["a", "b", "a", "b"]):
        run(seed, {"gap": "holds"}, at=seed, host=host)
    run(4, {"gap": "fails"}, at=5, machine="other")
    run(9, {"gap": "inconclusive"}, at=4, host="a")
    (tally,) = by_seed("lab").values()
    assert tally.outcome() == "holds in 4 of 6, fails in 1, open in 1"
    assert tally.extent() == "seeds 0, 1, 2, 3, 4 and 9 on 3 machines"
    assert (
        Tally("", {(seed, HERE, None): "holds" for seed in range(5)}).extent()
        == "seeds 0 to 4 on 1 machine"
    )
    assert Tally("", {(3, HERE, None): "holds"}).extent() == "seed 3 on 1 machine"


def test_two_machines_with_the_same_seeds_add_up_and_one_with_newer_software_does_not():
    one = Machine(machine_key="one", cpu="A", logical_cores=2)
    ledger.add(
        one,
        replace(one, machine_key="updated", python="3.13"),
        replace(one, machine_key="two", cpu="B"),
    )
    run(0, {"gap": "fails"}, at=1, machine="one")
    run(0, {"gap": "holds"}, at=2, machine="updated")
    run(0, {"gap": "holds"}, at=3, machine="two")
    (tally,) = by_seed("lab").values()
    assert tally.outcome() == "holds in 2 of 2"
    assert tally.extent() == "seed 0 on 2 machines"


def test_gaps_in_the_numbers_of_the_lessons_are_no_error():
    for at, notebook in enumerate(["20_ship_it", "04_batch", "03_what_limits_speed"]):
        run(0, {"gap": "holds"}, at=at, notebook=notebook)
    assert [line[2:4] for line in as_markdown("lab").splitlines()[-3:]] == ["03", "04", "20"]


def test_without_a_complete_run_the_error_says_which_command_makes_one():
    with pytest.raises(LedgerError, match="labkit run --profile lab"):
        as_markdown("lab")


def test_where_only_another_profile_ran_the_error_says_which():
    run(0, {"gap": "holds"}, at=1, profile="quick")
    with pytest.raises(LedgerError, match="--profile quick or labkit run --profile lab"):
        as_markdown("lab")


def recorded_verdicts(folder, *claims, kind=None, seed=0, answer=(1.0, 2.0)):
    """A folder with one recorded run of lesson 05, by default of this kind of machine."""
    machine = vars(kind or device.describe())
    row = {"run_key": "then", "sentence": "s"}
    tables = {
        "machines": [machine],
        "runs": [
            vars(
                Run(
                    run_key="then",
                    notebook="04_batch",
                    profile="lab",
                    seed=seed,
                    started_utc="t",
                    machine_key="m",
                )
            )
        ],
        "claims": [row | {"claim_id": name, "verdict": verdict} for name, verdict in claims],
        "lesson_answers": [row | LIMITS | {"value": 1.5, "low": answer[0], "high": answer[1]}],
    }
    about = {"hardware": "h", "date": "2026-01-01", "commit": "c", "profile": "lab"}
    write_text(folder / "recorded.json", json.dumps(about | {"tables": tables}))


def run_with_answer(low, high, verdicts):
    run(0, verdicts, at=1)
    middle = None if low is None else (low + high) / 2
    row = {
        "run_key": "04_batch-0-1",
        "sentence": "So it is",
        "value": middle,
        "low": low,
        "high": high,
    }
    ledger.add(LessonAnswer(**row, **LIMITS))


def test_what_a_run_says_otherwise_than_the_recorded_one_is_listed(tmp_path):
    recorded_verdicts(tmp_path, ("gap", "holds"), ("same", "fails"), ("gone", "holds"))
    run_with_answer(2.5, 3.0, {"gap": "inconclusive", "same": "fails", "new": "holds"})
    flipped, compared = flips(["04_batch-0-1"], tmp_path)
    assert flipped == [
        "batch answer: 1 to 2 -> 2.5 to 3: So it is",
        "batch gap: holds -> inconclusive: gap of run 1",
    ]
    assert compared == 3


@pytest.mark.parametrize(
    ("low", "high", "flipped"), [(1.9, 3.0, 0), (0.1, 0.9, 1), (None, None, 1)]
)
def test_an_answer_flips_where_its_interval_lies_apart_or_only_one_of_both_is_known(
    tmp_path, low, high, flipped
):
    recorded_verdicts(tmp_path)
    run_with_answer(low, high, {})
    assert len(flips(["04_batch-0-1"], tmp_path)[0]) == flipped


def test_runs_of_another_machine_or_seed_and_runs_that_are_not_asked_for_are_not_compared(tmp_path):
    recorded_verdicts(tmp_path, ("gap", "fails"))
    run_with_answer(2.5, 3.0, {"gap": "holds"})
    assert flips(["another"], tmp_path) == ([], 0)
    recorded_verdicts(tmp_path, ("gap", "fails"), seed=1)
    os.utime(tmp_path / "recorded.json", ns=(1, 1))
    assert flips(["04_batch-0-1"], tmp_path) == ([], 0)
    recorded_verdicts(tmp_path, ("gap", "fails"), kind=replace(device.describe(), cpu_isa="sve"))
    os.utime(tmp_path / "recorded.json", ns=(2, 2))
    assert flips(["04_batch-0-1"], tmp_path) == ([], 0)


def test_only_the_seeds_that_are_asked_for_count_and_a_claim_that_changes_with_the_seed_is_marked():
    for seed, verdict in enumerate(["fails", "fails", "holds", "holds"]):
        run(seed, {"gap": verdict, "sure": "holds"}, at=seed)
    page = as_markdown("lab", (1, 2))
    assert (
        "1 of 2 claims change with the seed; 1 of these hold with one and fail with another" in page
    )
    assert (
        "| gap of run 2 | holds in 1 of 2, fails in 1, **changes with the seed** | seeds 1 and 2 "
        "on 1 machine |" in page
    )
    assert "claims change" in page and "0 of 2 claims change" in as_markdown("lab", (2, 3))


def test_two_machines_that_disagree_do_not_change_with_the_seed():
    run(0, {"gap": "holds"}, at=1, host="a")
    run(0, {"gap": "fails"}, at=2, host="b")
    assert "0 of 1 claims change with the seed; 0 of these" in as_markdown("lab")


def test_a_recorded_verdict_is_found_when_its_lesson_has_another_number(tmp_path):
    recorded_verdicts(tmp_path, ("gap", "fails"))  # of 04_batch
    run(0, {"gap": "holds"}, at=1, notebook="05_batch")
    assert flips(["05_batch-0-1"], tmp_path) == (["batch gap: fails -> holds: gap of run 1"], 1)
