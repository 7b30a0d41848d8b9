"""Seconds to an accuracy: the reference, a standard recipe and the course's best, one network,
trained in turn.

    python benchmarks/speedrun.py [--quick] [--seeds 3] [--runs 3]

Full: to 90 % of Fashion-MNIST, two to four minutes per seed and run on a quiet core. Quick: to 75
%, 15 s per run. Each recipe is as short as its mean accuracy allows (tried on other seeds). Each
run draws other seeds: do the intervals of all runs say the same of the two targets?
"""

import argparse

import numpy as np
from figures import Figures

from labkit.capstone.race import RACES, race
from labkit.capstone.recipe import recipe_of
from labkit.lesson.verdicts import Bounds, of_claim, weigh
from labkit.measure.stats import mean_ratio

# SGD with momentum, a rate of 0.1 down a cosine, batch 128, random crop and flip: main.py of
# github.com/kuangliu/pytorch-cifar, with fewer epochs
STANDARD = {
    "optimizer": "sgd",
    "momentum": 0.9,
    "learning_rate": 0.1,
    "weight_decay": 5e-4,
    "schedule": "cosine",
}
STANDARD |= {"batch": 128, "augment": True}
BEST = {
    "optimizer": "adamw",
    "update": "fused",
    "learning_rate": 0.01,
    "schedule": "onecycle",
    "batch": 64,
}
BEST |= {"channels_last": True}
LENGTHS = {  # of a race: what makes each recipe as long as it must be
    "lab": ({"images": 60_000, "epochs": 3}, {"images": 48_000, "label_smoothing": 0.1}),
    "quick": ({"images": 5_376}, {"images": 2_560, "size": 16}),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="an easier target, 15 s per run")
    parser.add_argument(
        "--seeds", type=int, default=3, help="trainings of each recipe; an interval takes three"
    )
    parser.add_argument("--runs", type=int, default=3, help="how often all of it is done")
    options, figures, said = parser.parse_args(), Figures(), []
    against = RACES["quick" if options.quick else "lab"]
    for number in range(1, options.runs + 1):
        figures.part(f"speedrun_{number}", speedrun, against, options.seeds, said)
    figures.add("different_verdicts", len(set(said)), at_most=1)
    figures.exit()


def speedrun(figures, against, count, said):
    """Train all three in turn; the ratios of their seconds.

    What their intervals say of the targets goes to `said`.
    """
    shared = {"network": against.reference.network}
    both = zip(("standard", "best"), (STANDARD, BEST), LENGTHS[against.name], strict=True)
    recipes = [recipe_of({"name": name} | shared | how | length) for name, how, length in both]
    seeds = np.random.SeedSequence().generate_state(count) >> 1
    reference, standard, best = race(recipes, against, seeds=[int(each) for each in seeds])
    for each in (reference, standard, best):
        seconds, right = (
            np.mean(each.seconds or [np.nan]),
            100 * np.mean(each.accuracies or [np.nan]),
        )
        print(f"# {each.name}: {seconds:.1f} s, {right:.2f} % right; {each.recipe.as_json()}")
        # a miss is published as a miss
        figures.add(f"{each.name}_right", right, at_least=100 * against.accuracy, unit="%")
    found = []
    for other, least in ((reference, 3), (standard, 2)):
        ratio = mean_ratio(other.seconds, best.seconds) if other.seconds and best.seconds else None
        figures.add(f"best_against_{other.name}", ratio and ratio.mean, at_least=least, unit="x")
        verdict, _ = of_claim(weigh(ratio), Bounds(at_least=least))
        found.append(verdict)
        print(f"# {ratio}: {verdict}")
    said.append(tuple(found))


if __name__ == "__main__":
    main()
