"""The training loop: learns, repeats itself, and its accuracy counts right."""

import pytest
import torch

from labkit.data import load
from labkit.models.cnn import SIZES, cnn
from labkit.train import TrainConfig, accuracy, fit, train_step


@pytest.fixture(scope="module")
def images():
    return load("fashion-mnist", "train", limit=1000)


def trained(images, seed=0):
    torch.manual_seed(0)
    model = cnn(8)
    return model, fit(model, images, TrainConfig(epochs=2, batch=50, seed=seed), device="cpu").losses


def test_a_step_is_plain_gradient_descent_worked_by_hand():
    model = torch.nn.Linear(2, 2, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    loss = train_step(model, optimizer, torch.tensor([[1.0, 2.0]]), torch.tensor([0]))
    # softmax of zeros is one half each; the gradient of the logits is (-1/2, 1/2)
    assert loss.item() == pytest.approx(0.6931472)
    assert torch.allclose(model.weight, torch.tensor([[0.5, 1.0], [-0.5, -1.0]]))


def test_training_lowers_the_loss_and_gives_one_loss_a_step(images):
    _, losses = trained(images)
    assert len(losses) == 2 * (1000 // 50)
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])


def test_the_same_seed_gives_the_same_losses_and_another_seed_others(images):
    assert trained(images)[1] == trained(images)[1]
    assert trained(images)[1] != trained(images, seed=7)[1]


def test_accuracy_counts_what_a_plain_loop_counts(images):
    model, _ = trained(images)
    part = images.subset(130)
    counted = accuracy(model, part, device="cpu", batch=50)
    with torch.inference_mode():
        right = [
            int(model(x).argmax() == y) for xs, ys in part.batches(1) for x, y in zip(xs[None], ys[None], strict=True)
        ]
    assert counted == pytest.approx(sum(right) / 130)
    assert not model.training


@pytest.mark.parametrize("width", SIZES.values())
def test_the_network_has_the_shape_and_size_its_docstring_says(width):
    model = cnn(width, channels=3, classes=7)
    assert model(torch.zeros(2, 3, 28, 28)).shape == (2, 7)
    # two 3x3 convolutions and two batch norms a block, then the linear layer
    by_hand, before = 0, 3
    for after in (width, 2 * width, 4 * width):
        by_hand += 9 * before * after + 9 * after * after + 4 * after
        before = after
    assert sum(weight.numel() for weight in model.parameters()) == by_hand + 4 * width * 7 + 7
