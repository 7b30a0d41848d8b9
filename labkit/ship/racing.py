"""The judge of lesson 10: trains recipes afresh, over seeds and on splits that nobody knows before, and keeps the time.

race([read_recipe("recipe.toml")], RACES["quick"])     # a list of `Raced`
"""

import json
import secrets
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

import numpy as np

from labkit import device
from labkit.errors import LabError
from labkit.ledger.rows import RaceScore
from labkit.measure.stats import Interval, mean_interval, mean_ratio
from labkit.ship._child import PRELOADED, PROCESSES, START_S, Child, reason_of
from labkit.ship.leaderboard import keep
from labkit.ship.recipe import Recipe, medal_of, recipe_of
from labkit.train.config import TrainConfig

PROCESSES.set_forkserver_preload([*PRELOADED, "torch._dynamo"])  # which the first optimizer would import, in each child
MOST_MEMORY = 8 << 30  # bytes that a training may take beyond what it began with, on a CPU


@dataclass(frozen=True, kw_only=True)
class Race:
    """What has to be reached, and what a recipe is compared with.

    accuracy   mean over the seeds, on images that no training saw, 0 to 1
    reference  the `Recipe` whose seconds are divided by those of a submission
    seeds      trainings of each recipe, each on a split of its own
    tested     images of a split that are kept to test on
    seconds    that one training may take
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


_SGD = {"optimizer": "sgd", "learning_rate": 0.05, "schedule": "constant", "weight_decay": 5e-4}


def _reference(images, epochs, network="vgg-small", **others):
    config = TrainConfig(epochs=epochs, batch=128, **_SGD | others)
    return Recipe(name="reference", network=network, images=images, config=config)


RACES = {
    "quick": Race(name="quick", dataset="fashion-mnist", accuracy=0.75, reference=_reference(5_120, 1),
                  seeds=3, tested=2_000, seconds=100),
    "lab": Race(name="lab", dataset="fashion-mnist", accuracy=0.90, reference=_reference(60_000, 4),
                seeds=5, tested=10_000, seconds=1_500),
    "paper": Race(name="paper", dataset="cifar10", accuracy=0.94, seeds=5, tested=10_000, seconds=3_600,
                  reference=_reference(50_000, 60, "resnet18", schedule="onecycle", learning_rate=0.2, augment=True)),
}  # fmt: skip


@dataclass(frozen=True)
class Raced:
    """What the judge says of one recipe.

    points    seconds of the reference recipe over those of this one, an `Interval` over the seeds; None: no score
    medal     "gold", "silver", "bronze", or None
    accuracy  mean over the seeds, an `Interval`; None when a training did not end
    seconds, accuracies  of each seed
    reason    why there is no score, or None
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
        return f"{self.name}: {self.medal or 'no medal'}, score {self.points}; {seconds:.2f} s, {right}"


def race(recipes: Sequence[Recipe], against: Race, *, seeds: Sequence[int] | None = None) -> list[Raced]:
    """Train the reference and every recipe once per seed, in turn: a list of `Raced`, the reference's first.

    against  a `Race`
    seeds    of splits, weights and orders; None: drawn now
    Each recipe has a process of its own, and one trains at a time, in random order; on a CPU with one thread, because
    two that wait for each other are slowed down tenfold by any other program. The clock runs from the first batch to
    the last, compiling included; the tests are not counted. A recipe that fails is out, and stops nobody.
    """
    seeds = [secrets.randbits(31) for _ in range(against.seeds)] if seeds is None else seeds
    recipes = [against.reference, *recipes]
    chance = np.random.default_rng(seeds[0])
    trained: list[list] = [[] for _ in recipes]
    failed: dict[int, str] = {}
    with ExitStack() as stack:
        children = [stack.enter_context(closing(_begun(recipe, against, len(seeds)))) for recipe in recipes]
        for seed in seeds:
            for place in chance.permutation(len(recipes)):
                if place not in failed:
                    try:
                        trained[place].append(_trained(children[place], seed, against))
                    except (LabError, OSError) as error:
                        failed[place] = reason_of(error)
    if 0 in failed:
        raise LabError("The reference recipe cannot be trained.", found=failed[0])
    return [
        Raced(recipe.name, recipe, reason=failed[place])
        if place in failed
        else _scored(recipe, against, trained[place], trained[0])
        for place, recipe in enumerate(recipes)
    ]


def _begun(recipe, against, seeds):
    """A process that waits to train the recipe."""
    child = Child(_train, seeds * 8 * against.seconds)
    child.pipe.send_bytes(json.dumps([recipe.as_json(), against.dataset, against.tested]).encode())
    return child


def _trained(child, seed, against):
    """(seconds, accuracy) of one training in the child."""
    child.pipe.send_bytes(json.dumps(seed).encode())
    said = child.said(against.seconds + START_S)
    seconds = float(said["seconds"])
    if seconds > against.seconds:
        raise LabError(f"A training took {seconds:.0f} s, more than the {against.seconds} s that are allowed.")
    return seconds, float(said["accuracy"])


def _scored(recipe, against, trained, reference):
    """The `Raced` of a recipe that was trained with every seed: (seconds, accuracy) of each, and of the reference's."""
    seconds, accuracies = zip(*trained, strict=True)
    accuracy = mean_interval(accuracies)
    seen = {"accuracy": accuracy, "seconds": seconds, "accuracies": accuracies}
    if accuracy.median < against.accuracy:
        reached = sum(each >= against.accuracy for each in accuracies)
        reason = (
            f"{100 * accuracy.median:.1f} % on average, {100 * against.accuracy:g} % are asked for: "
            f"{reached} of {len(accuracies)} trainings reach it."
        )
        return Raced(recipe.name, recipe, reason=reason, **seen)
    points = mean_ratio([each for each, _ in reference], seconds)
    return Raced(recipe.name, recipe, points, medal_of(points.median), **seen)


def _train(pipe):
    """The life of a process that trains: for each seed it is asked, seconds and accuracy."""
    import torch

    from labkit import models
    from labkit.export import inspection
    from labkit.train import accuracy, fit

    line, dataset, tested = json.loads(pipe.recv_bytes())
    recipe, where = recipe_of({"name": "recipe"} | json.loads(line)), device.pick()
    images = _all_images(dataset)
    if device.kind(where) == "cpu":
        torch.set_num_threads(1)
        inspection.limit_memory(MOST_MEMORY)  # not with a GPU, whose driver reserves far more
    torch.manual_seed(0)
    warm = models.build("cnn-small", like=tuple(images.images.shape[1:]))[0]  # libraries begin before the clock does
    fit(warm, images.subset(512), TrainConfig(batch=128), device=where)
    while True:
        seed = json.loads(pipe.recv_bytes())
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
        test, train = images.take(order[:tested]), images.take(order[tested:][: recipe.images])
        torch.manual_seed(seed)
        network, _ = models.build(recipe.network, classes=len(images.classes), like=tuple(images.images.shape[1:]))
        config = replace(recipe.config, seed=seed % 2**20)
        history = fit(network, train, config, device=where)
        right = accuracy(history.model or network, test, device=where, size=config.size)
        pipe.send_bytes(json.dumps({"seconds": str(history.seconds), "accuracy": str(right)}).encode())


def _all_images(dataset):
    """Training and test images together: what is split anew for each seed."""
    import torch

    from labkit.data import load

    train, test = load(dataset, "train"), load(dataset, "test")
    return replace(train, images=torch.cat([train.images, test.images]), labels=torch.cat([train.labels, test.labels]))


def keep_race(found: Raced, against: Race) -> RaceScore:
    """Write a `Raced` to the ledger as a row of the board; returns the row."""
    return keep(
        RaceScore,
        found,
        race=against.name,
        dataset=against.dataset,
        target=against.accuracy,
        device=device.kind(device.pick()),
        reason=found.reason,
        seconds=float(np.mean(found.seconds)) if found.seconds else None,
        seeds=len(found.seconds),
        recipe=found.recipe.as_json(),
    )
