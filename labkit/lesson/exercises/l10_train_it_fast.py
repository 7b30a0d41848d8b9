"""Exercises of lesson 10: the least time of a training, a schedule of the rate, and a recipe that trains fast."""

from labkit.lesson.exercises import Exercise, Wrong, expect, expect_close, shorten, untouched

SHARE = 0.4  # of the reference's multiply-adds, which a fast recipe may take
LEEWAY = 0.02  # a single training may end so far below the target: that much is luck


def least_seconds_of(images, layers, operations_per_s, bytes_per_s):
    least = 0.0
    for place, (multiply_adds, moved) in enumerate(layers):
        passes = 3 if place else 2
        least += passes * max(2 * multiply_adds / operations_per_s, moved / bytes_per_s)
    return images * least


def verify_least_seconds_of(answer):
    answer = untouched(answer)
    machine = 47e9, 11e9  # operations and bytes per second: 4.27 operations take as long as a byte
    cases = {
        "one layer that computes for longer than it moves": (1, [(7e6, 31e3)]),
        "one layer that moves for longer than it computes": (1, [(23e3, 9e5)]),
        "two layers, both computing": (1, [(3e6, 11e3), (5e6, 13e3)]),
        "two layers, both moving": (1, [(3e3, 11e5), (5e3, 13e5)]),
        "a layer that moves, then one that computes": (7, [(3e3, 8e5), (9e6, 12e3)]),
        "a layer that computes, then one that moves, for 1,300 images": (1300, [(9e6, 12e3), (3e3, 8e5), (4e6, 5e5)]),
        "a first layer that only moves, then one that computes": (3, [(0, 8e5), (9e6, 12e3)]),
        "two layers with the same numbers, of which the second makes three passes": (11, [(7e6, 31e3), (7e6, 31e3)]),
    }
    for case, (images, layers) in cases.items():
        found = answer(images, list(layers), *machine)
        expect_close(found, least_seconds_of(images, layers, *machine), f"{case}: the least seconds")


def triangle(step, steps, peak, last):
    if step < peak:
        return (step + 1) / (peak + 1)
    return 1 + (last - 1) * (step - peak) / max(steps - 1 - peak, 1)


def verify_triangle(answer):
    cases = {"a peak on the way": (11, 3, 0.07), "no warm-up": (6, 0, 0.0), "the peak at the end": (5, 4, 0.3)}
    cases |= {"one step": (1, 0, 0.4), "two steps": (2, 0, 0.25), "a fall of one step": (7, 5, 0.2)}
    for case, (steps, peak, last) in cases.items():
        for step in range(steps):
            where = "before the peak" if step < peak else "at the peak" if step == peak else "after the peak"
            where = "the last step" if step == steps - 1 > peak else where
            told = f"{case} (steps {steps}, peak {peak}, last {last}), step {step}, {where}"
            found = answer(step, steps, peak, last)
            wanted = triangle(step, steps, peak, last)
            if wanted == 0:
                expect(isinstance(found, (int, float)) and abs(found) < 1e-9, f"{told}: expected 0, found {found}.")
            else:
                expect_close(found, wanted, told)


fast_recipe = {
    "network": "vgg-small",
    "images": 2_560,
    "batch": 64,
    "optimizer": "adamw",
    "learning_rate": 0.01,
    "schedule": "onecycle",
    "size": 16,
    "channels_last": True,
    "update": "fused",
}


def verify_fast_recipe(answer):
    from labkit.errors import LabError
    from labkit.ship import RACES, recipe_of

    expect(isinstance(answer, dict), f"Expected a dict of fields and values, found {shorten(answer)}.")
    try:
        recipe = recipe_of({"name": "yours", **answer})
    except LabError as error:
        raise Wrong(f"{error.what} Expected: {error.expected}.") from None
    against = RACES["quick"]
    share = _tried(_work, recipe) / _work(against.reference)
    expect(
        share <= SHARE,
        f"Its multiply-adds, over all images, are {share:.2f} of the reference's; at most {SHARE:g} are allowed. Which "
        "fields say how many images pass through the network, how large they are, and how wide the network is?",
    )
    right = _tried(_one_training, recipe)
    expect(
        right >= against.accuracy - LEEWAY,
        f"One training got {100 * right:.1f} % right, {100 * against.accuracy:g} % are asked for. Few images have to "
        "teach much: look at the number of steps, and at the rate.",
    )


def _tried(task, recipe):
    """What `task` finds of a recipe; one that cannot be trained is a wrong answer."""
    from labkit.errors import LabError

    try:
        return task(recipe)
    except (LabError, RuntimeError) as error:
        raise Wrong(f"It cannot be trained: {str(error).splitlines()[0]}") from None


def _work(recipe):
    """Multiply-adds of all images on their way forward."""
    import torch

    from labkit import models
    from labkit.measure import multiply_adds
    from labkit.train.feed import side_of

    network, config = models.build(recipe.network)[0], recipe.config
    sides = [side_of(config, epoch, 28) for epoch in range(config.epochs)]
    cost = {side: multiply_adds(network, torch.zeros(1, 1, side, side)) for side in set(sides)}
    return recipe.images // config.batch * config.batch * sum(cost[side] for side in sides)


def _one_training(recipe):
    """The accuracy after one training on public images; compile and 16 bits, which change the time, are left out."""
    from dataclasses import replace

    import torch

    from labkit import models
    from labkit.data import load
    from labkit.device import using_threads
    from labkit.train import accuracy, fit

    images = load("fashion-mnist", "train")
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))
    test, train = images.take(order[:2_000]), images.take(order[2_000:][: recipe.images])
    config = replace(recipe.config, compile=False, amp=None, seed=1)
    with using_threads(1), torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        network = models.build(recipe.network)[0]
        history = fit(network, train, config, device="cpu")
        return accuracy(history.model or network, test, device="cpu", size=config.size)


EXERCISES = (
    Exercise(
        id="least-seconds-of",
        task="The least seconds of a training, from the work of each layer and the machine's two ceilings.",
        difficulty=2,
        minutes=8,
        hint="Each pass of a layer takes the longer of computing and moving. A multiply-add is two operations. Three "
        "passes per layer, but the first layer has only two.",
        reference=least_seconds_of,
        verify=verify_least_seconds_of,
    ),
    Exercise(
        id="triangle",
        task="A schedule: the share of the full rate at each step, up in a straight line and down in another.",
        difficulty=1,
        minutes=6,
        hint="Before the peak the share grows by 1 / (peak + 1) per step. After it, go from 1 to `last` in the steps "
        "that are left; there may be none.",
        reference=triangle,
        verify=verify_triangle,
    ),
    Exercise(
        id="fast-recipe",
        task="A recipe that reaches the target with at most 40 % of the reference's work.",
        difficulty=3,
        minutes=15,
        hint="Begin with what paid alone in section 6: `size` makes each image cheaper, `norm_momentum` lets fewer "
        "do. Then lower `images` until the target is just reached.",
        reference=fast_recipe,
        verify=verify_fast_recipe,
    ),
)
