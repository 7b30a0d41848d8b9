"""Exercises of lesson 15: points lost, a magnitude mask, gradual pruning, k-means, decoding a
Huffman stream.
"""

import random

import numpy as np
import torch

from labkit.lesson.exercises import (
    Exercise,
    Wrong,
    expect,
    expect_close,
    non_contiguous_input,
    shorten,
    untouched,
)

TORCH = "import torch"
NUMPY = "import numpy as np"

# --- points lost ----------------------------------------------------------------------------------


def points_lost(before, after):
    lost, won = (before & ~after).sum(), (after & ~before).sum()
    middle, reach = lost - won, 2 * np.sqrt(lost + won + 1)
    return tuple(100 * count / len(before) for count in (middle - reach, middle, middle + reach))


POINTS_CASES = {  # {name: (images, of them lost, won, wrong in both)}
    "the example by hand, 1,000 images, 12 lost and 4 won": (1000, 12, 4, 80),
    "200 images, none lost and none won": (200, 0, 0, 20),
    "500 images, 3 lost and 12 won": (500, 3, 12, 0),
    "50 images, 30 lost and none won": (50, 30, 0, 5),
}


def verify_points_lost(answer):
    answer = untouched(answer)
    for name, (count, lost, won, wrong) in POINTS_CASES.items():
        numbers = np.random.default_rng(0).permutation(count)
        before, after = np.ones(count, bool), np.ones(count, bool)
        after[numbers[:lost]] = False
        before[numbers[lost : lost + won]] = False
        before[numbers[lost + won :][:wrong]] = after[numbers[lost + won :][:wrong]] = False
        found = answer(before, after)
        three = isinstance(found, (tuple, list, np.ndarray)) and len(found) == 3
        expect(three, f"{name}: expected (low, points, high), found {shorten(found)}.")
        parts = ("low", "the points lost", "high")
        for part, expected, number in zip(parts, points_lost(before, after), found, strict=True):
            expect_close(number, expected, f"{name}: {part}", tolerance=1e-6)


# --- masks ----------------------------------------------------------------------------------------


def magnitude_mask(weights, sparsity):
    sizes = torch.cat([weight.abs().flatten() for weight in weights])
    remaining = len(sizes) - round(sparsity * len(sizes))
    joined = torch.zeros(len(sizes), dtype=torch.bool)
    joined[sizes.topk(remaining).indices] = True
    parts = joined.split([weight.numel() for weight in weights])
    return [part.reshape(weight.shape) for part, weight in zip(parts, weights, strict=True)]


def verify_magnitude_mask(answer):
    answer, chance = untouched(answer), torch.Generator().manual_seed(0)
    layers = [
        size * torch.randn(shape, generator=chance)
        for size, shape in ((1, (8, 3, 3, 3)), (0.1, (20, 5)))
    ]
    ties = [torch.tensor([[0.5, -0.5], [0.5, -0.5]]), torch.tensor([0.5, 0.5, 2.0, -0.1])]
    cases = {
        "two layers, one with weights ten times as large": (layers, (0.5, 0.9, 0.25, 0.35, 0.33)),
        "three layers, magnitudes that differ by little": (
            [1 + 1e-4 * torch.rand(shape, generator=chance) for shape in ((3, 5), (2, 4, 3), (3,))],
            (0.25, 0.61),
        ),
        "eight weights, six of which have the same magnitude": (ties, (0.25, 0.5, 0.75)),
        "two layers, of which nothing or everything goes": (layers, (0.0, 1.0)),
        "one layer": (layers[:1], (0.4,)),
        "two layers, one of them transposed": ([layers[1].T, layers[0]], (0.45,)),
        "two layers with two zeros among six weights": (
            [torch.tensor([0.0, 1.0, -2.0, 3.0]), torch.tensor([-0.5, 0.0])],
            (0.2, 0.3, 0.5),
        ),
    }
    for case, (weights, shares) in cases.items():
        for sparsity in shares:
            with non_contiguous_input(case, *weights):
                masks = answer(list(weights), sparsity)
            check_masks(f"{case}, sparsity {sparsity:g}", weights, sparsity, masks)


def check_masks(case, weights, sparsity, masks):
    expect(
        isinstance(masks, (list, tuple)) and len(masks) == len(weights),
        f"{case}: expected a list of {len(weights)} mask{'s' * (len(weights) != 1)}, found "
        f"{shorten(masks)}.",
    )
    for mask, weight in zip(masks, weights, strict=True):
        right = isinstance(mask, torch.Tensor) and mask.shape == weight.shape
        expect(
            right,
            f"{case}: expected a mask as a torch tensor of shape {tuple(weight.shape)}, found "
            f"{shorten(mask)}.",
        )
        expect(
            mask.dtype == torch.bool,
            f"{case}: a mask holds True and False: expected torch.bool, found {mask.dtype}.",
        )
    keep, sizes = (torch.cat([each.flatten() for each in several]) for several in (masks, weights))
    sizes = sizes.abs()
    gone, wanted = int((~keep).sum()), round(sparsity * len(sizes))
    expect(
        gone == wanted,
        f"{case}: {wanted} of the {len(sizes)} weights should go, your masks remove {gone}.",
    )
    if 0 < gone < len(sizes):
        largest, smallest = float(sizes[~keep].max()), float(sizes[keep].min())
        expect(
            largest <= smallest,
            f"{case}: your masks remove a weight of magnitude {largest:.3g} and keep one of "
            f"{smallest:.3g}.",
        )


# --- gradual pruning ------------------------------------------------------------------------------


def prune_gradually(weights, optimizer, loss, batches, choose, final):
    masks = [weight != 0 for weight in weights]
    for step, (images, labels) in enumerate(batches, start=1):
        optimizer.zero_grad()
        loss(images, labels).backward()
        optimizer.step()
        for weight, mask in zip(weights, masks, strict=True):
            weight.data *= mask  # back to zero, where the optimizer has moved it
        part = min(1, 2 * step / len(batches))  # of the way to the final sparsity
        chosen = choose(weights, final * (1 - (1 - part) ** 3))
        masks = [mask & new for mask, new in zip(masks, chosen, strict=True)]
        for weight, mask in zip(weights, masks, strict=True):
            weight.data *= mask


MAKERS = {
    "SGD with momentum": lambda weights: torch.optim.SGD(weights, lr=0.05, momentum=0.9),
    "AdamW": lambda weights: torch.optim.AdamW(weights, lr=0.02, weight_decay=0.1),
}
GRADUAL_CASES = {  # {name: (optimizer, steps, final sparsity, share that is zero before)}
    "SGD with momentum": ("SGD with momentum", 12, 0.75, 0.0),
    "AdamW": ("AdamW", 9, 0.9, 0.0),
    "AdamW, a third of the weights already zero": ("AdamW", 12, 0.5, 1 / 3),
}


def verify_prune_gradually(answer):
    for name, (maker, steps, final, zeros) in GRADUAL_CASES.items():
        expected, found = (
            watched(function, MAKERS[maker], steps, final, zeros)
            for function in (prune_gradually, answer)
        )
        case = f"{name}, {steps} steps to a sparsity of {final:g}"
        expect(
            len(found) == len(expected),
            f"{case}: {steps} losses expected, one for each batch, found {len(found) - 1}.",
        )
        for step, (right, yours) in enumerate(zip(expected, found, strict=True)):
            compare_weights(f"{case}, after {step} step{'s' * (step != 1)}", right, yours)
    check_choose(answer)


def magnitudes(weights, sparsity):
    return magnitude_mask([weight.detach() for weight in weights], sparsity)


def small_problem(zeros=0.0):
    """(weights, loss, batches): two layers of 30 and 12 weights, of which a share is zero, and
    batches of 16.
    """
    chance = torch.Generator().manual_seed(3)
    weights = [
        torch.nn.Parameter(torch.randn(shape, generator=chance)) for shape in ((3, 10), (4, 3))
    ]
    for weight, mask in zip(weights, magnitudes(weights, zeros), strict=True):
        weight.data *= mask
    images = torch.randn(12, 16, 10, generator=chance)
    labels = torch.randn(12, 16, 4, generator=chance)

    def loss(images, labels):
        return ((images @ weights[0].T).tanh() @ weights[1].T - labels).square().mean()

    return weights, loss, list(zip(images, labels, strict=True))


def joined(weights):
    return torch.cat([weight.detach().flatten() for weight in weights])


def watched(function, make_optimizer, steps, final, zeros):
    """The weights at each call of the loss and at the end, (42,) each, as `function` trains
    them.
    """
    weights, loss, batches = small_problem(zeros)
    seen = []

    def noting_loss(images, labels):
        seen.append(joined(weights))
        expect(
            len(seen) <= 2 * steps,
            f"Your function still asks for a loss after {2 * steps} of {steps} steps.",
        )
        return loss(images, labels)

    function(weights, make_optimizer(weights), noting_loss, batches[:steps], magnitudes, final)
    return [*seen, joined(weights)]


def compare_weights(case, right, yours):
    counts = [int((numbers == 0).sum()) for numbers in (right, yours)]
    expect(
        counts[0] == counts[1],
        f"{case}: {counts[0]} of the 42 weights should be zero, found {counts[1]}.",
    )
    apart = (right - yours).abs() * ((right != 0) & (yours != 0))  # weights that stay in both
    worst, place = float(apart.max()), apart.argmax()
    expect(
        worst <= 1e-4,
        f"{case}: the number of zeros is right, but a weight that stays should be "
        f"{right[place]:.4g}, found "
        f"{yours[place]:.4g}. Look at the training step: zero_grad, loss(images, "
        "labels).backward(), optimizer.step(), "
        "once each, in this order, with the next batch each time.",
    )
    same = bool(((right == 0) == (yours == 0)).all())
    expect(
        same,
        f"{case}: the number of zeros is right, but they are not where the smallest weights were.",
    )


def check_choose(answer):
    """It is `choose` that decides: one that takes the largest first, and finds the gradients of
    the step.
    """
    weights, loss, batches = small_problem()
    start, sparsities = joined(weights), []

    def largest_first(weights, sparsity):
        expect(
            all(weight.grad is not None and bool(weight.grad.any()) for weight in weights),
            "When you call choose, the gradients of this step should still be there.",
        )
        sparsities.append(sparsity)
        turned = [torch.where(weight == 0, 0, 1 / weight.abs()) for weight in weights]
        return magnitudes(turned, sparsity)

    answer(weights, torch.optim.SGD(weights, lr=1e-6), loss, batches[:4], largest_first, 0.5)
    expected = [0.4375, 0.5, 0.5, 0.5]  # 0.5 * (1 - (1 / 2)^3) halfway up, then the end
    expect(
        len(sparsities) == 4 and np.allclose(sparsities, expected),
        f"4 steps to 0.5: choose should be called with {expected}, found {sparsities}.",
    )
    gone = joined(weights) == 0
    right = int(gone.sum()) == 21 and float(start[gone].abs().min()) >= float(
        start[~gone].abs().max()
    )
    expect(
        right,
        "With a `choose` that takes the largest weights first, others went: use the "
        "masks that it returns.",
    )


# --- k-means --------------------------------------------------------------------------------------


def k_means(numbers, count, rounds=30):
    centroids = torch.linspace(numbers.min(), numbers.max(), count)
    for _ in range(rounds):
        middles = (centroids[1:] + centroids[:-1]) / 2
        nearest = torch.bucketize(numbers, middles)
        for index in nearest.unique():
            centroids[index] = numbers[nearest == index].mean()
    return centroids, nearest


def verify_k_means(answer):
    answer, chance = untouched(answer), torch.Generator().manual_seed(2)
    clusters = torch.cat(
        [middle + 0.1 * torch.randn(40, generator=chance) for middle in (-2.0, -1.0, 0.5, 3.0)]
    )
    cases = {
        "0, 1, 2, 10, 11 and two centroids": (torch.tensor([0.0, 1.0, 2.0, 10.0, 11.0]), 2),
        "160 numbers in four clusters, four "
        "centroids": (clusters[torch.randperm(160, generator=chance)], 4),
        "two clusters far apart and five centroids, some of which get no number": (
            torch.tensor([-1.0, -1.1, -0.9, 9.0, 9.2]), 5,
        ),
        "300 numbers, eight centroids": (torch.randn(300, generator=chance), 8),
        "equal numbers, three centroids": (torch.full((6,), 2.5), 3),
        "one centroid": (torch.tensor([1.0, 2.0, 6.0]), 1),
    }  # fmt: skip
    for case, (numbers, count) in cases.items():
        found = answer(numbers, count, 200)
        expect(
            isinstance(found, (tuple, list)) and len(found) == 2,
            f"{case}: expected two tensors, found {shorten(found)}.",
        )
        check_clusters(case, numbers, count, *found)


def check_clusters(case, numbers, count, centroids, nearest):
    for name, tensor, length in (
        ("centroids", centroids, count),
        ("indices", nearest, len(numbers)),
    ):
        right = isinstance(tensor, torch.Tensor) and tensor.shape == (length,)
        expect(right, f"{case}: expected {length} {name}, found {shorten(tensor)}.")
    whole = not nearest.is_floating_point() and bool(((nearest >= 0) & (nearest < count)).all())
    expect(
        whole,
        f"{case}: an index is a whole number from 0 to {count - 1}, found {shorten(nearest)}.",
    )
    expect(
        bool(centroids.isfinite().all()),
        f"{case}: a centroid is {centroids}. What is the mean of no number?",
    )
    expected, _ = k_means(numbers, count, rounds=200)
    off = float((centroids - expected).abs().max())
    expect(
        off <= 1e-3,
        f"{case}: expected the centroids {rounded(expected)}, found {rounded(centroids)}.",
    )
    distances = (numbers[:, None] - centroids).abs()
    too_far = distances.gather(1, nearest[:, None].long())[:, 0] - distances.min(1).values
    worst = int(too_far.argmax())
    expect(
        float(too_far[worst]) <= 1e-3,
        f"{case}: {numbers[worst]:.3g} was given the centroid {centroids[nearest[worst]]:.3g}; "
        "another one is nearer.",
    )


def rounded(numbers):
    return [round(number, 3) for number in numbers.tolist()]


# --- Huffman --------------------------------------------------------------------------------------


def decode_huffman(bits, codes, count):
    symbol_of = {code: symbol for symbol, code in codes.items()}
    symbols, code = [], ""
    for bit in bits:
        code += bit
        if code in symbol_of and len(symbols) < count:
            symbols.append(symbol_of[code])
            code = ""
    return symbols


def verify_decode_huffman(answer):
    answer, chance = untouched(answer), random.Random(5)
    books = {
        "codes of one to three bits": {7: "0", 3: "10", 0: "110", 12: "111"},
        "two symbols": {0: "0", 1: "1"},
        "codes of up to seven bits": {n: "1" * n + "0" for n in range(7)} | {7: "1" * 7},
        "codes of up to twenty bits": {n: "0" * n + "1" for n in range(20)} | {99: "0" * 20},
        "letters as symbols": {"a": "00", "b": "01", "c": "100", "d": "101", "e": "11"},
    }
    for case, codes in books.items():
        for count in (0, 1, 5, 200, 3_000):
            symbols = chance.choices(list(codes), k=count)
            bits = "".join(codes[symbol] for symbol in symbols)
            fill = {"two symbols": "", "codes of up to seven bits": "1"}.get(case, "0")
            padded = bits + fill * (-len(bits) % 8 if count else 8)  # a file has whole bytes
            try:
                found = answer(padded, dict(codes), count)
            except RecursionError:
                raise Wrong(
                    f"{case}, {count} symbols: your function calls itself too often. Python "
                    "allows about 1,000 calls "
                    "inside each other; a file has many more symbols. Use a loop."
                ) from None
            expect(
                isinstance(found, list),
                f"{case}: expected a list of symbols, found {shorten(found)}.",
            )
            what = (
                f"{case}, {count} symbols in {len(padded)} bits (the last "
                f"{len(padded) - len(bits)} fill a byte)"
            )
            expect(len(found) == count, f"{what}: you found {len(found)} symbols.")
            first = next((place for place in range(count) if found[place] != symbols[place]), None)
            if first is not None:
                raise Wrong(
                    f"{what}: symbol {first} is {symbols[first]!r}, you found {found[first]!r}."
                )


EXERCISES = (
    Exercise(
        id="loss-with-interval",
        task="Say how many points of accuracy were lost, with an interval for other images.",
        difficulty=1,
        minutes=5,
        hint="With arrays of True and False, `before & ~after` is where a right answer was lost. "
        "Count with .sum().",
        reference=points_lost,
        verify=verify_points_lost,
        imports=NUMPY,
    ),
    Exercise(
        id="magnitude-mask",
        task="Mark which weights of several layers stay when a share of all of them goes, the "
        "smallest first.",
        difficulty=2,
        minutes=7,
        hint="Join the magnitudes of all layers, sort them, remove the first so many; then split "
        "them again.",
        reference=magnitude_mask,
        verify=verify_magnitude_mask,
        imports=TORCH,
    ),
    Exercise(
        id="prune-gradually",
        task="Train a network while its sparsity rises by the cubic schedule; what "
        "has gone stays zero.",
        difficulty=3,
        minutes=15,
        hint="Begin with the masks `weight != 0`. After optimizer.step(), multiply each weight by "
        "its mask, for "
        "momentum has moved the zeros; then call choose, join old and new masks by `&`, and "
        "multiply again. To "
        "change a weight in place: `weight.data *= mask`.",
        reference=prune_gradually,
        verify=verify_prune_gradually,
    ),
    Exercise(
        id="k-means",
        task="Find the few values that stand best for many numbers.",
        difficulty=2,
        minutes=9,
        hint="The border between two neighbouring centroids is their middle: "
        "torch.bucketize(numbers, middles) finds "
        "the nearest one. Then move each centroid to the mean of its numbers; one "
        "without numbers stays.",
        reference=k_means,
        verify=verify_k_means,
        imports=TORCH,
    ),
    Exercise(
        id="decode-huffman",
        task="Turn a stream of bits back into the symbols it stands for.",
        difficulty=2,
        minutes=8,
        hint="Collect bits until they are a code; note its symbol, and begin again with no bits. "
        "Stop after `count`.",
        reference=decode_huffman,
        verify=verify_decode_huffman,
    ),
)
