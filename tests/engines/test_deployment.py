"""Serving a model: the row says what was measured, on what, and why something is missing."""

import pytest
import torch
from safetensors.torch import load_file

from labkit.data import load
from labkit.engines import deployment
from labkit.measure import Plan
from labkit.models.cnn import cnn


@pytest.fixture(scope="module")
def test_set():
    return load("fashion-mnist", "test", limit=100)


def test_a_candidate_keeps_accuracy_and_the_size_of_the_file_it_wrote(test_set, own_artifacts):
    torch.manual_seed(0)
    found = deployment.candidate("tiny", cnn(4), test_set, device="cpu")
    path = own_artifacts / "models" / "fashion-mnist-tiny.safetensors"
    assert found.size_bytes == path.stat().st_size
    assert 0 <= found.accuracy <= 1
    assert set(load_file(path)) == set(cnn(4).state_dict())


def test_a_deployment_row_holds_what_a_reader_asks(test_set):
    torch.manual_seed(0)
    found = deployment.candidate("tiny", cnn(4), test_set, device="cpu")
    images = torch.zeros(8, 1, 28, 28)
    row = deployment.deploy(found, images, plan=Plan(seconds=0.2), usd_per_hour=0.36)
    assert (row.batch, row.device, row.engine, row.precision) == (8, "cpu", "eager", "fp32")
    assert row.throughput_per_s == pytest.approx(8 / row.latency_p50_ms * 1e3)
    assert row.cost_per_million_usd == pytest.approx(100 / row.throughput_per_s)
    weights = sum(tensor.nbytes for tensor in found.model.state_dict().values())
    assert row.memory_bytes > weights + 8 * 28 * 28 * 4
    assert row.energy_per_item_j is not None or row.reason


def test_a_cost_without_a_price_is_unknown_not_zero():
    assert deployment.cost_per_million(None, 100.0) is None
    assert deployment.cost_per_million(0.36, 100.0) == pytest.approx(1.0)
