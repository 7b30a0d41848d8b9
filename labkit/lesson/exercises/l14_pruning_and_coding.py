"""Exercises of lesson 14: a magnitude mask, gradual pruning, decoding a Huffman stream."""

import random

import torch

from labkit.lesson.exercises import Exercise, Wrong, expect, in_pieces, shorten, untouched


def magnitude_mask(weights, sparsity):
    import torch

    sizes = torch.cat([weight.abs().flatten() for weight in weights])
    keep = torch.ones(len(sizes), dtype=torch.bool)
    keep[sizes.argsort()[: round(sparsity * len(sizes))]] = False
    parts = keep.split([weight.numel() for weight in weights])
    return [part.reshape(weight.shape) for part, weight in zip(parts, weights, strict=True)]


def verify_magnitude_mask(answer):
    answer, chance = untouched(answer), torch.Generator().manual_seed(0)
    layers = [size * torch.randn(shape, generator=chance) for size, shape in ((1, (8, 3, 3, 3)), (0.1, (20, 5)))]
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
            with in_pieces(case, *weights):
                masks = answer(list(weights), sparsity)
            check_masks(f"{case}, sparsity {sparsity:g}", weights, sparsity, masks)


def check_masks(case, weights, sparsity, masks):
    expect(
        isinstance(masks, (list, tuple)) and len(masks) == len(weights),
        f"{case}: expected a list of {len(weights)} mask{'s' * (len(weights) != 1)}, found {shorten(masks)}.",
    )
    for mask, weight in zip(masks, weights, strict=True):
        right = isinstance(mask, torch.Tensor) and mask.shape == weight.shape
        expect(
            right, f"{case}: expected a mask as a torch tensor of shape {tuple(weight.shape)}, found {shorten(mask)}."
        )
        expect(
            mask.dtype == torch.bool, f"{case}: a mask holds True and False: expected torch.bool, found {mask.dtype}."
        )
    keep, sizes = (torch.cat([each.flatten() for each in several]) for several in (masks, weights))
    sizes = sizes.abs()
    gone, wanted = int((~keep).sum()), round(sparsity * len(sizes))
    expect(gone == wanted, f"{case}: {wanted} of the {len(sizes)} weights should go, your masks remove {gone}.")
    if 0 < gone < len(sizes):
        largest, smallest = float(sizes[~keep].max()), float(sizes[keep].min())
        expect(
            largest <= smallest,
            f"{case}: your masks remove a weight of magnitude {largest:.3g} and keep one of {smallest:.3g}.",
        )


def prune_gradually(weight, loss, optimizer, steps, final):
    import torch

    keep = torch.ones_like(weight, dtype=torch.bool)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss(weight).backward()
        optimizer.step()
        sparsity = final * (1 - (1 - step / steps) ** 3)
        with torch.no_grad():
            sizes = weight.abs().masked_fill(~keep, -1).flatten()  # what is gone comes first
            keep.view(-1)[sizes.argsort()[: round(sparsity * len(sizes))]] = False
            weight *= keep


def verify_prune_gradually(answer):
    makers = {
        "SGD with momentum": lambda weight: torch.optim.SGD([weight], lr=0.05, momentum=0.9),
        "AdamW": lambda weight: torch.optim.AdamW([weight], lr=0.02, weight_decay=0.1),
    }
    for (name, make), (steps, final) in zip(makers.items(), ((12, 0.75), (9, 0.9)), strict=True):
        wanted, found = (watched(function, make, steps, final) for function in (prune_gradually, answer))
        case = f"{name}, {steps} steps to a sparsity of {final:g}"
        expect(len(found) == len(wanted), f"{case}: {steps} losses expected, you asked for {len(found) - 1}.")
        for step, (right, yours) in enumerate(zip(wanted, found, strict=True)):
            compare_weights(f"{case}, after {step} step{'s' * (step != 1)}", right, yours)
    check_equal_magnitudes(answer)


def watched(function, make_optimizer, steps, final):
    """The weight at each call of the loss and at the end, as `function` trains it."""
    chance = torch.Generator().manual_seed(3)
    images = torch.randn(64, 14, generator=chance)
    target = images @ torch.randn(14, 3, generator=chance)
    weight = torch.nn.Parameter(torch.randn(3, 14, generator=chance))
    seen = []

    def loss(given):
        other = given.data_ptr() != weight.data_ptr() and bool((weight != 0).all())
        expect(
            not (seen and other),
            "After a step the given weight has no zeros, and your function asks for the loss of another tensor. Change "
            "the weight in place (`weight.data *= mask`): `weight = weight * mask` makes a new one.",
        )
        seen.append(weight.detach().clone())
        expect(len(seen) <= 2 * steps, f"Your function still asks for a loss after {2 * steps} of {steps} steps.")
        return (images @ given.T - target).square().mean()

    function(weight, loss, make_optimizer(weight), steps, final)
    return [*seen, weight.detach().clone()]


def compare_weights(case, right, yours):
    counts = [int((each == 0).sum()) for each in (right, yours)]
    expect(counts[0] == counts[1], f"{case}: {counts[0]} of the 42 weights should be zero, found {counts[1]}.")
    apart = ((right - yours).abs() * ((right != 0) & (yours != 0))).flatten()  # weights that stay in both
    worst, (found, wanted) = float(apart.max()), (float(each.flatten()[apart.argmax()]) for each in (yours, right))
    expect(
        worst <= 1e-4,
        f"{case}: the number of zeros is right, but a weight that stays should be {wanted:.4g}, found {found:.4g}. "
        "Look at the training step: zero_grad, loss(weight).backward(), optimizer.step(), once each, in this order.",
    )
    same = bool(((right == 0) == (yours == 0)).all())
    expect(same, f"{case}: the number of zeros is right, but they are not where the smallest weights were.")


def check_equal_magnitudes(answer, steps=4, final=0.5):
    """Ten weights of one size that shrink alike: any of them may go, but exactly so many."""
    weight, zeros = torch.nn.Parameter(torch.tensor([[0.5, -0.5, 0.5, 0.5, -0.5]] * 2)), []

    def loss(given):
        zeros.append(int((weight == 0).sum()))
        return given.square().sum()

    answer(weight, loss, torch.optim.SGD([weight], lr=0.1), steps, final)
    wanted = [round(final * (1 - (1 - step / steps) ** 3) * weight.numel()) for step in range(steps + 1)]
    found = [*zeros, int((weight == 0).sum())]
    expect(
        found == wanted,
        f"Ten weights of the same magnitude, {steps} steps to a sparsity of {final:g}: {wanted} of them should be zero "
        f"before the first step and after each, found {found}. The number must be exact: go by rank, not by threshold.",
    )


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
                    f"{case}, {count} symbols: your function calls itself too often. Python allows about 1,000 calls "
                    "inside each other; a file has many more symbols. Use a loop."
                ) from None
            expect(isinstance(found, list), f"{case}: expected a list of symbols, found {shorten(found)}.")
            what = f"{case}, {count} symbols in {len(padded)} bits (the last {len(padded) - len(bits)} fill a byte)"
            expect(len(found) == count, f"{what}: you found {len(found)} symbols.")
            first = next((place for place in range(count) if found[place] != symbols[place]), None)
            if first is not None:
                raise Wrong(f"{what}: symbol {first} is {symbols[first]!r}, you found {found[first]!r}.")


EXERCISES = (
    Exercise(
        id="magnitude-mask",
        task="Mark which weights of several layers stay when a share of all of them goes, the smallest first.",
        difficulty=2,
        minutes=8,
        hint="Join the magnitudes of all layers, sort them, remove the first so many; then split them again.",
        reference=magnitude_mask,
        verify=verify_magnitude_mask,
    ),
    Exercise(
        id="prune-gradually",
        task="Train a weight while its sparsity rises by the cubic schedule; what has gone stays zero.",
        difficulty=3,
        minutes=15,
        hint="Step, then find the new mask among the weights that are left, then multiply the weight by the mask. To "
        "mask only the gradient is not enough: momentum, and Adam's averages, move a weight that has no gradient. "
        "(Weight decay alone would leave a zero a zero.)",
        reference=prune_gradually,
        verify=verify_prune_gradually,
    ),
    Exercise(
        id="decode-huffman",
        task="Turn a stream of bits back into the symbols it stands for.",
        difficulty=2,
        minutes=8,
        hint="Collect bits until they are a code; note its symbol, and begin again with no bits. Stop after `count`.",
        reference=decode_huffman,
        verify=verify_decode_huffman,
    ),
)
