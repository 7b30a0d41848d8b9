"""Exercises of lesson 15: removing channels from neighbouring layers, the loss of distillation."""

import copy

import torch
from torch import nn

from labkit.lesson.exercises import Exercise, Wrong, expect, shorten, untouched


def remove_channels(writer, norm, reader, keep):
    import copy

    from torch import nn

    writer, norm, reader = copy.deepcopy((writer, norm, reader))
    columns = reader.weight.view(len(reader.weight), len(norm.weight), -1)[:, keep]
    reader.weight = nn.Parameter(columns.reshape(len(columns), -1, *reader.weight.shape[2:]))
    writer.weight = nn.Parameter(writer.weight[keep])
    norm.weight, norm.bias = nn.Parameter(norm.weight[keep]), nn.Parameter(norm.bias[keep])
    norm.running_mean, norm.running_var = norm.running_mean[keep], norm.running_var[keep]
    return writer, norm, reader


def verify_remove_channels(answer):
    layers = {
        "a 3x3 convolution reads": (nn.Conv2d(3, 7, 3, bias=False), nn.BatchNorm2d(7), nn.Conv2d(7, 5, 3)),
        "a 1x1 convolution reads": (nn.Conv2d(2, 6, 1, bias=False), nn.BatchNorm2d(6), nn.Conv2d(6, 4, 1, bias=False)),
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
            shape = (6, 9) if writes_numbers(trio) else (6, trio[0].in_channels, *((7, 6) if count != 6 else (4, 3)))
            x = torch.randn(shape, generator=chance)
            check_removal(f"{case}; {count} channels, keep {keep.tolist()}", answer, trio, keep, x)


def writes_numbers(trio):
    return isinstance(trio[0], nn.Linear)


def check_removal(case, answer, trio, keep, x):
    """The smaller layers must compute what the whole ones do when the other channels are silent."""
    before = [copy.deepcopy(layer.state_dict()) for layer in trio]
    found = answer(*trio, keep.clone())
    same = all(torch.equal(a[key], b.state_dict()[key]) for a, b in zip(before, trio, strict=True) for key in a)
    expect(same, f"{case}: the given layers have changed. The caller still needs them: change copies.")
    expect(
        isinstance(found, (tuple, list)) and len(found) == 3 and all(isinstance(each, nn.Module) for each in found),
        f"{case}: expected three layers, found {shorten(found)}.",
    )
    for name, mine, given in zip(("writer", "norm", "reader"), found, trio, strict=True):
        expect(type(mine) is type(given), f"{case}: the {name} should stay a {type(given).__name__}.")
        other_mode = name == "norm" and mine.training  # the other two compute the same in both modes
        expect(not other_mode, f"{case}: the norm was in eval mode, and is no longer.")
        missing = sorted(set(given.state_dict()) ^ set(mine.state_dict()))
        expect(not missing, f"{case}: the {name} has other parameters than before: {missing}.")
        learns = [key for key, _ in given.named_parameters()]
        expect([key for key, _ in mine.named_parameters()] == learns, f"{case}: the {name} must learn {learns}.")
        trained = all(p.is_leaf and p.requires_grad for p in mine.parameters())
        expect(trained, f"{case}: a weight of the {name} cannot be trained.")
    for name, mine, wanted in zip(("writer", "norm", "reader"), found, remove_channels(*trio, keep), strict=True):
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
        given.shape == wanted.shape, f"{case}: {sizes}. Has each new layer the stride and the border of the old one?"
    )
    if not torch.allclose(wanted, given, atol=1e-4, rtol=1e-4):
        names = [name for name, apart in zip(("writer", "norm", "reader"), parts, strict=True) if apart]
        raise Wrong(
            f"{case}: all shapes are right, but the outputs are not those of the whole layers with the other channels "
            f"silent. Other {'numbers' if any(parts) else 'settings (stride, border, eps)'} than expected stand in the "
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

    soft = kl_div(log_softmax(student / temperature, 1), softmax(teacher / temperature, 1), reduction="batchmean")
    return share * temperature**2 * soft + (1 - share) * cross_entropy(student, labels)


def reversed_kl(student, teacher, labels, temperature, share):
    hard = distillation_loss(student, teacher, labels, temperature, 0)
    return share * distillation_loss(teacher, student, labels, temperature, 1) + (1 - share) * hard


def over_images(student, teacher, labels, temperature, share):
    hard = distillation_loss(student, teacher, labels, temperature, 0)
    soft = (
        len(teacher.T)
        / len(teacher)
        * distillation_loss(student.T, teacher.T, torch.zeros(len(student.T)).long(), temperature, 1)
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
            (wanted, found), slopes = zip(*(slope(f, *asked) for f in (distillation_loss, answer)), strict=True)
            sizes = [float(each.norm()) for each in slopes]
            apart = float((slopes[0] - slopes[1]).norm())
            longer, along = sizes[1] / sizes[0], float(torch.cosine_similarity(*(s.flatten() for s in slopes), dim=0))
            how = f"{longer:.3g} times the right length" if along > 0.9999 else "another direction"
            for words, mistake in MISTAKES.items():
                if share > 0 and torch.allclose(slope(mistake, *asked)[1], slopes[1], atol=1e-4 * sizes[0]):
                    how += f". {words}"
            expect(
                apart <= 1e-4 * max(sizes[0], 1e-3),
                f"{case}, {images} images of {classes} classes: the gradient at the student's logits is wrong. It has "
                f"{how}.",
            )
            expect(
                abs(found - wanted) <= 1e-4 * max(wanted, 1),
                f"{case}, {images} images of {classes} classes: the gradient is right, but the loss is {found:.4g}, "
                f"not {wanted:.4g}. A cross-entropy with the teacher's probabilities, for example, is larger by their "
                "entropy.",
            )


def slope(function, student, teacher, labels, temperature, share):
    """(loss, its gradient at the student's logits). A constant, as the teacher's entropy, shows in the first only."""
    student, teacher = student.clone().requires_grad_(), teacher.clone()
    loss = function(student, teacher, labels, temperature, share)
    is_number = isinstance(loss, torch.Tensor) and loss.dim() == 0
    expect(is_number, f"Expected the loss of the batch, a torch tensor with one number; found {shorten(loss)}.")
    expect(loss.requires_grad, "The loss does not depend on the student's logits.")
    loss.backward()
    return float(loss.detach()), student.grad


EXERCISES = (
    Exercise(
        id="remove-channels",
        task="Cut channels out of a layer, its batch norm and the layer that reads them.",
        difficulty=3,
        minutes=15,
        hint="What a channel has: a row of the writer's weight, four numbers of the norm (weight, bias, running_mean, "
        "running_var), and a slice of the reader's weight along dim 1. Behind a Flatten the channel is a run of "
        "neighbouring columns: give the weight the shape (outputs, channels, numbers per channel) first.",
        reference=remove_channels,
        verify=verify_remove_channels,
    ),
    Exercise(
        id="distillation-loss",
        task="Write the loss of a student that learns from the labels and from its teacher's softened answers.",
        difficulty=2,
        minutes=8,
        hint="torch's kl_div wants log-probabilities first and probabilities second; its gradient shrinks by T², so "
        "multiply by T². The labels see the logits at temperature 1.",
        reference=distillation_loss,
        verify=verify_distillation_loss,
    ),
)
