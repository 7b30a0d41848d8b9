"""Answers to the exercises of lesson 10: wrong ones that must be rejected, right ones written
differently.
"""

import math

import numpy as np
import torch
from torch.nn import functional as F

from labkit.lesson.exercises import Script
from labkit.lesson.exercises.l10_scaling_out import (
    DDP_SCRIPT,
    in_parts,
    pipeline_schedule,
    ring_all_reduce,
)


def all_to_all(arrays, send):
    k = len(arrays)
    return [sum(send(other, worker, arrays[other]) for other in range(k)) for worker in range(k)]


def only_the_first_phase(arrays, send):
    k, pieces = len(arrays), [list(np.array_split(array, len(arrays))) for array in arrays]
    for step in range(k - 1):
        sent = [send(w, (w + 1) % k, pieces[w][(w - step) % k]) for w in range(k)]
        for w in range(k):
            place = (w - step - 1) % k
            pieces[w][place] = pieces[w][place] + sent[w - 1]
    return [np.concatenate(each) for each in pieces]


def whole_arrays_round_the_ring(arrays, send):
    k = len(arrays)
    sums, passed = [array.copy() for array in arrays], list(arrays)
    for _ in range(k - 1):
        passed = [send((w - 1) % k, w, passed[w - 1]) for w in range(k)]
        sums = [own + piece for own, piece in zip(sums, passed, strict=True)]
    return sums


def adds_in_both_phases(arrays, send):
    k, pieces = len(arrays), [list(np.array_split(array, len(arrays))) for array in arrays]
    for step in range(2 * (k - 1)):
        sent = [send(w, (w + 1) % k, pieces[w][(w - step) % k]) for w in range(k)]
        for w in range(k):
            place = (w - step - 1) % k
            pieces[w][place] = pieces[w][place] + sent[w - 1]
    return [np.concatenate(each) for each in pieces]


def drops_the_rest(arrays, send):
    length = len(arrays[0]) // len(arrays) * len(arrays)
    return ring_all_reduce([array[:length] for array in arrays], send)


def without_sending(arrays, send):
    return [sum(arrays) for _ in arrays]


def sum_beside_the_ring(arrays, send):
    ring_all_reduce(arrays, send)
    return [sum(arrays) for _ in arrays]


def send_zeros(arrays, send):
    ring_all_reduce([0 * array for array in arrays], send)
    return [sum(arrays) for _ in arrays]


def one_array_for_all(arrays, send):
    return [ring_all_reduce(arrays, send)[0]] * len(arrays)


def the_first_worker_for_all(arrays, send):
    return [ring_all_reduce(arrays, send)[0].copy() for _ in arrays]


def in_place(arrays, send):
    sums = ring_all_reduce(arrays, send)
    for array, total in zip(arrays, sums, strict=True):
        array[:] = total
    return arrays


def to_the_left(arrays, send):
    """The same ring, the other way round."""
    k = len(arrays)
    return ring_all_reduce(arrays[::-1], lambda a, b, piece: send(k - 1 - a, k - 1 - b, piece))[
        ::-1
    ]


def in_two_loops(arrays, send):
    k, size = len(arrays), math.ceil(len(arrays[0]) / len(arrays))
    own = [array.copy() for array in arrays]
    part = [slice(size * place, size * (place + 1)) for place in range(k)]
    for step in range(k - 1):
        sent = [send(w, (w + 1) % k, own[w][part[(w - step) % k]]) for w in range(k)]
        for w in range(k):
            own[w][part[(w - 1 - step) % k]] += sent[w - 1]
    for step in range(k - 1):
        sent = [send(w, (w + 1) % k, own[w][part[(w + 1 - step) % k]]) for w in range(k)]
        for w in range(k):
            own[w][part[(w - step) % k]] = sent[w - 1]
    return own


def in_type(kind):
    """The right sums, by way of numbers of another type."""

    def answer(arrays, send):
        return [each.astype(kind) for each in ring_all_reduce(arrays, send)]

    return answer


def sums_in_float32(arrays, send):
    return [
        each.astype(float) for each in ring_all_reduce([a.astype(np.float32) for a in arrays], send)
    ]


def nothing_to_do_alone(arrays, send):
    return arrays if len(arrays) == 1 else ring_all_reduce(arrays, send)


def one_by_one(stages, micro):
    return [[(kind, i) for i in range(micro) for kind in "FB"] for _ in range(stages)]


def all_forward_first(stages, micro):
    return [[(kind, i) for kind in "FB" for i in range(micro)] for _ in range(stages)]


def held(places):
    """A schedule whose stage s begins with places(stages, s) forward passes."""

    def answer(stages, micro):
        lists = []
        for stage in range(stages):
            begin = min(micro, places(stages, stage))
            later = [piece for i in range(micro) for piece in (("B", i), ("F", begin + i))]
            lists.append(
                [*(("F", i) for i in range(begin)), *(piece for piece in later if piece[1] < micro)]
            )
        return lists

    return answer


def the_last_goes_back_first(stages, micro):
    return [
        [*(("F", i) for i in range(micro)), *(("B", i) for i in reversed(range(micro)))]
        for _ in range(stages)
    ]


def without_the_rest(stages, micro):
    return [each[: 2 * micro - 1] for each in pipeline_schedule(stages, micro)]


def stages_turned_round(stages, micro):
    return pipeline_schedule(stages, micro)[::-1]


def with_counters(stages, micro):
    """The next forward pass whenever there is a place, else the next backward pass."""
    lists = []
    for stage in range(stages):
        ahead = back = 0
        lists.append([])
        while back < micro:
            if ahead < micro and ahead - back < stages - stage:
                lists[-1].append(["F", ahead])
                ahead += 1
            else:
                lists[-1].append(["B", back])
                back += 1
    return lists


def mean_of_means(network, images, labels, parts, loss=F.cross_entropy):
    network.zero_grad()
    for x, y in zip(images.tensor_split(parts), labels.tensor_split(parts), strict=True):
        (loss(network(x), y) / parts).backward()
    return torch.cat([weight.grad.flatten() for weight in network.parameters()])


def sum_of_means(network, images, labels, parts, loss=F.cross_entropy):
    return parts * mean_of_means(network, images, labels, parts, loss)


def sum_of_losses(network, images, labels, parts, loss=F.cross_entropy):
    return len(labels) * in_parts(network, images, labels, parts, loss)


def keeps_an_old_gradient(network, images, labels, parts, loss=F.cross_entropy):
    for x, y in zip(images.tensor_split(parts), labels.tensor_split(parts), strict=True):
        (loss(network(x), y) * len(y) / len(labels)).backward()
    return torch.cat([weight.grad.flatten() for weight in network.parameters()])


def clears_in_every_part(network, images, labels, parts, loss=F.cross_entropy):
    for x, y in zip(images.tensor_split(parts), labels.tensor_split(parts), strict=True):
        network.zero_grad()
        (loss(network(x), y) * len(y) / len(labels)).backward()
    return torch.cat([weight.grad.flatten() for weight in network.parameters()])


def all_at_once(network, images, labels, parts, loss=F.cross_entropy):
    return in_parts(network, images, labels, 1, loss)


def always_halves(network, images, labels, parts, loss=F.cross_entropy):
    return in_parts(network, images, labels, 2, loss)


def always_cross_entropy(network, images, labels, parts, loss=F.cross_entropy):
    return in_parts(network, images, labels, parts)


def a_list_of_gradients(network, images, labels, parts, loss=F.cross_entropy):
    in_parts(network, images, labels, parts, loss)
    return [weight.grad for weight in network.parameters()]


def takes_a_step(network, images, labels, parts, loss=F.cross_entropy):
    gradient = in_parts(network, images, labels, parts, loss)
    torch.optim.SGD(network.parameters(), lr=0.1).step()
    return gradient


def by_autograd_grad(network, images, labels, parts, loss=F.cross_entropy):
    """Without .grad: the sum of torch.autograd.grad of each part."""
    weights = list(network.parameters())
    slopes = [torch.zeros_like(weight) for weight in weights]
    for rows in torch.arange(len(labels)).tensor_split(parts):
        own = len(rows) / len(labels) * loss(network(images[rows]), labels[rows])
        slopes = [
            old + new for old, new in zip(slopes, torch.autograd.grad(own, weights), strict=True)
        ]
    return torch.cat([slope.flatten() for slope in slopes])


def one_loss_of_all_parts(network, images, labels, parts, loss=F.cross_entropy):
    """All parts go forward first, and one backward pass goes through all."""
    network.zero_grad(set_to_none=False)
    scores = torch.cat([network(x) for x in torch.tensor_split(images, parts)])
    loss(scores, labels).backward()
    return torch.nn.utils.parameters_to_vector([weight.grad for weight in network.parameters()])


PIXELS = (0, 2, 3)


def own_statistics(x, mean_over_workers):
    variance, mean = torch.var_mean(x, PIXELS, keepdim=True, correction=0)
    mean_over_workers(mean)
    return (x - mean) / (variance + 1e-5).sqrt()


def mean_of_own_variances(x, mean_over_workers):
    variance, mean = torch.var_mean(x, PIXELS, keepdim=True, correction=0)
    return (x - mean_over_workers(mean)) / (mean_over_workers(variance) + 1e-5).sqrt()


def own_mean_subtracted(x, mean_over_workers):
    mean = mean_over_workers(x.mean(PIXELS, keepdim=True))
    variance = mean_over_workers((x - mean).square().mean(PIXELS, keepdim=True))
    return (x - x.mean(PIXELS, keepdim=True)) / (variance + 1e-5).sqrt()


def one_mean_for_all_channels(x, mean_over_workers):
    mean = mean_over_workers(x.mean())
    variance = mean_over_workers((x - mean).square().mean())
    return (x - mean) / (variance + 1e-5).sqrt()


def divides_by_the_variance(x, mean_over_workers):
    mean = mean_over_workers(x.mean(PIXELS, keepdim=True))
    variance = mean_over_workers((x - mean).square().mean(PIXELS, keepdim=True))
    return (x - mean) / (variance + 1e-5)


def statistics_without_a_gradient(x, mean_over_workers):
    with torch.no_grad():
        mean = mean_over_workers(x.mean(PIXELS, keepdim=True))
        variance = mean_over_workers((x - mean).square().mean(PIXELS, keepdim=True))
    return (x - mean) / (variance + 1e-5).sqrt()


def sends_all_pixels(x, mean_over_workers):
    mean = mean_over_workers(x).mean(PIXELS, keepdim=True)
    variance = mean_over_workers((x - mean).square()).mean(PIXELS, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt()


def by_the_mean_of_squares(x, mean_over_workers):
    """In one message: mean and mean of squares; the variance is their difference."""
    both = torch.stack([x.mean(PIXELS), x.square().mean(PIXELS)])
    mean, squares = mean_over_workers(both)[..., None, None]
    return (x - mean) * torch.rsqrt(squares - mean**2 + 1e-5)


def centred_first(x, mean_over_workers):
    centred = x - mean_over_workers(x.flatten(2).mean((0, 2)))[:, None, None]
    deviation = torch.sqrt(mean_over_workers(centred.pow(2).flatten(2).mean((0, 2))) + 1e-5)
    return torch.div(centred, deviation.view(1, -1, 1, 1))


def script_with(before, after):
    """The reference script with one piece of text exchanged."""
    assert before in DDP_SCRIPT
    return Script(DDP_SCRIPT.replace(before, after))


BACKWARD_AND_STEP = "        loss(parallel(images), labels).backward()\n        optimizer.step()\n"
BY_HAND = """\
weights = list(network.parameters())
optimizer = torch.optim.SGD(weights, lr=0.05, momentum=0.9)
for epoch in range(epochs):
    begin = time.time()
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(epoch))
    for rows in order.split(batch):
        images, labels = data[rows[rank::workers]]
        optimizer.zero_grad()
        loss(network(images), labels).backward()
        for weight in weights:
            dist.all_reduce(weight.grad)
            weight.grad /= workers
        optimizer.step()
    if not rank:
        print(f"epoch {epoch}: {time.time() - begin} s")
"""


def script_by_hand():
    start = DDP_SCRIPT.index("sampler = ")
    end = DDP_SCRIPT.index("if rank == 0:\n    torch.save")
    return Script(DDP_SCRIPT[:start] + BY_HAND + DDP_SCRIPT[end:])


WRONG = {
    "ring-all-reduce": {
        "sends everything to everybody": all_to_all,
        "forgets to pass the sums round": only_the_first_phase,
        "sends whole arrays round the ring": whole_arrays_round_the_ring,
        "adds in the second phase too": adds_in_both_phases,
        "drops what cannot be divided": drops_the_rest,
        "sums without sending": without_sending,
        "gives whole numbers": in_type(int),
        "gives float32": in_type(np.float32),
        "sums in float32": sums_in_float32,
        "gives the array itself where there is one": nothing_to_do_alone,
        "changes what it was given": in_place,
        "sums beside the ring": sum_beside_the_ring,
        "sends zeros and sums alone": send_zeros,
        "one array for all": one_array_for_all,
        "copies of the first worker's": the_first_worker_for_all,
    },
    "in-parts": {
        "takes the mean of the parts' means": mean_of_means,
        "adds the parts' means up": sum_of_means,
        "does not divide by the number of images": sum_of_losses,
        "adds to a gradient from before": keeps_an_old_gradient,
        "clears the gradient in every part": clears_in_every_part,
        "takes the whole batch at once": all_at_once,
        "always takes two halves": always_halves,
        "takes cross-entropy, whatever the loss": always_cross_entropy,
        "hands back a list": a_list_of_gradients,
        "takes a step": takes_a_step,
    },
    "synced-norm": {
        "takes its own statistics": own_statistics,
        "takes the mean of the workers' variances": mean_of_own_variances,
        "subtracts its own mean": own_mean_subtracted,
        "has one mean for all channels": one_mean_for_all_channels,
        "divides by the variance": divides_by_the_variance,
        "sends no gradient through the statistics": statistics_without_a_gradient,
        "sends all pixels": sends_all_pixels,
    },
    "ddp-script": {
        "calls the network, not the DDP object": script_with("parallel(images)", "network(images)"),
        "has one order for every epoch": script_with("    sampler.set_epoch(epoch)\n", ""),
        "loads a whole batch in each worker": script_with("batch // workers", "batch"),
        "deals out no shares": script_with("sampler=sampler", "shuffle=False"),
        "adds up the gradients of all steps": script_with("        optimizer.zero_grad()\n", ""),
        "has every worker print": script_with(
            "    if rank == 0:\n        print", "    if True:\n        print"
        ),
    },
    "pipeline-schedule": {
        "takes one by one": one_by_one,
        "takes all forward passes first": all_forward_first,
        "holds one too few": held(lambda stages, stage: max(1, stages - stage - 1)),
        "holds one too many": held(lambda stages, stage: stages - stage + 1),
        "holds as many in every stage": held(lambda stages, stage: stages),
        "takes the last back first": the_last_goes_back_first,
        "leaves out the last piece": without_the_rest,
        "gives the last stage the first list": stages_turned_round,
    },
}

RIGHT = {
    "ring-all-reduce": {"the other way round": to_the_left, "in two loops": in_two_loops},
    "in-parts": {
        "by autograd.grad": by_autograd_grad,
        "by one backward pass": one_loss_of_all_parts,
    },
    "synced-norm": {
        "by the mean of squares": by_the_mean_of_squares,
        "centred first": centred_first,
    },
    "ddp-script": {
        "averages by hand": script_by_hand(),
        "clears after the step": script_with(
            "        optimizer.zero_grad()\n" + BACKWARD_AND_STEP,
            BACKWARD_AND_STEP + "        optimizer.zero_grad()\n",
        ),
    },
    "pipeline-schedule": {
        "with counters": with_counters,
        "by places": held(lambda stages, stage: stages - stage),
    },
}
