"""Distillation: the loss against numbers worked out by hand, and what a student learns by it."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from labkit.compress import Distillation, distillation_loss
from labkit.data import load
from labkit.methods import Loss
from labkit.models import build
from labkit.train import TrainConfig, fit

STUDENT = torch.tensor([[0.0, 0.0], [2.0, 0.0]])
TEACHER = torch.tensor([[math.log(3.0), 0.0], [0.0, 0.0]])
LABELS = torch.tensor([0, 1])


def test_the_loss_at_temperature_1_is_the_divergence_by_hand():
    # teacher (3/4, 1/4), student (1/2, 1/2)
    first = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    p = 1 / (1 + math.exp(-2))  # teacher (1/2, 1/2), student (p, 1 - p)
    second = 0.5 * math.log(0.5 / p) + 0.5 * math.log(0.5 / (1 - p))
    found = distillation_loss(STUDENT, TEACHER, LABELS, temperature=1, weight=1)
    assert float(found) == pytest.approx((first + second) / 2, rel=1e-6)


def test_a_temperature_divides_the_logits_and_its_square_multiplies_the_loss():
    found = distillation_loss(STUDENT, TEACHER, LABELS, temperature=3, weight=1)
    wanted = 9 * distillation_loss(STUDENT / 3, TEACHER / 3, LABELS, temperature=1, weight=1)
    assert float(found) == pytest.approx(float(wanted), rel=1e-6)


def test_the_weight_divides_the_loss_between_teacher_and_labels():
    soft, hard = (
        distillation_loss(STUDENT, TEACHER, LABELS, temperature=2, weight=weight)
        for weight in (1, 0)
    )
    assert torch.equal(hard, cross_entropy(STUDENT, LABELS))
    mixed = distillation_loss(STUDENT, TEACHER, LABELS, temperature=2, weight=0.3)
    assert float(mixed) == pytest.approx(0.3 * float(soft) + 0.7 * float(hard), rel=1e-6)


def test_a_student_that_answers_like_the_teacher_has_nothing_to_learn():
    student = TEACHER.clone().requires_grad_()
    loss = distillation_loss(student, TEACHER, LABELS, weight=1)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0, abs=1e-7)
    assert student.grad.abs().max() < 1e-6


def test_at_a_high_temperature_the_gradient_is_the_difference_of_the_logits():
    random = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(8, 10, generator=random, dtype=torch.float64) for _ in range(2))
    student, teacher = (each - each.mean(1, keepdim=True) for each in (student, teacher))
    student.requires_grad_()
    distillation_loss(
        student, teacher, torch.zeros(8, dtype=torch.long), temperature=1000.0, weight=1
    ).backward()
    # equation 4 of the paper, times T^2, the mean over the batch
    wanted = (student.detach() - teacher) / 10 / 8
    assert torch.allclose(student.grad, wanted, rtol=1e-2, atol=1e-5)


def test_a_student_learns_from_the_teacher_alone_and_the_teacher_learns_nothing():
    train = load("fashion-mnist", "train", limit=1024)
    torch.manual_seed(0)
    teacher, student = (
        nn.Sequential(nn.Flatten(), nn.BatchNorm1d(784), nn.Linear(784, 10)) for _ in range(2)
    )
    images, _ = next(iter(train.batches(1024)))
    teacher(images)  # its statistics; what it answers has nothing to do with the labels
    kept = {name: value.clone() for name, value in teacher.state_dict().items()}

    def agree():
        with torch.inference_mode():
            return float(
                (student.eval()(images).argmax(1) == teacher.eval()(images).argmax(1))
                .double()
                .mean()
            )

    before, config = agree(), TrainConfig(epochs=10, batch=64)
    fit(
        student,
        train,
        config,
        device="cpu",
        hooks={"loss": Loss(Distillation(teacher.train(), weight=1))},
    )
    assert before < 0.3  # by chance 0.1
    assert agree() > 0.75
    assert not teacher.training
    assert all(torch.equal(kept[name], value) for name, value in teacher.state_dict().items())


def test_a_teacher_that_is_remembered_is_asked_once_per_image_and_answers_alike():
    asked, teacher = [], build("cnn-small")[0].eval()
    teacher.register_forward_pre_hook(lambda _, given: asked.append(len(given[0])))
    images, labels = torch.rand(6, 1, 28, 28), torch.arange(6)
    plain, remembering = Distillation(teacher), Distillation(teacher, remember=True)
    for order in ([0, 1, 2, 3], [3, 4, 0, 5], [5, 2, 1, 4]):
        logits = torch.randn(4, 10)
        wanted = plain(logits, labels[order], images[order])
        assert float(remembering(logits, labels[order], images[order])) == pytest.approx(
            float(wanted), rel=1e-5
        )
    assert asked == [4, 4, 4, 2, 4]  # by turns: all of a batch, and what is new in it
