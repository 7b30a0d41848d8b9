"""Answers to the exercises of lesson 16: wrong ones that must be rejected, right ones written
differently.
"""

import copy

import numpy as np
import torch
from scipy import stats
from torch import nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, mse_loss, softmax

from labkit.lesson.exercises.l16_smaller_networks import remove_channels


def cut(
    *,
    stats=True,
    columns="blocks",
    first=False,
    rows=False,
    in_place=False,
    silent=False,
    training=False,
    bias=True,
):
    """`remove_channels` with a choice of mistakes."""

    def answer(writer, norm, reader, keep):
        count = len(norm.weight)
        keep = torch.arange(len(keep)) if first else keep
        layers = (writer, norm, reader) if in_place else copy.deepcopy((writer, norm, reader))
        writer, norm, reader = (layer.train() if training else layer for layer in layers)
        if silent:
            gone = torch.tensor([place not in keep.tolist() for place in range(count)])
            norm.weight.data[gone], norm.bias.data[gone] = 0, 0
            return writer, norm, reader
        weight, per_channel = reader.weight.data, reader.weight.shape[1] // count
        shape = {"blocks": (len(weight), count, -1), "strided": (len(weight), -1, count)}
        if rows:
            reader.weight.data = weight[keep % len(weight)]
        elif columns == "plain" or weight.dim() == 4:
            reader.weight.data = weight[:, keep]
        else:
            cube = weight.view(shape[columns])
            cube = cube[:, keep] if columns == "blocks" else cube[:, :, keep]
            reader.weight.data = cube.reshape(len(weight), per_channel * len(keep))
        writer.weight.data = writer.weight.data[keep]
        if bias and writer.bias is not None:
            writer.bias.data = writer.bias.data[keep]
        norm.weight.data, norm.bias.data = norm.weight.data[keep], norm.bias.data[keep]
        kept = keep if stats else torch.arange(len(keep))
        norm.running_mean, norm.running_var = norm.running_mean[kept], norm.running_var[kept]
        return writer, norm, reader

    return answer


def without_statistics(writer, norm, reader, keep):
    """Leaves the running statistics as they are: too many of them."""
    mean, var = norm.running_mean, norm.running_var
    writer, norm, reader = remove_channels(writer, norm, reader, keep)
    norm.running_mean, norm.running_var = mean.clone(), var.clone()
    return writer, norm, reader


def fresh_norm(writer, norm, reader, keep):
    """A new batch norm, which has learned nothing."""
    writer, _, reader = remove_channels(writer, norm, reader, keep)
    return writer, type(norm)(len(keep)).eval(), reader


def the_others(writer, norm, reader, keep):
    """Keeps what should go, as many as asked for."""
    order = torch.arange(len(norm.weight)).flip(0)
    return remove_channels(writer, norm, reader, order[keep].sort().values)


def not_trainable(writer, norm, reader, keep):
    layers = remove_channels(writer, norm, reader, keep)
    layers[1].running_mean = nn.Parameter(layers[1].running_mean, requires_grad=False)
    return layers


def frozen_tensors(writer, norm, reader, keep):
    """The norm's weight is no parameter any more."""
    layers = remove_channels(writer, norm, reader, keep)
    weight = layers[1].weight.detach()
    del layers[1].weight
    layers[1].weight = weight
    return layers


def first_biases(writer, norm, reader, keep):
    """The bias of the first channels, whichever are kept."""
    layers = remove_channels(writer, norm, reader, keep)
    if writer.bias is not None:
        layers[0].bias.data = writer.bias.data[: len(keep)].clone()
    return layers


def no_bias(writer, norm, reader, keep):
    """The new writer has no bias, whether the old one had one or not."""
    layers = remove_channels(writer, norm, reader, keep)
    layers[0].bias = None
    return layers


def only_two(writer, norm, reader, keep):
    return remove_channels(writer, norm, reader, keep)[:2]


def sorted_in(*places):
    """The channels of some layers (0 writer, 1 norm, 2 reader) in the order of their numbers,
    the others as asked.
    """

    def answer(writer, norm, reader, keep):
        as_asked, in_order = (
            remove_channels(writer, norm, reader, each) for each in (keep, keep.sort().values)
        )
        return [(in_order if place in places else as_asked)[place] for place in range(3)]

    return answer


def one_statistic_sorted(name):
    def answer(writer, norm, reader, keep):
        layers = remove_channels(writer, norm, reader, keep)
        layers[1].load_state_dict(
            layers[1].state_dict() | {name: norm.state_dict()[name][keep.sort().values]}
        )
        return layers

    return answer


def by_new_layers(*, like_the_old=True, only_the_norms_mode=False):
    """An answer that builds new layers and copies weights into them."""

    def settings(layer):
        if not like_the_old:
            return {}
        return (
            {"eps": layer.eps}
            if hasattr(layer, "eps")
            else {"stride": layer.stride, "padding": layer.padding}
        )

    def answer(writer, norm, reader, keep):
        kept, block = len(keep), reader.weight.shape[1] // len(norm.weight)
        columns = (keep[:, None] * block + torch.arange(block)).flatten()
        bias = {"bias": reader.bias is not None}
        own = {"bias": writer.bias is not None}
        if isinstance(writer, nn.Linear):
            made = [nn.Linear(writer.in_features, kept, **own)]
        else:
            made = [
                nn.Conv2d(writer.in_channels, kept, writer.kernel_size, **own, **settings(writer))
            ]
        made.append(type(norm)(kept, **settings(norm)))
        if isinstance(reader, nn.Linear):
            made.append(nn.Linear(len(columns), reader.out_features, **bias))
        else:
            made.append(
                nn.Conv2d(kept, reader.out_channels, reader.kernel_size, **bias, **settings(reader))
            )
        statistics = {
            name: each[keep] if each.dim() else each for name, each in norm.state_dict().items()
        }
        made[0].load_state_dict(
            {name: numbers[keep] for name, numbers in writer.state_dict().items()}
        )
        made[1].load_state_dict(statistics)
        made[2].load_state_dict(reader.state_dict() | {"weight": reader.weight[:, columns]})
        if only_the_norms_mode:
            return made[0], made[1].train(norm.training), made[2]
        return [layer.eval() for layer in made]

    return answer


def distilling(
    scale=lambda t: t**2,
    *,
    reduction="batchmean",
    swap=False,
    hot_labels=False,
    turned=False,
    cool=False,
    log=True,
):
    """`distillation_loss` with a choice of mistakes."""

    def answer(student, teacher, labels, temperature, share):
        share = 1 - share if swap else share
        first, second = student / temperature, teacher / (1 if cool else temperature)
        if turned:
            first, second = second, first
        inner = log_softmax(first, 1) if log else softmax(first, 1)
        soft = kl_div(inner, softmax(second, 1), reduction=reduction)
        hard = cross_entropy(student / temperature if hot_labels else student, labels)
        return share * scale(temperature) * soft + (1 - share) * hard

    return answer


def along_the_batch(student, teacher, labels, temperature, share):
    soft = kl_div(
        log_softmax(student / temperature, 0),
        softmax(teacher / temperature, 0),
        reduction="batchmean",
    )
    return share * temperature**2 * soft + (1 - share) * cross_entropy(student, labels)


def over_the_classes(student, teacher, labels, temperature, share):
    soft = kl_div(
        log_softmax(student / temperature, 1), softmax(teacher / temperature, 1), reduction="none"
    ).mean()
    return share * temperature**2 * soft + (1 - share) * cross_entropy(student, labels)


def between_logits(student, teacher, labels, temperature, share):
    return share * mse_loss(student, teacher) + (1 - share) * cross_entropy(student, labels)


def soft_cross_entropy(student, teacher, labels, temperature, share):
    soft = cross_entropy(student / temperature, softmax(teacher / temperature, 1))
    return share * temperature**2 * soft + (1 - share) * cross_entropy(student, labels)


def plus_a_hundred(student, teacher, labels, temperature, share):
    return 100 + by_hand(student, teacher, labels, temperature, share)


def with_logarithms(student, teacher, labels, temperature, share):
    first, second = (log_softmax(logits / temperature, 1) for logits in (student, teacher))
    soft = kl_div(first, second, log_target=True, reduction="sum") / len(labels)
    return share * temperature**2 * soft + (1 - share) * cross_entropy(student, labels)


def by_hand(student, teacher, labels, temperature, share):
    p = (teacher / temperature).softmax(1)
    log_q, log_p = (student / temperature).log_softmax(1), (teacher / temperature).log_softmax(1)
    soft = (p * (log_p - log_q)).sum(1).mean() * temperature * temperature
    hard = -student.log_softmax(1)[range(len(labels)), labels].mean()
    return soft * share + hard - hard * share


def no_more_training(writer, norm, reader, keep):
    found = remove_channels(writer, norm, reader, keep)
    found[2].weight.requires_grad_(False)
    return found


WRONG = {
    "remove-channels": {
        "the statistics of the first channels": cut(stats=False),
        "all statistics": without_statistics,
        "a bias as long as before": cut(bias=False),
        "the bias of the first channels": first_biases,
        "no bias any more": no_bias,
        "plain columns behind a Flatten": cut(columns="plain"),
        "columns by pixel, not by channel": cut(columns="strided"),
        "the first channels": cut(first=True),
        "rows of the reader": cut(rows=True),
        "in place": cut(in_place=True),
        "silent, but still there": cut(silent=True),
        "back in training mode": cut(training=True),
        "a new norm": fresh_norm,
        "the others": the_others,
        "a statistic as a parameter": not_trainable,
        "a weight that is no parameter": frozen_tensors,
        "two layers": only_two,
        "layers made anew, without stride and border": by_new_layers(like_the_old=False),
        "a reader that is trained no more": no_more_training,
        "a sorted writer": sorted_in(0),
        "a sorted norm": sorted_in(1),
        "a sorted running mean": one_statistic_sorted("running_mean"),
        "a sorted reader": sorted_in(2),
    },
    "distillation-loss": {
        "without T²": distilling(lambda t: 1.0),
        "with T": distilling(lambda t: t),
        "divided by T²": distilling(lambda t: 1 / t**2),
        "a mean over the classes too": over_the_classes,
        "a sum over the batch": distilling(reduction="sum"),
        "student and teacher exchanged": distilling(turned=True),
        "the shares exchanged": distilling(swap=True),
        "labels at the temperature": distilling(hot_labels=True),
        "a teacher without temperature": distilling(cool=True),
        "probabilities where logarithms belong": distilling(log=False),
        "softmax over the batch": along_the_batch,
        "a distance of logits": between_logits,
        "a cross-entropy with soft labels instead of KL": soft_cross_entropy,
        "a hundred too many": plus_a_hundred,
    },
}


def by_probabilities(divergence, spoil=lambda teacher, temperature: None):
    def answer(student, teacher, labels, temperature, share):
        spoil(teacher, temperature)
        p, q = softmax(teacher / temperature, 1), softmax(student / temperature, 1)
        soft = divergence(p, q).sum(1).mean()
        return share * temperature**2 * soft + (1 - share) * cross_entropy(student, labels)

    return answer


WRONG["distillation-loss"] |= {
    "the logarithm of a quotient": by_probabilities(lambda p, q: p * (p / q).log()),
    "the logarithm of a softmax": by_probabilities(lambda p, q: p * (p.log() - q.log())),
    "a little added to each probability": by_probabilities(
        lambda p, q: p * ((p + 1e-8) / (q + 1e-8)).log()
    ),
    "changes the teacher": by_probabilities(
        lambda p, q: kl_div(q.log(), p, reduction="none"),
        lambda teacher, temperature: teacher.div_(temperature),
    ),
}

RIGHT = {
    "remove-channels": {
        "through data": cut(),
        "by new layers": by_new_layers(),
        "by new layers, of which the norm alone gets the mode of the old one": by_new_layers(
            only_the_norms_mode=True
        ),
        "the channels in the order of their numbers, in all three": sorted_in(0, 1, 2),
    },
    "distillation-loss": {
        "with the logarithms of both": with_logarithms,
        "by hand": by_hand,
    },
}


# --- evened ---


def evening(*, cool=False, keep_labels=False, over=1, by_classes=False, probabilities=False):
    """`evened` with a choice of mistakes."""

    def answer(logits, temperature):
        softened = torch.softmax(logits / (1 if cool else temperature), over)
        largest, first = softened.max(1, keepdim=True)
        if keep_labels:
            largest = torch.ones_like(largest) - 1e-6
        rest = (1 - largest) / (logits.shape[1] - (0 if by_classes else 1))
        even = rest.expand_as(logits).scatter(1, first, largest)
        return even if probabilities else temperature * even.log()

    return answer


def forgets_the_temperature(logits, temperature):
    return evening()(logits, temperature) / temperature


def evens_all(logits, temperature):
    return torch.zeros_like(logits)


def by_loop(logits, temperature):
    rows = []
    for row in torch.softmax(logits / temperature, 1):
        even = torch.full_like(row, float(1 - row.max()) / (len(row) - 1))
        even[row.argmax()] = row.max()
        rows.append(temperature * even.log() + 3)  # a constant changes no softmax
    return torch.stack(rows)


WRONG["evened"] = {
    "as sure as without a temperature": evening(cool=True),
    "surely its first choice": evening(keep_labels=True),
    "softmax over the images": evening(over=0),
    "the rest divided by all classes": evening(by_classes=True),
    "probabilities in place of logits": evening(probabilities=True),
    "logits at temperature 1": forgets_the_temperature,
    "all classes alike": evens_all,
}
RIGHT["evened"] = {"row by row": by_loop, "by a mask": evening()}


# --- teacher-verdict ---


def judging(*, factor=None, ddof=1, worth=None, pairs=True, ends=(-1, 1), single=True):
    """`teacher_verdict` with a choice of mistakes."""

    def answer(taught, labelled, asked):
        first, second = np.asarray(taught, float), np.asarray(labelled, float)
        gains, n, bound = first - second, len(first), asked if worth is None else worth
        if n < 2 and single:
            return "cannot tell"
        spread = gains.std(ddof=ddof) if pairs else np.hypot(first.std(ddof=1), second.std(ddof=1))
        reach = (factor or stats.t.ppf(0.975, n - 1)) * spread / n**0.5
        low, high = (gains.mean() + side * reach for side in ends)
        if low >= bound:
            return "teach"
        return "labels will do" if high < bound else "cannot tell"

    return answer


def exchanged(taught, labelled, worth):
    return judging()(labelled, taught, worth)


WRONG["teacher-verdict"] = {
    "1.96 for three pairs": judging(factor=1.96),
    "the standard deviation of numpy": judging(ddof=0, factor=4.30 * 0.5),
    "0 in place of what it is worth": judging(worth=0.0),
    "two groups, not pairs": judging(pairs=False),
    "the mean alone": judging(ends=(0, 0)),
    "both sides by the lower end": judging(ends=(-1, -1)),
    "the other way round": exchanged,
    "a verdict on one pair": judging(ddof=0, factor=1.0, single=False),
}
RIGHT["teacher-verdict"] = {
    "by scipy.stats": judging(),
    "by an interval of scipy": lambda taught, labelled, worth: by_interval(
        np.subtract(taught, labelled), worth
    ),
}


def by_interval(gains, worth):
    if len(gains) == 1:
        return "cannot tell"
    low, high = stats.t.interval(0.95, len(gains) - 1, gains.mean(), stats.sem(gains))
    return ("cannot tell", "teach")[int(low >= worth)] if high >= worth else "labels will do"
