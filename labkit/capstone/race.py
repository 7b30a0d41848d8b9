"""The judge of lesson 11: trains recipes anew, with new seeds and splits, and measures the time.

This returns a list with a `Raced` for each recipe:

    race([read_recipe("recipe.toml")], RACES["quick"])
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from labkit import device
from labkit.capstone.order import interval_fields, reason_of, recipe_medal, store_row
from labkit.capstone.recipe import Recipe
from labkit.capstone.training import all_images, train_on, train_once
from labkit.device.child import run_in_child
from labkit.errors import LabError
from labkit.ledger.rows import RaceScore
from labkit.measure.stats import Interval, mean_interval, mean_ratio
from labkit.train.config import TrainConfig

START_S = 120  # seconds of computing in which a process imports, reads the images, and tests
COMPUTE_PER_SECOND = 3  # a training on a GPU computes in several threads at once


@dataclass(frozen=True, kw_only=True)
class Race:
    """The accuracy that a recipe has to reach, and the recipe that it is compared with.

    name       "quick", "lab" or "paper"
    dataset    name of the data set
    accuracy   least mean over the seeds of the accuracy on the test images, 0 to 1
    reference  the reference `Recipe`. A recipe's points are the reference's training time over the
               recipe's training time
    seeds      number of trainings of each recipe, each with a split of its own into training and
               test images
    tested     number of test images in a split
    seconds    most seconds that one training may take
    """

    name: str
    dataset: str
    accuracy: float
    reference: Recipe
    seeds: int
    tested: int
    seconds: int

    def __str__(self):
        return f"{100 * self.accuracy:g} % on {self.dataset}"


def _reference(images, epochs, network="vgg-small", **settings):
    """Return a reference recipe: plain SGD with a constant rate, unless `settings` change that.

    images    number of training images
    settings  fields of a `TrainConfig`
    """
    usual_settings = {
        "optimizer": "sgd",
        "learning_rate": 0.05,
        "schedule": "constant",
        "weight_decay": 5e-4,
    }
    config = TrainConfig(epochs=epochs, batch=128, **usual_settings | settings)
    return Recipe(name="reference", network=network, images=images, config=config)


RACES = {
    "quick": Race(
        name="quick",
        dataset="fashion-mnist",
        accuracy=0.75,
        reference=_reference(5_120, 1),
        seeds=3,
        tested=2_000,
        seconds=100,
    ),
    "lab": Race(
        name="lab",
        dataset="fashion-mnist",
        accuracy=0.90,
        reference=_reference(60_000, 4),
        seeds=5,
        tested=10_000,
        seconds=1_500,
    ),
    "paper": Race(
        name="paper",
        dataset="cifar10",
        accuracy=0.94,
        reference=_reference(
            50_000, 60, "resnet18", schedule="onecycle", learning_rate=0.2, augment=True
        ),
        seeds=5,
        tested=10_000,
        seconds=3_600,
    ),
}


@dataclass(frozen=True)
class Raced:
    """The result of one recipe in a race.

    points      training time of the reference recipe over that of this recipe, an `Interval` over
                the seeds; None where the recipe has no score
    medal       "gold", "silver", "bronze", or None
    accuracy    mean of `accuracies`, an `Interval`; None where a training failed
    seconds     seconds of each training, one per seed
    accuracies  accuracy of each training on its test images, 0 to 1, one per seed
    reason      why the recipe has no score, or None
    """

    name: str
    recipe: Recipe
    points: Interval | None = None
    medal: str | None = None
    accuracy: Interval | None = None
    seconds: tuple = ()
    accuracies: tuple = ()
    reason: str | None = None

    def __str__(self):
        if self.points is None:
            return f"{self.name}: no score. {self.reason}"
        seconds = np.mean(self.seconds)
        right = f"{100 * self.accuracy.median:.1f} % right"
        return (
            f"{self.name}: {self.medal or 'no medal'}, score {self.points}; "
            f"{seconds:.2f} s, {right}"
        )


def race(
    recipes: Sequence[Recipe],
    against: Race,
    *,
    seeds: Sequence[int] | None = None,
    apart: bool = True,
) -> list[Raced]:
    """Train the reference recipe and all other recipes once per seed, and compare their times.

    against  the `Race`: target and reference
    seeds    decide splits, weights and orders; None: drawn now
    apart    True: each training runs in a process of its own. False: all run in this process, which
             saves the starts of the processes. But then a training that crashes, or never ends,
             takes this process with it, so choose False only for your own recipes
    returns  a list of `Raced`, the reference recipe's first. A recipe that fails has no score, and
             the others go on
    Raises   LabError where the reference recipe cannot be trained

    One training runs at a time; for each seed the recipes follow in random order. On a CPU a
    training has one thread. With two threads, which wait for each other, any other program on the
    machine could slow it down tenfold. The clock runs from the first batch to the last, compiling
    included. Tests are not timed.
    """
    if seeds is None:
        seeds = [secrets.randbits(31) for _ in range(against.seeds)]
    recipes = [against.reference, *recipes]
    train = _train_in_child if apart else _train_here

    # One training at a time, in random order for each seed.
    rng = np.random.default_rng(seeds[0])
    trainings: list[list] = [[] for _ in recipes]
    failures: dict[int, str] = {}
    for seed in seeds:
        for number in rng.permutation(len(recipes)):
            if number in failures:
                continue
            try:
                trainings[number].append(train(recipes[number], against, seed))
            except (LabError, OSError) as error:
                failures[number] = reason_of(error)

    # A score for each; without the reference there is none.
    if 0 in failures:
        raise LabError("The reference recipe cannot be trained.", found=failures[0])
    results = []
    for number, recipe in enumerate(recipes):
        if number in failures:
            results.append(Raced(recipe.name, recipe, reason=failures[number]))
        else:
            results.append(_scored(recipe, against, trainings[number], trainings[0]))
    return results


def _train_in_child(recipe, against, seed):
    """Return (seconds, accuracy 0 to 1) of one training in a process of its own.

    Raises  LabError where the training takes longer than the race allows
    """
    train = partial(train_once, recipe, against.dataset, against.tested, int(seed))
    seconds, accuracy = run_in_child(train, START_S + COMPUTE_PER_SECOND * against.seconds)
    if seconds > against.seconds:
        raise LabError(
            f"A training took {seconds:.0f} s, more than the {against.seconds} s that are allowed."
        )
    return seconds, accuracy


def _train_here(recipe, against, seed):
    """Return (seconds, accuracy 0 to 1) of one training in this process.

    Its time is not limited.
    """
    with device.using_threads(1):
        images = all_images(against.dataset)
        return train_on(images, recipe, against.tested, int(seed), device.pick())


def _scored(recipe, against, trainings, reference_trainings):
    """Return the `Raced` of a recipe that was trained with every seed.

    trainings            [(seconds, accuracy)] of the recipe, one pair per seed
    reference_trainings  [(seconds, accuracy)] of the reference recipe, one pair per seed
    """
    seconds = tuple(seconds for seconds, _ in trainings)
    accuracies = tuple(accuracy for _, accuracy in trainings)
    accuracy = mean_interval(accuracies)
    measured = {"accuracy": accuracy, "seconds": seconds, "accuracies": accuracies}
    if accuracy.median < against.accuracy:
        reached = sum(single >= against.accuracy for single in accuracies)
        reason = (
            f"{100 * accuracy.median:.1f} % on average, {100 * against.accuracy:g} "
            "% are asked for: "
            f"{reached} of {len(accuracies)} trainings reach it."
        )
        return Raced(recipe.name, recipe, reason=reason, **measured)
    points = mean_ratio(
        [reference_seconds for reference_seconds, _ in reference_trainings], seconds
    )
    return Raced(recipe.name, recipe, points, recipe_medal(points.median), **measured)


def keep_race(raced: Raced, against: Race) -> RaceScore:
    """Write a `Raced` to the ledger as a row of the leaderboard. Returns the row, a `RaceScore`."""
    return store_row(
        RaceScore,
        None,
        name=raced.name,
        medal=raced.medal,
        race=against.name,
        dataset=against.dataset,
        target=against.accuracy,
        device=device.kind(device.pick()),
        reason=raced.reason,
        seconds=float(np.mean(raced.seconds)) if raced.seconds else None,
        seeds=len(raced.seconds),
        recipe=raced.recipe.as_json(),
        **interval_fields("points", raced.points),
        **interval_fields("accuracy", raced.accuracy),
    )
