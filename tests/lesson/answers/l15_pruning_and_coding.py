"""Answers to the exercises of lesson 15: wrong ones that must be rejected, right ones written
differently.
"""

import math

import torch

from labkit.lesson.exercises.l15_pruning_and_coding import magnitude_mask


def layer_by_layer(weights, sparsity):
    return [magnitude_mask([weight], sparsity)[0] for weight in weights]


def by_threshold(weights, sparsity):
    """Keeps what is above the largest weight to go: with ties, too many go."""
    sizes = torch.cat([weight.abs().flatten() for weight in weights]).sort().values
    count = round(sparsity * len(sizes))
    return [weight.abs() > (sizes[count - 1] if count else -1) for weight in weights]


def by_quantile(weights, sparsity):
    sizes = torch.cat([weight.abs().flatten() for weight in weights])
    return [weight.abs() >= sizes.quantile(sparsity) for weight in weights]


def off_by_one(weights, sparsity):
    sizes = torch.cat([weight.abs().flatten() for weight in weights])
    ranks = sizes.argsort().argsort() + 1
    keep = ranks >= round(sparsity * len(sizes))
    parts = keep.split([weight.numel() for weight in weights])
    return [part.reshape(weight.shape) for part, weight in zip(parts, weights, strict=True)]


def rounding(to_whole):
    """`magnitude_mask` with another way from a share to a whole number."""

    def answer(weights, sparsity):
        count = sum(weight.numel() for weight in weights)
        return magnitude_mask(weights, to_whole(sparsity * count) / count)

    return answer


def with_their_sign(weights, sparsity):
    everything = torch.cat([weight.flatten() for weight in weights])
    shifted = [weight - everything.min() for weight in weights]
    return magnitude_mask(shifted, sparsity)


def the_other_way(weights, sparsity):
    return [~mask for mask in magnitude_mask(weights, sparsity)]


def pruned_instead_of_masks(weights, sparsity):
    return [
        weight * mask
        for weight, mask in zip(weights, magnitude_mask(weights, sparsity), strict=True)
    ]


def in_place(weights, sparsity):
    masks = magnitude_mask(weights, sparsity)
    for weight, mask in zip(weights, masks, strict=True):
        weight *= mask
    return masks


def by_rank(weights, sparsity):
    sizes = torch.cat([weight.abs().reshape(-1) for weight in weights])
    ranks = torch.empty_like(sizes, dtype=torch.long)
    ranks[sizes.sort(stable=True).indices] = torch.arange(len(sizes))
    keep, masks, start = ranks >= round(sparsity * len(sizes)), [], 0
    for weight in weights:
        masks.append(keep[start : start + weight.numel()].view_as(weight))
        start += weight.numel()
    return masks


def by_topk(weights, sparsity):
    sizes = torch.cat([weight.abs().flatten() for weight in weights])
    gone = sizes.topk(round(sparsity * len(sizes)), largest=False).indices
    keep = torch.full(sizes.shape, True).index_fill(0, gone, False)
    return tuple(
        p.view_as(w) for p, w in zip(keep.split([w.numel() for w in weights]), weights, strict=True)
    )


def gradual(
    schedule=lambda part: 1 - (1 - part) ** 3,
    *,
    rising=0.5,
    from_zero=False,
    undo=True,
    mask_weight=True,
    mask_gradient=False,
    frozen=False,
    forget=False,
    revives=False,
    before_step=False,
    leave_gradients=False,
    uphill=False,
    no_step=False,
    same_batch=False,
    own_choice=False,
    at_the_end=False,
    of_what_is_left=False,
):
    """`prune_gradually` with a choice of mistakes."""

    def answer(weights, optimizer, loss, batches, choose, final):
        masks = [
            torch.ones_like(weight, dtype=torch.bool) if revives else weight != 0
            for weight in weights
        ]
        steps, choose = len(batches), magnitudes if own_choice else choose

        def apply():
            for weight, mask in zip(weights, masks, strict=True):
                weight.data *= mask

        def narrow(step):
            sparsity = final * schedule(min(1, (step - from_zero) / (rising * steps)))
            if of_what_is_left:
                gone = sum(int((~mask).sum()) for mask in masks) / sum(
                    mask.numel() for mask in masks
                )
                sparsity = gone + (1 - gone) * sparsity
            chosen = choose(weights, sparsity)
            if forget:
                return chosen
            return [mask & new for mask, new in zip(masks, chosen, strict=True)]

        for step, batch in enumerate(batches, start=1):
            if before_step:
                masks = narrow(step)
                apply()
            if not leave_gradients:
                optimizer.zero_grad()
            value = loss(*(batches[0] if same_batch else batch))
            (-value if uphill else value).backward()
            if mask_gradient:
                for weight, mask in zip(weights, masks, strict=True):
                    weight.grad *= mask
            if not no_step:
                optimizer.step()
            if undo:
                apply()
            if before_step or (at_the_end and step < steps):
                continue
            if not (frozen and step > 1):
                masks = narrow(step)
            if mask_weight:
                apply()

    return answer


def magnitudes(weights, sparsity):
    return magnitude_mask([weight.detach() for weight in weights], sparsity)


def mask_the_gradient_only(weights, optimizer, loss, batches, choose, final):
    """Each weight is zeroed once, when it goes; then only its gradient is masked, and momentum
    moves it on.
    """
    masks = [weight != 0 for weight in weights]
    for step, batch in enumerate(batches, start=1):
        optimizer.zero_grad()
        loss(*batch).backward()
        for weight, mask in zip(weights, masks, strict=True):
            weight.grad *= mask
        optimizer.step()
        still = [weight.detach() * mask for weight, mask in zip(weights, masks, strict=True)]
        for part, weight in zip(still, weights, strict=True):
            part.grad = weight.grad
        new = choose(still, final * (1 - (1 - min(1, 2 * step / len(batches))) ** 3))
        for weight, mask, chosen in zip(weights, masks, new, strict=True):
            weight.data[mask & ~chosen] = 0
        masks = [mask & chosen for mask, chosen in zip(masks, new, strict=True)]


def rebinding(weights, optimizer, loss, batches, choose, final):
    """Makes new tensors instead of changing those that were given."""
    masks = [weight != 0 for weight in weights]
    for step, batch in enumerate(batches, start=1):
        optimizer.zero_grad()
        loss(*batch).backward()
        optimizer.step()
        sparsity = final * (1 - (1 - min(1, 2 * step / len(batches))) ** 3)
        masks = [mask & new for mask, new in zip(masks, choose(weights, sparsity), strict=True)]
        pruned = [weight * mask for weight, mask in zip(weights, masks, strict=True)]
    return pruned


def only_the_first_layer(weights, optimizer, loss, batches, choose, final):
    gradual()(weights[:1], optimizer, loss, batches, choose, final)


def clears_before_choosing(weights, optimizer, loss, batches, choose, final):
    """Clears the gradients before `choose` can look at them."""

    def choose_without(weights, sparsity):
        optimizer.zero_grad()
        return choose(weights, sparsity)

    gradual()(weights, optimizer, loss, batches, choose_without, final)


def with_gradients_masked_too(weights, optimizer, loss, batches, choose, final):
    gradual(mask_gradient=True)(weights, optimizer, loss, batches, choose, final)


def by_names(weights, optimizer, loss, batches, choose, final):
    """Keeps what is gone as flat positions, and writes zeros there."""
    gone = {
        number: set((weight.flatten() == 0).nonzero()[:, 0].tolist())
        for number, weight in enumerate(weights)
    }

    def zero():
        for number, weight in enumerate(weights):
            weight.data.view(-1)[list(gone[number])] = 0.0

    left = len(batches)
    for images, labels in batches:
        left -= 1
        for weight in weights:
            weight.grad = None
        loss(images, labels).backward()
        optimizer.step()
        zero()
        cube = max(0, 2 * left / len(batches) - 1) ** 3
        for number, mask in enumerate(choose(weights, final - final * cube)):
            gone[number] |= set((~mask.flatten()).nonzero()[:, 0].tolist())
        zero()


def kmeans(
    *,
    rounds=200,
    empty="stay",
    start="range",
    middle="mean",
    order=1,
    index="nearest",
    in_place=False,
):
    """`k_means` with a choice of mistakes."""

    def answer(numbers, count, limit=30):
        lowest, highest = numbers.min(), numbers.max()
        centroids = torch.linspace(lowest, highest, count)
        if start == "spread":
            centroids = numbers.mean() + numbers.std(correction=0) * torch.linspace(-1, 1, count)
        if start == "inside":
            centroids = lowest + (highest - lowest) * (torch.arange(count) + 0.5) / count
        for _ in range(min(rounds, limit)):
            nearest = (numbers[:, None] - centroids).abs().argmin(1)
            for number in range(count):
                mine = numbers[nearest == number]
                if len(mine) or empty == "nan":
                    centroids[number] = (
                        mine.median() if middle == "median" and len(mine) else mine.mean()
                    )
                elif empty == "zero":
                    centroids[number] = 0.0
        nearest = (numbers[:, None] - centroids).abs().argmin(1)
        if index == "values":
            return centroids, centroids[nearest]
        if index == "sorted":
            return centroids, nearest.sort().values
        if in_place:
            numbers[:] = centroids[nearest]
        return (centroids, nearest)[::order]

    return answer


def by_sums(numbers, count, rounds=30):
    """In one go for all centroids, by bincount, in doubles; ends when nothing moves."""
    centroids = torch.linspace(numbers.min(), numbers.max(), count, dtype=torch.double)
    for _ in range(rounds):
        middles = (centroids[1:] + centroids[:-1]) / 2
        nearest = torch.bucketize(numbers.double(), middles)
        sizes = nearest.bincount(minlength=count)
        sums = nearest.bincount(numbers.double(), minlength=count)
        moved = torch.where(sizes > 0, sums / sizes.clamp(min=1), centroids)
        if torch.equal(moved, centroids):
            break
        centroids = moved
    return centroids.float(), nearest


def points(
    *, squared=False, changes=1, signs=1, percent=100, reach=2.0, order=(0, 1, 2), by_right=False
):
    """`points_lost` with a choice of mistakes."""

    def answer(before, after):
        lost, won = int((before & ~after).sum()), int((after & ~before).sum())
        middle = signs * (lost - won)
        half = reach * ((lost + won + changes) ** (1 if squared else 0.5))
        three = [
            percent * count / (before.sum() if by_right else len(before))
            for count in (middle - half, middle, middle + half)
        ]
        return tuple(three[number] for number in order)

    return answer


def two_counts(before, after):
    """As if the images of the two accuracies were not the same: the spread of each share alone."""
    a, b, n = before.mean(), after.mean(), len(before)
    half = 2 * math.sqrt((a * (1 - a) + b * (1 - b)) / n)
    return tuple(100 * (a - b + sign * half) for sign in (-1, 0, 1))


def by_the_difference(before, after):
    differences = before.astype(int) - after.astype(int)
    half = 2 * (abs(differences).sum() + 1) ** 0.5
    total = differences.sum()
    return [
        float(100 * number / differences.size) for number in (total - half, total, total + half)
    ]


def until_the_end(bits, codes, count):
    """Decodes the bits that fill the last byte too."""
    back, symbols, code = {code: symbol for symbol, code in codes.items()}, [], ""
    for bit in bits:
        code += bit
        if code in back:
            symbols.append(back[code])
            code = ""
    return symbols


def of_equal_length(bits, codes, count):
    width, back = max(map(len, codes.values())), {code: symbol for symbol, code in codes.items()}
    pieces = [bits[place * width : (place + 1) * width] for place in range(count)]
    return [back.get(piece, next(iter(codes))) for piece in pieces]


def never_empty(bits, codes, count):
    """Goes on with the bits of the last symbol."""
    back, symbols, code = {code: symbol for symbol, code in codes.items()}, [], ""
    for bit in bits:
        code += bit
        for length in range(1, len(code) + 1):
            if code[-length:] in back and len(symbols) < count:
                symbols.append(back[code[-length:]])
                break
    return symbols


def reversed_bits(bits, codes, count):
    back = {code[::-1]: symbol for symbol, code in codes.items()}
    symbols, place = [], 0
    while len(symbols) < count and place < len(bits):
        length = next((n for n in range(1, 9) if bits[place : place + n] in back), 1)
        symbols.append(back.get(bits[place : place + length], next(iter(codes))))
        place += length
    return symbols


def one_too_few(bits, codes, count):
    return until_the_end(bits, codes, count)[: max(count - 1, 0)]


def by_slices(bits, codes, count):
    symbols, place = [], 0
    while len(symbols) < count:
        for symbol, code in codes.items():
            if bits.startswith(code, place):
                symbols.append(symbol)
                place += len(code)
                break
    return symbols


def by_a_tree(bits, codes, count):
    tree = {}
    for symbol, code in codes.items():
        node = tree
        for bit in code[:-1]:
            node = node.setdefault(bit, {})
        node[code[-1]] = ("leaf", symbol)
    symbols, node, stream = [], tree, iter(bits)
    while len(symbols) < count:
        node = node[next(stream)]
        if isinstance(node, tuple):
            symbols.append(node[1])
            node = tree
    return symbols


def image_by_image(before, after):
    lost = won = 0
    for was, now in zip(before.tolist(), after.tolist(), strict=True):
        lost += was and not now
        won += now and not was
    points = 100 / len(before)
    reach = 2 * math.sqrt(lost + won + 1)
    return points * (lost - won - reach), points * (lost - won), points * (lost - won + reach)


WRONG = {
    "magnitude-mask": {
        "layer by layer": layer_by_layer,
        "rounds down": rounding(int),
        "rounds up": rounding(math.ceil),
        "by a threshold, and ties go with it": by_threshold,
        "by a quantile": by_quantile,
        "one weight too few": off_by_one,
        "the most negative first": with_their_sign,
        "keeps what should go": the_other_way,
        "hands back the weights": pruned_instead_of_masks,
        "changes the weights in place": in_place,
    },
    "prune-gradually": {
        "masks the gradient only": mask_the_gradient_only,
        "a straight schedule": gradual(lambda part: part),
        "rises to the last step, so that nothing heals": gradual(rising=1.0),
        "the cube without the one minus": gradual(lambda part: part**3),
        "counts the steps from 0": gradual(from_zero=True),
        "lets the mask forget, so that weights come back": gradual(forget=True, undo=False),
        "revives what was zero before": gradual(revives=True),
        "prunes before the step": gradual(before_step=True),
        "all at the end": gradual(at_the_end=True),
        "chooses among weights that momentum has revived": gradual(undo=False),
        "chooses, and does not apply": gradual(mask_weight=False),
        "never takes a step": gradual(no_step=True),
        "goes uphill": gradual(uphill=True),
        "the first batch again and again": gradual(same_batch=True),
        "the share of what is left": gradual(of_what_is_left=True),
        "adds up the gradients": gradual(leave_gradients=True),
        "the first mask for ever": gradual(frozen=True),
        "by magnitude, whatever choose says": gradual(own_choice=True),
        "new tensors instead of the given ones": rebinding,
        "only the first layer": only_the_first_layer,
        "clears the gradients before it chooses": clears_before_choosing,
    },
    "k-means": {
        "one round": kmeans(rounds=1),
        "medians": kmeans(middle="median"),
        "the mean of no number": kmeans(empty="nan"),
        "an empty centroid goes to 0": kmeans(empty="zero"),
        "begins inside the range": kmeans(start="inside"),
        "begins within a standard deviation": kmeans(start="spread"),
        "indices first": kmeans(order=-1),
        "values instead of indices": kmeans(index="values"),
        "indices in another order": kmeans(index="sorted"),
        "changes the numbers": kmeans(in_place=True),
    },
    "loss-with-interval": {
        "no root": points(squared=True),
        "without the one change more": points(changes=0),
        "points won": points(signs=-1),
        "a share, not points": points(percent=1),
        "one standard deviation": points(reach=1.0),
        "the middle first": points(order=(1, 0, 2)),
        "of those that were right": points(by_right=True),
        "two accuracies, not paired": two_counts,
    },
    "decode-huffman": {
        "decodes what fills the byte": until_the_end,
        "takes all codes as equally long": of_equal_length,
        "does not begin anew after a symbol": never_empty,
        "reads codes from their end": reversed_bits,
        "stops one too early": one_too_few,
    },
}


def zeros_last(weights, sparsity):
    return magnitude_mask(
        [torch.where(weight == 0, torch.inf, weight) for weight in weights], sparsity
    )


def zeros_always(weights, sparsity):
    masks = magnitude_mask(weights, sparsity)
    return [mask & (weight != 0) for mask, weight in zip(masks, weights, strict=True)]


def one_mask_alone(weights, sparsity):
    masks = magnitude_mask(weights, sparsity)
    return masks[0] if len(masks) == 1 else masks


def views_of_the_weights(weights, sparsity):
    masks = magnitude_mask([weight.view(-1) for weight in weights], sparsity)
    return [mask.view(weight.shape) for mask, weight in zip(masks, weights, strict=True)]


WRONG["magnitude-mask"] |= {
    "views of the weights": views_of_the_weights,
    "weights that are zero already do not count": zeros_last,
    "all that are zero already go": zeros_always,
    "ones and zeros, which the lesson's ~mask refuses": lambda weights, sparsity: [
        mask.float() for mask in magnitude_mask(weights, sparsity)
    ],
    "one mask instead of a list of one": one_mask_alone,
    "the first two layers": lambda weights, sparsity: [
        *magnitude_mask(weights[:2], sparsity), *(torch.ones_like(each, dtype=torch.bool) for each in weights[2:])
    ],
    "a half always rounded up": lambda weights, sparsity: magnitude_mask(
        weights, int(sparsity * sum(map(torch.numel, weights)) + 0.5) / sum(map(torch.numel, weights))
    ),
    "in float16": lambda weights, sparsity: magnitude_mask([each.half() for each in weights], sparsity),
}  # fmt: skip


def decoded(bits, symbol_of, count):
    symbols, code = [], ""
    for bit in bits:
        code += bit
        if symbol_of(code) is not None and len(symbols) < count:
            symbols.append(symbol_of(code))
            code = ""
    return symbols


def until_it_has_enough(bits, codes, count):
    """Asks whether it has enough only after a symbol: for 0 symbols it decodes all."""
    back, symbols, code = {code: symbol for symbol, code in codes.items()}, [], ""
    for bit in bits:
        code += bit
        if code in back:
            symbols.append(back[code])
            code = ""
            if len(symbols) == count:
                break
    return symbols


def a_call_for_each_symbol(bits, codes, count):
    if count == 0:
        return []
    symbol, code = next((symbol, code) for symbol, code in codes.items() if bits.startswith(code))
    return [symbol, *a_call_for_each_symbol(bits[len(code) :], codes, count - 1)]


WRONG["decode-huffman"] |= {
    "calls itself for each symbol": a_call_for_each_symbol,
    "looks at the count after a symbol only": until_it_has_enough,
    "codes of sixteen bits at most": lambda bits, codes, count: decoded(
        bits, {code: symbol for symbol, code in codes.items() if len(code) <= 16}.get, count
    ),
    "codes of eight bits at most": lambda bits, codes, count: decoded(
        bits, {code: symbol for symbol, code in codes.items() if len(code) <= 8}.get, count
    ),
    "whole bytes only": lambda bits, codes, count: decoded(
        bits[: len(bits) // 8 * 8], {code: symbol for symbol, code in codes.items()}.get, count
    ),
}


RIGHT = {
    "magnitude-mask": {
        "by rank": by_rank,
        "by topk": by_topk,
    },
    "prune-gradually": {
        "with the gradient masked too": with_gradients_masked_too,
        "by positions": by_names,
    },
    "k-means": {
        "every number against every centroid": kmeans(),
        "by sums": by_sums,
    },
    "loss-with-interval": {
        "by the difference of two numbers": by_the_difference,
        "image by image": image_by_image,
    },
    "decode-huffman": {
        "by slices": by_slices,
        "by a tree": by_a_tree,
    },
}
