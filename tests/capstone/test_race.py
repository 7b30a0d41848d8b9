"""Recipes to train fast with: what is none is refused, what harms stops nobody else, what is
forged counts nowhere.
"""

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
import torch

from labkit import device, ledger
from labkit.capstone import race as racing
from labkit.capstone.order import MEDALS
from labkit.capstone.race import RACES, Race, keep_race, race
from labkit.capstone.recipe import networks, read_recipe, recipe_of
from labkit.capstone.training import train_once
from labkit.errors import LabError
from labkit.export import inspection
from labkit.files import artifacts
from labkit.ledger.merge import merge, pack
from labkit.ledger.rows import RaceScore
from labkit.report import leaderboard

# each training has a process that imports torch: minutes on a busy machine
pytestmark = pytest.mark.timeout(1200)
SMALL = {
    "network": "cnn-small",
    "images": 512,
    "batch": 64,
    "learning_rate": 0.05,
    "optimizer": "sgd",
}
NAN, INFINITE = float("nan"), float("inf")


def small_race(**others):
    """A race of seconds: three of ten images right."""
    reference = recipe_of({"name": "reference", **SMALL, "epochs": 6, "schedule": "constant"})
    usual = {
        "name": "small",
        "dataset": "fashion-mnist",
        "accuracy": 0.3,
        "seeds": 3,
        "tested": 1000,
        "seconds": 60,
    }
    return Race(reference=reference, **usual | others)


# --- what is no recipe ---

REFUSED = {
    "a field that there is not": ({"hooks": "evil"}, "field of a recipe"),
    "the judge's seed": ({"seed": 7}, "field of a recipe"),
    "weights that were trained before": ({"pretrained": True}, "field of a recipe"),
    "a checkpoint to go on from": ({"checkpoint": "/tmp/trained.pt"}, "field of a recipe"),
    "a path as network": ({"network": "../../evil"}, "network"),
    "a network for large images": ({"network": "resnet50"}, "network"),
    "a path as optimizer": ({"optimizer": "../../evil"}, "optimizer"),
    "a module that is no optimizer": ({"optimizer": "ema"}, "optimizer"),
    "a billion epochs": ({"epochs": 10**9}, "epochs is 1000000000"),
    "no epoch": ({"epochs": 0}, "epochs is 0"),
    "a huge batch": ({"batch": 2**40}, "batch is"),
    "huge images": ({"size": 100_000}, "size is 100000"),
    "images that grow from huge ones": (
        {"first_size": 100_000, "epochs": 2},
        "first_size is 100000",
    ),
    "more images than there are": ({"images": 10**12}, "images is"),
    "fewer images than a batch": ({"images": 100}, "fewer than one batch"),
    "a rate that is no number": ({"learning_rate": NAN}, "learning_rate is nan"),
    "an endless rate": ({"learning_rate": INFINITE}, "learning_rate is inf"),
    "a rate as text": ({"learning_rate": "1e9"}, "of type str"),
    "a yes as a number": ({"epochs": True}, "of type bool"),
    "a list": ({"batch": [64]}, "of type list"),
    "a table": ({"network": {"path": "evil"}}, "of type dict"),
    "code": ({"schedule": "__import__('os').system('true')"}, "schedule"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_recipe_is_refused_with_the_reason_before_anything_starts(case):
    given, says = REFUSED[case]
    with pytest.raises(LabError, match=says):
        recipe_of({"name": "cheat"} | given)


FILES = {
    "no TOML": (b"network = ", "no TOML"),
    "bytes": (b"\xff\xfe\x00", "no TOML"),
    "lists within lists": (b"a = " + 4_000 * b"[", "no TOML"),
    "too long": (b"#" * 20_000, "at most 10,000 bytes"),
    "not a number": (b"learning_rate = nan", "learning_rate is nan"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_that_is_no_recipe_is_refused(case, tmp_path):
    content, says = FILES[case]
    (tmp_path / "cheat.toml").write_bytes(content)
    with pytest.raises(LabError, match=says):
        read_recipe(tmp_path / "cheat.toml")


@pytest.mark.parametrize("name", ["recipe.py", "missing.toml", "folder.toml"])
def test_a_path_that_is_that_of_no_recipe_is_refused(name, tmp_path):
    (tmp_path / "recipe.py").write_text("import os")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(LabError, match="no recipe"):
        read_recipe(tmp_path / name)


def test_a_recipe_is_read_as_it_was_written(tmp_path):
    (tmp_path / "mine.toml").write_text(
        'network = "vgg-small"\nimages = 3000\nepochs = 2\nfirst_size = 20\nclip = 1\n'
    )
    found = read_recipe(tmp_path / "mine.toml")
    assert (found.name, found.network, found.images, found.config.epochs) == (
        "mine",
        "vgg-small",
        3000,
        2,
    )
    told = json.loads(found.as_json())
    assert told == {
        "network": "vgg-small",
        "images": 3000,
        "epochs": 2,
        "first_size": 20,
        "clip": 1,
    }
    assert recipe_of({"name": "mine"} | told) == found


@pytest.mark.parametrize("each", RACES.values(), ids=lambda each: each.name)
def test_the_reference_of_a_race_is_itself_a_recipe_that_can_be_handed_in(each):
    assert recipe_of({"name": "reference"} | json.loads(each.reference.as_json())) == each.reference
    assert each.reference.network in networks()


# --- what is trained ---


def splits_of(seeds, monkeypatch):
    """(images trained on, images tested on) for each seed, as sets of bytes, without training
    anything.
    """
    from labkit import train

    seen, fit = [], train.fit

    def short(model, data, config, **how):
        seen.append(data)
        return fit(model, data.take(torch.arange(config.batch)), config, **how)

    monkeypatch.setattr(train, "fit", short)
    monkeypatch.setattr(train, "accuracy", lambda model, data, **how: seen.append(data) or 0.5)
    monkeypatch.setattr(inspection, "limit_memory", lambda more: None)
    splits = []
    for seed in seeds:
        seen.clear()
        train_once(recipe_of({"name": "a", **SMALL, "images": 6_000}), "fashion-mnist", 2_000, seed)
        _warm_up, *split = [{image.numpy().tobytes() for image in data.images} for data in seen]
        splits.append(split)
    return splits


def test_the_judges_splits_are_others_than_the_public_one_and_other_for_each_seed(monkeypatch):
    """A recipe that was tuned on the public test images meets others."""
    from labkit.data import load

    public = {image.numpy().tobytes() for image in load("fashion-mnist", "test").images}
    (train, test), (_, second) = splits_of([1, 2], monkeypatch)
    assert len(train & test) < 20  # a few images are in the set twice
    assert len(test & public) / len(test) < 0.2  # one in seven of all images
    assert len(test & second) / len(test) < 0.2
    assert 0.1 < len(train & public) / len(train) < 0.2


@pytest.fixture(scope="module")
def raced():
    """{name: `Raced`} of an honest recipe and of some that do harm, judged side by side; and the
    race.
    """
    against = small_race(seconds=3)
    entries = {
        "honest": {"epochs": 6, "schedule": "onecycle", "learning_rate": 0.1},
        "a rate of a million": {"learning_rate": 1e6},
        "too short": {"images": 64},
        "too long": {"network": "vgg-medium", "images": 60_000, "epochs": 200},
        "too small for its network": {"network": "vgg-small", "size": 8},
        "too much memory": {"network": "resnet18", "images": 8192, "batch": 8192, "size": 64},
    }
    recipes = [recipe_of({"name": name} | SMALL | given) for name, given in entries.items()]
    with pytest.MonkeyPatch.context() as patch:
        # nobody waits for two minutes more until what takes too long is ended
        patch.setattr(racing, "START_S", 15)
        return {each.name: each for each in race(recipes, against, seeds=[5, 6])}, against


HARMFUL = {
    "a rate of a million": "loss became|% on average",
    "too short": "are asked for: 0 of 2",
    "too long": "more than the 3 s|process ended",
    "too small for its network": "too small",
    "too much memory": "memory|process ended",
}


# a score of a recipe that is judged alone is in the lessons and below
@pytest.mark.release
@pytest.mark.kills
def test_an_honest_recipe_has_a_score_whatever_stands_beside_it(raced):
    found = raced[0]["honest"]
    assert found.reason is None
    assert len(found.seconds) == len(found.accuracies) == 2
    assert found.points.low <= found.points.median <= found.points.high
    assert found.accuracy.median >= raced[1].accuracy
    reference = raced[0]["reference"]
    assert reference.points.median == pytest.approx(1)
    assert reference.medal is None


@pytest.mark.release
@pytest.mark.kills
@pytest.mark.parametrize("name", HARMFUL)
def test_a_recipe_that_does_harm_has_no_score_and_the_reason(raced, name):
    found = raced[0][name]
    assert found.points is None and found.medal is None
    assert re.search(HARMFUL[name], found.reason), found.reason


def test_without_seeds_the_judge_draws_them():
    first, second = (race([], small_race(), apart=False)[0] for _ in range(2))
    assert len(first.accuracies) == len(second.accuracies) == 3
    assert first.accuracies != second.accuracies


def test_a_recipe_that_reaches_the_target_only_now_and_then_has_no_score():
    against = small_race(accuracy=0.8)
    recipe = against.reference
    found = racing._scored(
        recipe, against, [(1.0, 0.81), (1.0, 0.82), (1.0, 0.7)], 3 * [(2.0, 0.9)]
    )
    assert found.points is None
    assert "2 of 3 trainings reach it" in found.reason


# --- the board ---


@pytest.fixture
def machine(own_artifacts):
    found = device.describe()
    ledger.add(found)
    return found


def row_of(name, points, **others):
    usual = {
        "run_key": f"race-{name}",
        "race": "lab",
        "dataset": "fashion-mnist",
        "target": 0.9,
        "device": "cpu",
    }
    usual |= {
        "points": points,
        "points_low": points,
        "points_high": points,
        "accuracy": 0.91,
        "seconds": 9.0,
        "seeds": 5,
    }
    return RaceScore(name=name, machine_key=device.describe().machine_key, **usual | others)


def test_what_was_judged_is_a_row_of_the_board(machine):
    against = RACES["quick"]
    recipe = replace(against.reference, name="Ada")
    trained, reference = (
        [(1.0, 0.81), (1.1, 0.82), (0.9, 0.83)],
        [(2.2, 0.8), (2.4, 0.8), (2.1, 0.8)],
    )
    keep_race(racing._scored(recipe, against, trained, reference), against)
    [(kind, [standing])] = leaderboard.board(RaceScore).items()
    assert kind.startswith(f"{100 * against.accuracy:g} % on fashion-mnist")
    assert (standing.row.medal, standing.row.seeds, standing.tries) == ("silver", 3, 1)


def test_a_forged_row_stands_below_what_was_judged_here_and_its_medal_is_what_its_figures_earn(
    machine, tmp_path, monkeypatch
):
    """Anybody can write into a ledger of their own."""
    ledger.add(row_of("Eve", 1e9, medal="platinum"), row_of("Mallory", 1.0, medal="gold"))
    parcel = pack(tmp_path / "class.zip")
    monkeypatch.setenv("LABKIT_ARTIFACTS", str(tmp_path / "instructor"))
    ledger.add(machine, row_of("Ada", MEDALS[-1].speed_up))
    merge(parcel)
    [standings] = leaderboard.board(RaceScore).values()
    assert [(each.row.name, each.row.medal) for each in standings] == [
        ("Ada", "bronze"),
        ("Eve", "gold"),
        ("Mallory", None),
    ]
    assert [each.row.reported_by for each in standings] == [None, "class.zip", "class.zip"]


@pytest.mark.parametrize(
    "forged", ["points = 9e999", "points = 'gold'", "recipe = x'00'", "seconds = -9e999"]
)
def test_a_forged_row_with_what_is_no_number_is_not_taken(machine, tmp_path, monkeypatch, forged):
    ledger.add(row_of("Eve", 2.0))
    with closing(sqlite3.connect(artifacts() / "ledger.sqlite")) as stored, stored:
        stored.execute(f"UPDATE races SET {forged}")
    parcel = pack(tmp_path / "eve.zip")
    monkeypatch.setenv("LABKIT_ARTIFACTS", str(tmp_path / "instructor"))
    with pytest.raises(LabError, match="no parcel"):
        merge(parcel)
    assert leaderboard.board(RaceScore) == {}


def test_a_board_of_one_target_is_apart_from_that_of_another(machine):
    ledger.add(row_of("Ada", 2.0), row_of("Bob", 9.0, race="quick", target=0.8))
    assert {kind[:4]: each[0].row.name for kind, each in leaderboard.board(RaceScore).items()} == {
        "90 %": "Ada",
        "80 %": "Bob",
    }
