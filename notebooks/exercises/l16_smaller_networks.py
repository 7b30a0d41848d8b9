"""Exercises of the lesson on smaller networks: cut channels, learn from a teacher, and judge
whether it helped.
"""

import copy

import numpy as np
import torch
from scipy.special import stdtrit
from torch import nn

from labkit.lesson.exercises import Exercise, Wrong, expect, shorten, untouched


def remove_channels(writer, norm, reader, keep):
    import copy

    from torch import nn

    writer, norm, reader = copy.deepcopy((writer, norm, reader))
    columns = reader.weight.view(len(reader.weight), len(norm.weight), -1)[:, keep]
    reader.weight = nn.Parameter(columns.reshape(len(columns), -1, *reader.weight.shape[2:]))
    writer.weight = nn.Parameter(writer.weight[keep])
    if writer.bias is not None:
        writer.bias = nn.Parameter(writer.bias[keep])
    norm.weight, norm.bias = nn.Parameter(norm.weight[keep]), nn.Parameter(norm.bias[keep])
    norm.running_mean, norm.running_var = norm.running_mean[keep], norm.running_var[keep]
    return writer, norm, reader


def verify_remove_channels(answer):
    layers = {
        "a 3x3 convolution reads": (
            nn.Conv2d(3, 7, 3, bias=False),
            nn.BatchNorm2d(7),
            nn.Conv2d(7, 5, 3),
        ),
        "a 1x1 convolution reads": (
            nn.Conv2d(2, 6, 1, bias=False),
            nn.BatchNorm2d(6),
            nn.Conv2d(6, 4, 1, bias=False),
        ),
        "a linear layer reads, 20 numbers per channel": (
            nn.Conv2d(3, 5, 3, bias=False),
            nn.BatchNorm2d(5),
            nn.Linear(5 * 20, 4),
        ),
        "steps of 2, borders and an eps of 0.1": (
            nn.Conv2d(3, 7, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(7, eps=0.1),
            nn.Conv2d(7, 4, (3, 1), padding=(1, 0)),
        ),
        "a linear layer writes": (nn.Linear(9, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 3)),
        "a convolution with a bias writes": (
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8),
            nn.Conv2d(8, 5, 3),
        ),
        "a linear layer with a bias writes": (nn.Linear(9, 7), nn.BatchNorm1d(7), nn.Linear(7, 3)),
    }
    chance = torch.Generator().manual_seed(2)
    for case, trio in layers.items():
        for each in trio:
            for tensor in each.state_dict().values():
                tensor.copy_(torch.rand(tensor.shape, generator=chance) + 0.1)  # statistics, too
            each.eval()
        count = len(trio[1].weight)
        unsorted = torch.tensor([count - 1, 0, count - 2])  # all three layers need the same order
        for keep in (torch.tensor([1, 3]), unsorted, torch.arange(count)):
            shape = (
                (6, 9)
                if writes_numbers(trio)
                else (6, trio[0].in_channels, *((7, 6) if count != 6 else (4, 3)))
            )
            x = torch.randn(shape, generator=chance)
            check_removal(f"{case}; {count} channels, keep {keep.tolist()}", answer, trio, keep, x)


def writes_numbers(trio):
    return isinstance(trio[0], nn.Linear)


def check_removal(case, answer, trio, keep, x):
    """The smaller layers must compute what the whole ones do when the other channels are silent."""
    before = [copy.deepcopy(layer.state_dict()) for layer in trio]
    found = answer(*trio, keep.clone())
    same = all(
        torch.equal(a[key], b.state_dict()[key])
        for a, b in zip(before, trio, strict=True)
        for key in a
    )
    expect(
        same, f"{case}: the given layers have changed. The caller still needs them: change copies."
    )
    expect(
        isinstance(found, (tuple, list))
        and len(found) == 3
        and all(isinstance(each, nn.Module) for each in found),
        f"{case}: expected three layers, found {shorten(found)}.",
    )
    for name, mine, given in zip(("writer", "norm", "reader"), found, trio, strict=True):
        expect(
            type(mine) is type(given), f"{case}: the {name} should stay a {type(given).__name__}."
        )
        # the other two compute the same in both modes
        other_mode = name == "norm" and mine.training
        expect(not other_mode, f"{case}: the norm was in eval mode, and is no longer.")
        missing = sorted(set(given.state_dict()) ^ set(mine.state_dict()))
        expect(not missing, f"{case}: the {name} has other parameters than before: {missing}.")
        learns = [key for key, _ in given.named_parameters()]
        expect(
            [key for key, _ in mine.named_parameters()] == learns,
            f"{case}: the {name} must learn {learns}.",
        )
        trained = all(p.is_leaf and p.requires_grad for p in mine.parameters())
        expect(trained, f"{case}: a weight of the {name} cannot be trained.")
    for name, mine, wanted in zip(
        ("writer", "norm", "reader"), found, remove_channels(*trio, keep), strict=True
    ):
        for key, right in wanted.state_dict().items():
            shape = tuple(mine.state_dict()[key].shape)
            expect(
                shape == tuple(right.shape),
                f"{case}: {name}.{key} should have the shape {tuple(right.shape)}, found {shape}.",
            )
    check_outputs(case, found, trio, keep, x)


def check_outputs(case, found, trio, keep, x):
    with torch.no_grad():
        wanted, given = (run_trio(each, x) for each in (silenced(trio, keep), found))
        parts = [keep_apart(found, remove_channels(*trio, keep), which) for which in range(3)]
    sizes = f"the whole layers answer {tuple(wanted.shape)}, yours {tuple(given.shape)}"
    expect(
        given.shape == wanted.shape,
        f"{case}: {sizes}. Has each new layer the stride and the border of the old one?",
    )
    if not torch.allclose(wanted, given, atol=1e-4, rtol=1e-4):
        names = [
            name for name, apart in zip(("writer", "norm", "reader"), parts, strict=True) if apart
        ]
        raise Wrong(
            f"{case}: all shapes are right, but the outputs are not those of the whole layers "
            "with the other channels "
            f"silent. Other {'numbers' if any(parts) else 'settings (stride, border, eps)'} than "
            "expected stand in the "
            f"{' and the '.join(names) or 'layers'}."
        )


def keep_apart(found, right, which):
    """Whether one of the three layers holds other numbers."""
    mine, wanted = found[which].state_dict(), right[which].state_dict()
    return any(not torch.equal(mine[key], wanted[key]) for key in wanted)


def silenced(trio, keep):
    """Copies of the whole layers, in which a channel that is not kept sends 0."""
    writer, norm, reader = copy.deepcopy(trio)
    gone = torch.ones(len(norm.weight), dtype=torch.bool)
    gone[keep] = False
    norm.weight.data[gone], norm.bias.data[gone] = 0, 0
    return writer, norm, reader


def run_trio(trio, x):
    writer, norm, reader = trio
    x = torch.relu(norm(writer(x)))
    return reader(x.flatten(1) if isinstance(reader, nn.Linear) else x)


def distillation_loss(student, teacher, labels, temperature, share):
    from torch.nn.functional import cross_entropy, kl_div, log_softmax, softmax

    soft = kl_div(
        log_softmax(student / temperature, 1),
        softmax(teacher / temperature, 1),
        reduction="batchmean",
    )
    return share * temperature**2 * soft + (1 - share) * cross_entropy(student, labels)


def reversed_kl(student, teacher, labels, temperature, share):
    hard = distillation_loss(student, teacher, labels, temperature, 0)
    return share * distillation_loss(teacher, student, labels, temperature, 1) + (1 - share) * hard


def over_images(student, teacher, labels, temperature, share):
    hard = distillation_loss(student, teacher, labels, temperature, 0)
    soft = (
        len(teacher.T)
        / len(teacher)
        * distillation_loss(
            student.T, teacher.T, torch.zeros(len(student.T)).long(), temperature, 1
        )
    )
    return share * soft + (1 - share) * hard


MISTAKES = {
    "The divergence is the other way round: the teacher's probabilities stand first": reversed_kl,
    "Its softmax goes over the images; the classes are dim 1": over_images,
    "The factor temperature ** 2 is missing": lambda s, t, y, temperature, share: (
        distillation_loss(s, t, y, temperature, share / temperature**2)
        + (share / temperature**2 - share) * distillation_loss(s, t, y, temperature, 0)
    ),
}


def verify_distillation_loss(answer):
    answer = untouched(answer)
    chance = torch.Generator().manual_seed(1)
    cases = {
        "temperature 1, only the teacher": (1.0, 1.0),
        "temperature 4, only the teacher": (4.0, 1.0),
        "temperature 4, only the labels": (4.0, 0.0),
        "temperature 2, 0.9 from the teacher": (2.0, 0.9),
        "temperature 5, 0.3 from the teacher": (5.0, 0.3),
        "a hundred times as sure, temperature 1.5, 0.7 from the teacher": (1.5, 0.7),
    }
    for case, (temperature, share) in cases.items():
        for images, classes in ((6, 10), (3, 4)):
            sure = 200 if "as sure" in case else 2  # a probability can round to 0
            student, teacher = sure * torch.randn(2, images, classes, generator=chance)
            labels = torch.randint(classes, (images,), generator=chance)
            asked = (student, teacher, labels, temperature, share)
            (wanted, found), slopes = zip(
                *(slope(f, *asked) for f in (distillation_loss, answer)), strict=True
            )
            sizes = [float(each.norm()) for each in slopes]
            apart = float((slopes[0] - slopes[1]).norm())
            longer, along = (
                sizes[1] / sizes[0],
                float(torch.cosine_similarity(*(s.flatten() for s in slopes), dim=0)),
            )
            how = f"{longer:.3g} times the right length" if along > 0.9999 else "another direction"
            for words, mistake in MISTAKES.items():
                if share > 0 and torch.allclose(
                    slope(mistake, *asked)[1], slopes[1], atol=1e-4 * sizes[0]
                ):
                    how += f". {words}"
            expect(
                apart <= 1e-4 * max(sizes[0], 1e-3),
                f"{case}, {images} images of {classes} classes: the gradient at the student's "
                "logits is wrong. It has "
                f"{how}.",
            )
            expect(
                abs(found - wanted) <= 1e-4 * max(wanted, 1),
                f"{case}, {images} images of {classes} classes: the gradient is right, but the "
                f"loss is {found:.4g}, "
                f"not {wanted:.4g}. A cross-entropy with the teacher's probabilities, for "
                "example, is larger by their "
                "entropy.",
            )


def slope(function, student, teacher, labels, temperature, share):
    """(loss, its gradient at the student's logits).

    A constant, as the teacher's entropy, shows in the first only.
    """
    student, teacher = student.clone().requires_grad_(), teacher.clone()
    loss = function(student, teacher, labels, temperature, share)
    is_number = isinstance(loss, torch.Tensor) and loss.dim() == 0
    expect(
        is_number,
        f"Expected the loss of the batch, a torch tensor with one number; found {shorten(loss)}.",
    )
    expect(loss.requires_grad, "The loss does not depend on the student's logits.")
    loss.backward()
    return float(loss.detach()), student.grad


def evened(logits, temperature):
    probabilities = torch.softmax(logits / temperature, dim=1)
    largest, first = probabilities.max(dim=1, keepdim=True)
    rest = (1 - largest) / (logits.shape[1] - 1)
    even = rest.expand_as(logits).scatter(1, first, largest)
    return temperature * even.log()


# at T = 2: 0.665, 0.245, 0.090; evened: 0.665, 0.167, 0.167
BY_HAND = torch.tensor([[4.0, 2.0, 0.0]])


def verify_evened(answer):
    answer = untouched(answer)
    rng = torch.Generator().manual_seed(3)
    cases = {
        "the logits 4, 2, 0 at T = 2, worked by hand": (BY_HAND, 2.0),
        "6 images of 10 classes, T = 4": (3 * torch.randn(6, 10, generator=rng), 4.0),
        "5 images of 3 classes, T = 1": (3 * torch.randn(5, 3, generator=rng), 1.0),
        "4 images of 2 classes, T = 2": (torch.randn(4, 2, generator=rng), 2.0),
    }
    for case, (logits, temperature) in cases.items():
        outputs = answer(logits.clone(), temperature)
        expect(
            isinstance(outputs, torch.Tensor),
            f"{case}: expected a torch tensor, found {shorten(outputs)}.",
        )
        shapes = f"{case}: expected the shape {tuple(logits.shape)}, found {tuple(outputs.shape)}."
        expect(outputs.shape == logits.shape, shapes)
        _check_evened(case, outputs, logits, temperature)


def _check_evened(case, outputs, logits, temperature):
    """Raise `Wrong` unless the softmax of the outputs at this temperature is the teacher's, its
    rest made even.
    """
    right = torch.softmax(evened(logits, temperature) / temperature, 1)
    given = torch.softmax(outputs / temperature, 1)
    expect(bool(given.isfinite().all()), f"{case}: some of your logits are not finite.")
    same_choice = torch.equal(given.argmax(1), right.argmax(1))
    expect(
        same_choice,
        f"{case}: the softmax of your logits / T has another first choice than the teacher.",
    )
    as_sure = torch.allclose(given.max(1).values, right.max(1).values, atol=1e-4)
    expect(as_sure, f"{case}: the first choice should keep its probability at the temperature T.")
    expect(
        torch.allclose(given, right, atol=1e-4),
        f"{case}: the other classes should be equally probable.",
    )


def teacher_verdict(taught, labelled, worth):
    gains = np.asarray(taught, dtype=float) - np.asarray(labelled, dtype=float)
    if len(gains) < 2:
        return "cannot tell"
    reach = stdtrit(len(gains) - 1, 0.975) * gains.std(ddof=1) / len(gains) ** 0.5
    if gains.mean() - reach >= worth:
        return "teach"
    if gains.mean() + reach < worth:
        return "labels will do"
    return "cannot tell"


# {case: (taught, labelled, worth, verdict)}; t is 12.7, 4.30 and 2.78 for 2, 3 and 5 pairs
VERDICTS = {
    "gains of 0.9, 1.0, 1.1, which reach 0.25": ([90.9, 91.0, 91.1], [90, 90, 90], 0.5, "teach"),
    "the same gains, where only 1 point is worth it": (
        [90.9, 91.0, 91.1],
        [90, 90, 90],
        1.0,
        "cannot tell",
    ),
    "the same gains, where only 1.5 points are worth it": (
        [90.9, 91.0, 91.1],
        [90, 90, 90],
        1.5,
        "labels will do",
    ),
    "gains of 0.1, 0, -0.1, which reach 0.25": (
        [90.1, 90.0, 89.9],
        [90, 90, 90],
        0.5,
        "labels will do",
    ),
    "gains of 1.4, 1.0, 0.6, which reach 0.99": (
        [91.4, 91.0, 90.6],
        [90, 90, 90],
        0.5,
        "cannot tell",
    ),
    "losses of 1 point": ([89.1, 89.0, 88.9], [90, 90, 90], 0.5, "labels will do"),
    "pairs that rise and fall together, gains 0.9, 1.0, 1.1": (
        [80.9, 86.0, 93.1],
        [80, 85, 92],
        0.5,
        "teach",
    ),
    "two pairs, gains 1.0 and 1.2, which reach 1.27": ([91.0, 91.2], [90, 90], 0.5, "cannot tell"),
    "five pairs, gains 0.4 to 1.2, which reach 0.39": (
        [90.4, 91.2, 90.8, 90.6, 91.0],
        [90] * 5,
        0.3,
        "teach",
    ),
    "one pair": ([95.0], [90.0], 0.5, "cannot tell"),
}


def verify_teacher_verdict(answer):
    answer = untouched(answer)
    for case, (taught, labelled, worth, expected) in VERDICTS.items():
        for kind in (np.array, list):
            with np.errstate(all="ignore"):
                verdict = answer(kind(taught), kind(labelled), worth)
            expect(isinstance(verdict, str), f"{case}: expected a text, found {shorten(verdict)}.")
            expect(
                verdict == expected,
                f"{case}; worth {worth}: expected {expected!r}, found {verdict!r}.",
            )


EXERCISES = (
    Exercise(
        id="remove-channels",
        task="Cut channels out of a layer, its batch norm and the layer that reads them.",
        difficulty=3,
        minutes=15,
        hint="What a channel has: a row of the writer's weight (and a number of its bias, if it "
        "has one), four numbers "
        "of the norm (weight, bias, running_mean, running_var), and a slice of the reader's "
        "weight along dim 1. Behind "
        "a Flatten the channel is a run of neighbouring columns: give the weight the shape "
        "(outputs, channels, numbers "
        "per channel) first.",
        reference=remove_channels,
        verify=verify_remove_channels,
    ),
    Exercise(
        id="distillation-loss",
        task="Write the loss of a student that learns from the labels and from its teacher's "
        "softened answers.",
        difficulty=2,
        minutes=8,
        hint="torch's kl_div wants log-probabilities first and probabilities second; its gradient "
        "shrinks by T², so "
        "multiply by T². The labels see the logits at temperature 1.",
        reference=distillation_loss,
        verify=verify_distillation_loss,
    ),
    Exercise(
        id="evened",
        task="Write the control: a teacher that says how sure it is, and not what "
        "an image resembles.",
        difficulty=2,
        importance=3,
        minutes=8,
        hint="Softmax at the temperature, its largest number in each row (keepdim=True), and the "
        "rest divided among "
        "the other classes. Logits of given probabilities are T times their logarithm. `scatter` "
        "puts numbers where "
        "indices say.",
        reference=evened,
        verify=verify_evened,
        imports="import torch",
    ),
    Exercise(
        id="teacher-verdict",
        task="Write the verdict: does the teacher help its student, or would the "
        "labels alone have done?",
        difficulty=2,
        importance=3,
        minutes=8,
        hint="One array of gains, seed by seed; its mean and how far its interval reaches. Ask "
        "for the number of pairs "
        "first, then compare both ends of the interval with `worth`.",
        reference=teacher_verdict,
        verify=verify_teacher_verdict,
        imports="import numpy as np\nfrom scipy.special import stdtrit",
    ),
)
