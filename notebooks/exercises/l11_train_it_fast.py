"""Exercises of lesson 11: two recipes, an average of weights, statistics counted anew, and a
length that is safe.
"""

import copy
import math

import numpy as np
import torch
from torch import nn

from labkit.lesson.exercises import Exercise, Wrong, expect, expect_close, shorten, untouched

SHARE = 0.4  # of the reference's multiply-adds, which a fast recipe may take
LEEWAY = 0.02  # a single training may end so far below the target: that much is luck


# --- recipes ---

first_recipe = {
    "network": "vgg-small",
    "images": 2_048,
    "batch": 128,
    "optimizer": "adamw",
    "learning_rate": 0.003,
    "schedule": "onecycle",
    "channels_last": True,
}


def verify_first_recipe(answer):
    """An open task: any recipe that can be trained passes."""
    _require_trainable(_recipe_of(answer))


fast_recipe = {
    "network": "vgg-small",
    "images": 2_048,
    "batch": 64,
    "optimizer": "sgd",
    "learning_rate": 0.05,
    "weight_decay": 5e-4,
    "schedule": "constant",
    "size": 16,
    "channels_last": True,
    "norm_momentum": 0.4,
    "ema": 0.9,
}


def verify_fast_recipe(answer):
    from labkit.capstone.race import RACES

    recipe = _recipe_of(answer)
    against = RACES["quick"]
    share = _tried(_work, recipe) / _work(against.reference)
    expect(
        share <= SHARE,
        f"Its multiply-adds, over all images, are {share:.2f} of the reference's; at most "
        f"{SHARE:g} are allowed. Which "
        "fields say how many images pass through the network, how large they are, and how wide "
        "the network is?",
    )
    right = _tried(_one_training, recipe)
    expect(
        right >= against.accuracy - LEEWAY,
        f"One training got {100 * right:.1f} % right, {100 * against.accuracy:g} % are asked for. "
        "Few images have to "
        "teach much: look at the number of steps, and at the rate.",
    )


def _recipe_of(answer):
    """The `Recipe` of a dict of fields; one that is none is a wrong answer."""
    from labkit.capstone.recipe import recipe_of
    from labkit.errors import LabError

    expect(
        isinstance(answer, dict), f"Expected a dict of fields and values, found {shorten(answer)}."
    )
    try:
        return recipe_of({"name": "yours", **answer})
    except LabError as error:
        raise Wrong(f"{error.what} Expected: {error.expected}.") from None


def _tried(task, recipe):
    """What `task` finds of a recipe; one that cannot be trained is a wrong answer."""
    from labkit.errors import LabError

    try:
        return task(recipe)
    except (LabError, RuntimeError) as error:
        raise Wrong(f"It cannot be trained: {str(error).splitlines()[0]}") from None


def _work(recipe):
    """Multiply-adds of all images on their way forward."""
    from labkit import models
    from labkit.measure import multiply_adds
    from labkit.train.feed import side_of

    network, config = models.build(recipe.network)[0], recipe.config
    sides = [side_of(config, epoch, 28) for epoch in range(config.epochs)]
    cost = {side: multiply_adds(network, torch.zeros(1, 1, side, side)) for side in set(sides)}
    return recipe.images // config.batch * config.batch * sum(cost[side] for side in sides)


def _require_trainable(recipe):
    """Raise `Wrong` unless two steps of a recipe can be trained."""
    from dataclasses import replace

    _tried(_one_training, replace(recipe, images=max(2 * recipe.config.batch, 512)))


def _one_training(recipe):
    """The accuracy after one training on public images; compile and 16 bits, which change the
    time, are left out.
    """
    from dataclasses import replace

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


# --- batch norm's statistics ---


def recounted(network, batches):
    network = copy.deepcopy(network).train()
    for layer in network.modules():
        if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
            layer.reset_running_stats()
            layer.momentum = None
    with torch.no_grad():
        for images in batches:
            network(images)
    return network.eval()


def verify_recounted(answer):
    """On small networks with batch norm of one and of two dimensions, whose statistics are far
    off.
    """
    random = torch.Generator().manual_seed(0)
    flat = [3 + 2 * torch.randn(40, 5, generator=random) for _ in range(3)]
    square = [torch.randn(16, 2, 6, 6, generator=random) - 1 for _ in range(2)]
    cases = {
        "batch norm after a linear layer, three batches": (_flat_network(), flat),
        "batch norm after a convolution, two batches": (_square_network(), square),
    }
    for case, (network, batches) in cases.items():
        before = copy.deepcopy(network.state_dict())
        found = answer(network, list(batches))
        expect(isinstance(found, nn.Module), f"{case}: return the network; found {shorten(found)}.")
        expect(
            found is not network,
            f"{case}: return a copy: the network that was given has to stay as it is.",
        )
        same = all(torch.equal(before[name], value) for name, value in network.state_dict().items())
        expect(same, f"{case}: the network that was given was changed; work on a copy.")
        expect(
            not found.training, f"{case}: the copy is still in training mode; return it in .eval()."
        )
        weights = zip(found.parameters(), network.parameters(), strict=True)
        expect(
            all(map(torch.equal, *zip(*weights, strict=True))),
            f"{case}: the weights should stay as they are.",
        )
        expected = recounted(network, batches)
        for name, statistics in expected.named_buffers():
            if "running" in name:
                _expect_statistics(dict(found.named_buffers())[name], statistics, f"{case}: {name}")


def _expect_statistics(found, expected, case):
    apart = float((found - expected).abs().max())
    expect(
        apart < 1e-4,
        f"{case} is off by {apart:.3g}. It should be the plain mean over all batches: forget the "
        "old statistics, and "
        "give every batch the same share (momentum None, not 0.1).",
    )


def _flat_network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))


def _square_network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        layers = (
            nn.Conv2d(2, 3, 3),
            nn.BatchNorm2d(3),
            nn.Dropout(0.0),
            nn.Conv2d(3, 2, 3),
            nn.BatchNorm2d(2),
        )
        return nn.Sequential(*layers).eval()


class EMA:
    def __init__(self, network, decay):
        self.network, self.decay = copy.deepcopy(network), decay

    @torch.no_grad()
    def update(self, network):
        for average, weight in zip(self.network.parameters(), network.parameters(), strict=True):
            average.lerp_(weight, 1 - self.decay)
        for kept, last in zip(self.network.buffers(), network.buffers(), strict=True):
            kept.copy_(last)


def verify_ema(answer):
    """Three updates of a network whose weights and statistics are set by hand."""
    for decay in (0.5, 0.9, 0.0):
        network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        _set_all(network, 1.0)
        average = answer(network, decay)
        expected = 1.0
        for value in (3.0, -2.0, 5.0):
            _set_all(network, value)
            average.update(network)
            expected += (1 - decay) * (value - expected)
            _expect_average(
                average,
                network,
                expected,
                value,
                f"decay {decay:g}, weights 1, then ..., {value:g}",
            )


def _set_all(network, value):
    """Set every weight and every running statistic of a network to a value."""
    with torch.no_grad():
        for weight in network.parameters():
            weight.fill_(value)
        for name, statistics in network.named_buffers():
            statistics.fill_(int(value) if name.endswith("tracked") else value)


def _expect_average(average, network, expected, value, case):
    held = getattr(average, "network", None)
    expect(isinstance(held, nn.Module), "Keep the copy with the averaged weights in self.network.")
    expect(
        held is not network,
        "self.network has to be a copy: it would move with the network that is trained.",
    )
    for name, weight in held.named_parameters():
        found = float(weight.detach().flatten()[0])
        expect_close(found, expected, f"{case}: the averaged {name}", tolerance=1e-5)
    for name, weight in network.named_parameters():
        expect(
            bool((weight == value).all()),
            f"{case}: update changed {name} of the network that is trained.",
        )
    for name, statistics in held.named_buffers():
        if "running" in name:
            found = float(statistics.flatten()[0])
            expect(
                found == value,
                f"{case}: {name} should be copied as it is, {value:g}; found {found:g}.",
            )
    needs_no_gradient = all(weight.grad_fn is None for weight in held.parameters())
    expect(needs_no_gradient, "The average should not be part of a graph: use torch.no_grad().")


# --- how many images are safe ---


def safe_length(lengths, accuracies, target, trainings):
    doublings = np.log2(lengths)
    slope, level = np.polyfit(doublings, accuracies, 1)
    rests = accuracies - (level + slope * doublings)
    spread = math.sqrt((rests**2).sum() / (len(lengths) - 2))
    margin = 1.645 * spread / math.sqrt(trainings)
    return 2 ** ((target + margin - level) / slope)


def verify_safe_length(answer):
    answer = untouched(answer)
    # Five points a doubling; dots two points above and below the line: 1,000 images reach 70 %.
    lengths = 1000 * 2.0 ** np.array([-1.0, -1.0, 0.0, 0.0, 1.0, 1.0])
    accuracies = np.array([67.0, 63.0, 72.0, 68.0, 77.0, 73.0])
    rng = np.random.default_rng(3)
    longer = np.linspace(900, 3100, 12)
    noisy = 11 + 6 * np.log2(longer) + rng.normal(0, 2.2, 12)
    cases = {
        "6 trainings around 1,000 images, judged by 3": (lengths, accuracies, 70.0, 3),
        "the same, another target": (lengths, accuracies, 75.0, 3),
        "the same, judged by 1": (lengths, accuracies, 70.0, 1),
        "the same, judged by 12": (lengths, accuracies, 70.0, 12),
        "12 trainings of 900 to 3,100 images, judged by 5": (longer, noisy, 78.0, 5),
        "the dots on a line": (lengths, 70 + 5 * np.log2(lengths / 1000), 72.0, 3),
    }
    for case, given in cases.items():
        expect_close(answer(*given), safe_length(*given), f"{case}: the images", tolerance=5e-3)


EXERCISES = (
    Exercise(
        id="first-recipe",
        importance=2,
        judged_by="the judge of the last section",
        task="A recipe from what you know so far. There is no right answer: the "
        "judge at the end decides.",
        difficulty=1,
        minutes=5,
        hint="Take the reference, and change what you would change: fewer images, another "
        "optimizer, a schedule.",
        reference=first_recipe,
        verify=verify_first_recipe,
    ),
    Exercise(
        id="recounted",
        importance=3,
        task="The control that decides: the same weights, with batch norm's "
        "statistics counted anew.",
        difficulty=2,
        minutes=8,
        hint="deepcopy, then a loop over .modules(): reset_running_stats(), momentum = None. In "
        ".train() mode a call "
        "counts; in .eval() mode it does not.",
        reference=recounted,
        verify=verify_recounted,
        imports="import copy\n\nimport torch\nfrom torch import nn",
    ),
    Exercise(
        id="EMA",
        importance=3,
        task="An exponential moving average of the weights.",
        difficulty=2,
        minutes=7,
        hint="Two loops with zip, over .parameters() and .buffers(). average.lerp_(weight, 1 - "
        "decay), and "
        "kept.copy_(last).",
        reference=EMA,
        verify=verify_ema,
        imports="import copy\n\nimport torch",
    ),
    Exercise(
        id="safe-length",
        importance=3,
        task="How many images a recipe needs, so that a judge of a few trainings refuses it once "
        "in twenty times.",
        difficulty=3,
        minutes=12,
        hint="np.polyfit(np.log2(lengths), accuracies, 1) is the line. The margin is 1.645 times "
        "the spread of the "
        "dots around it, over the root of the judge's trainings; divide points by the slope to "
        "get doublings.",
        reference=safe_length,
        verify=verify_safe_length,
        imports="import math\n\nimport numpy as np",
    ),
    Exercise(
        id="fast-recipe",
        importance=3,
        task="A recipe that reaches the target with at most 40 % of the reference's work.",
        difficulty=2,
        minutes=12,
        hint="Begin with what paid on top in section 5: `size` makes each image cheaper, "
        "`norm_momentum` lets fewer "
        "do. Then set `images` to the length that is safe.",
        reference=fast_recipe,
        verify=verify_fast_recipe,
    ),
)
