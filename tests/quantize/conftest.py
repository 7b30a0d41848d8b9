"""A small network with sensible weights as an ONNX file, and data to quantize it with."""

import pytest
import torch

from labkit.data import load
from labkit.export import to_onnx
from labkit.models import build


@pytest.fixture(scope="session")
def train():
    return load("fashion-mnist", "train", limit=1000)


@pytest.fixture(scope="session")
def images():
    """(200, 1, 28, 28)"""
    return next(iter(load("fashion-mnist", "test", limit=200).batches(200)))[0]


@pytest.fixture(scope="session")
def network(train):
    """Twenty steps of plain SGD give weights and activations somewhat like those of a trained
    network.
    """
    torch.manual_seed(0)
    model, _ = build("cnn-medium")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for batch, labels in train.batches(50, seed=0):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch), labels).backward()
        optimizer.step()
    return model.eval()


@pytest.fixture(scope="session")
def onnx_file(network, images, tmp_path_factory):
    return to_onnx(network, images[:2], tmp_path_factory.mktemp("onnx") / "net.onnx")
