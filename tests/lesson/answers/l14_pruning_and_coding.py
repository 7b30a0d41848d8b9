"""Answers to the exercises of lesson 14: wrong ones that must be rejected, right ones written differently."""

import math
from heapq import nsmallest

import torch

from labkit.lesson.exercises.l14_pruning_and_coding import magnitude_mask


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
    return [weight * mask for weight, mask in zip(weights, magnitude_mask(weights, sparsity), strict=True)]


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
    return tuple(p.view_as(w) for p, w in zip(keep.split([w.numel() for w in weights]), weights, strict=True))


def smallest(weight, count, keep=None):
    """A new mask without the `count` smallest; what `keep` has dropped stays away."""
    sizes = weight.detach().abs()
    if keep is not None:
        sizes = torch.where(keep, sizes, -torch.ones(()))
    mask = torch.ones_like(sizes, dtype=torch.bool)
    mask.view(-1)[sizes.flatten().argsort()[:count]] = False
    return mask


def pruning(
    schedule=lambda part: 1 - (1 - part) ** 3,
    *,
    from_zero=False,
    mask_weight=True,
    mask_gradient=False,
    frozen=False,
    forget=False,
    before_step=False,
    leave_gradients=False,
):
    """`prune_gradually` with a choice of mistakes."""

    def answer(weight, loss, optimizer, steps, final):
        keep = torch.ones_like(weight, dtype=torch.bool)

        def apply():
            if mask_weight:
                with torch.no_grad():
                    weight.mul_(keep)

        for step in range(steps):
            part = (step if from_zero else step + 1) / steps
            count = round(final * schedule(part) * weight.numel())
            if before_step:
                keep = smallest(weight, count, keep)
                apply()
            if not leave_gradients:
                optimizer.zero_grad()
            loss(weight).backward()
            if mask_gradient:
                weight.grad.mul_(keep)
            optimizer.step()
            if before_step:
                continue
            if forget or not (frozen and step):
                keep = smallest(weight, count, None if forget else keep)
            apply()

    return answer


def mask_the_gradient_only(weight, loss, optimizer, steps, final):
    """Each weight is zeroed once, when it goes; then only its gradient is masked, and momentum moves it on."""
    keep = torch.ones_like(weight, dtype=torch.bool)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss(weight).backward()
        weight.grad.mul_(keep)
        optimizer.step()
        new = smallest(weight, round(final * (1 - (1 - step / steps) ** 3) * weight.numel()), keep)
        with torch.no_grad():
            weight[keep & ~new] = 0
        keep = new


def prune_by_threshold(weight, loss, optimizer, steps, final):
    """Zeros whatever is not above the largest weight to go: with ties, too many."""
    keep = torch.ones_like(weight, dtype=torch.bool)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss(weight).backward()
        optimizer.step()
        count = round(final * (1 - (1 - step / steps) ** 3) * weight.numel())
        with torch.no_grad():
            sizes = weight.abs().masked_fill(~keep, -1)
            keep = sizes > sizes.flatten().sort().values[count - 1]
            weight.mul_(keep)


def training_wrongly(fault):
    """`prune_gradually` with a training step that is not right: the choice of the zeros is."""

    def answer(weight, loss, optimizer, steps, final):
        keep = torch.ones_like(weight, dtype=torch.bool)
        for step in range(1, steps + 1):
            weight.grad = None
            (-loss(weight) if fault == "uphill" else loss(weight)).backward()
            if fault == "own step":
                weight.data -= 0.05 * weight.grad
            elif fault != "no step":
                optimizer.step()
            keep = smallest(weight, round(final * (1 - (1 - step / steps) ** 3) * weight.numel()), keep)
            weight.data.mul_(keep)

    return answer


def prune_at_the_end(weight, loss, optimizer, steps, final):
    for _ in range(steps):
        optimizer.zero_grad()
        loss(weight).backward()
        optimizer.step()
    with torch.no_grad():
        weight.mul_(smallest(weight, round(final * weight.numel())))


def share_of_what_is_left(weight, loss, optimizer, steps, final):
    """Takes the sparsity as a share of the weights that are still there."""
    keep = torch.ones_like(weight, dtype=torch.bool)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss(weight).backward()
        optimizer.step()
        sparsity = final * (1 - (1 - step / steps) ** 3)
        gone = int((~keep).sum())
        keep = smallest(weight, gone + round(sparsity * (weight.numel() - gone)), keep)
        with torch.no_grad():
            weight.mul_(keep)


def with_gradients_masked_too(weight, loss, optimizer, steps, final):
    pruning(mask_gradient=True)(weight, loss, optimizer, steps, final)


def rebinding(weight, loss, optimizer, steps, final):
    """Makes a new tensor instead of changing the one that was given."""
    keep = torch.ones_like(weight, dtype=torch.bool)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss(weight).backward()
        optimizer.step()
        keep = smallest(weight, round(final * (1 - (1 - step / steps) ** 3) * weight.numel()), keep)
        weight = weight * keep


def rebinding_a_parameter(weight, loss, optimizer, steps, final):
    keep = torch.ones_like(weight, dtype=torch.bool)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss(weight).backward()
        optimizer.step()
        keep = smallest(weight, round(final * (1 - (1 - step / steps) ** 3) * weight.numel()), keep)
        weight = torch.nn.Parameter(weight.detach() * keep)


def weight_by_weight(weight, loss, optimizer, steps, final):
    gone = set()
    for step in range(steps):
        weight.grad = None
        loss(weight).backward()
        optimizer.step()
        left = 1 - (step + 1) / steps
        wanted = round(final * (1 - left * left * left) * weight.numel())
        flat = weight.data.view(-1)
        alive = [place for place in range(len(flat)) if place not in gone]
        gone.update(nsmallest(wanted - len(gone), alive, key=lambda place: abs(float(flat[place]))))
        flat[list(gone)] = 0.0


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
        "a straight schedule": pruning(lambda part: part),
        "the cube without the one minus": pruning(lambda part: part**3),
        "counts the steps from 0": pruning(from_zero=True),
        "lets the mask forget, so that weights come back": pruning(forget=True),
        "prunes before the step": pruning(before_step=True),
        "all at the end": prune_at_the_end,
        "by a threshold, and ties go with it": prune_by_threshold,
        "never takes a step": training_wrongly("no step"),
        "goes uphill": training_wrongly("uphill"),
        "takes steps of its own": training_wrongly("own step"),
        "the share of what is left": share_of_what_is_left,
        "adds up the gradients": pruning(leave_gradients=True),
        "the first mask for ever": pruning(frozen=True),
        "a new tensor instead of the given one": rebinding,
        "a new parameter instead of the given one": rebinding_a_parameter,
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
    return magnitude_mask([torch.where(weight == 0, torch.inf, weight) for weight in weights], sparsity)


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
        "weight by weight": weight_by_weight,
    },
    "decode-huffman": {
        "by slices": by_slices,
        "by a tree": by_a_tree,
    },
}
