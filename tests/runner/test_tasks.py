"""What a batch has to do: notebooks times seeds."""

import pytest

from labkit import ledger
from labkit.errors import LabError
from labkit.runner import tasks
from labkit.runner.sources import Notebook
from labkit.runner.tasks import BatchSettings

FOUND = [
    Notebook(name, None, False, {"profile": "lab", "seed": 0, "rate": 0.5})
    for name in ("00_a", "01_b")
]


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0:5", (0, 1, 2, 3, 4)), ("3:4", (3,)), ("7", (7,)), ("1,5", (1, 5)), ("2,2,0", (2, 0))],
)
def test_seeds_are_a_span_without_its_end_or_a_list(text, seeds):
    assert tasks.seeds_of(text) == seeds


@pytest.mark.parametrize(
    "text", ["", "5:5", "5:0", "a", "0:b", "-1", "1,,2", "0:1:2", "0:1000000", "1.5"]
)
def test_what_names_no_seeds_is_refused_with_an_example(text):
    with pytest.raises(LabError, match="names no seeds") as caught:
        tasks.seeds_of(text)
    assert "--seeds 0:5" in caught.value.fix


def test_each_notebook_is_to_run_once_per_seed_with_the_seed_as_its_parameter():
    wanted = tasks.listed(FOUND, BatchSettings(seeds=(0, 4), parameters={"rate": "0.1"}))
    assert [tasks.label(task) for task in wanted] == [
        "00_a, seed 0",
        "01_b, seed 0",
        "00_a, seed 4",
        "01_b, seed 4",
    ]
    assert wanted[3].parameters == {"profile": "quick", "rate": 0.1, "seed": 4}


def test_without_seeds_the_parameters_stay_as_they_are():
    (first, _) = tasks.listed(FOUND, BatchSettings())
    assert (tasks.label(first), first.parameters) == ("00_a", {"profile": "quick"})


def test_a_seed_given_twice_and_seeds_for_a_notebook_without_one_are_refused():
    with pytest.raises(LabError, match="given twice"):
        tasks.listed(FOUND, BatchSettings(seeds=(1,), parameters={"seed": 2}))
    with pytest.raises(LabError, match="no parameter 'seed'"):
        tasks.listed([Notebook("00_a", None, False, {"profile": "lab"})], BatchSettings(seeds=(1,)))


def test_runs_of_different_seeds_have_keys_and_outputs_of_their_own_and_tries_are_counted():
    settings = BatchSettings(seeds=(0, 1), solutions=True)
    wanted = [task for task in tasks.listed(FOUND, settings) if task.notebook == "00_a"]
    first, other = (tasks.attempt(task, "b", settings) for task in wanted)
    assert (first.run_key, other.run_key) == ("b/00_a-seed-0/1", "b/00_a-seed-1/1")
    assert first.output == "executed/quick-solved-seed-0/00_a.ipynb"
    ledger.add(first)
    assert tasks.attempt(wanted[0], "b", settings).run_key == "b/00_a-seed-0/2"
    assert tasks.attempt(wanted[1], "b", settings).run_key == "b/00_a-seed-1/1"
