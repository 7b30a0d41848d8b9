"""Memory against sizes worked out by hand."""

import torch

from labkit import ledger
from labkit.measure import memory, saved_for_backward

KIB = 1024


def test_tensor_bytes_are_the_most_that_live_at_once():
    x = torch.zeros(256)  # 1 KiB, there before

    def chain():
        a = x + 1  # 1 KiB
        b = a + 1  # 2 KiB alive
        del a
        return b + 1  # 2 KiB alive again

    assert memory(chain, device="cpu").tensor_bytes == 2 * KIB


def test_views_and_in_place_operators_cost_nothing():
    x = torch.zeros(256)
    assert memory(lambda: x.reshape(16, 16).add_(1), device="cpu").tensor_bytes == 0


def test_relu_saves_its_output_once_and_a_linear_layer_its_input_but_not_its_weight():
    x, layer = torch.zeros(4, 64), torch.nn.Linear(64, 128)  # 1 KiB in, 2 KiB out
    assert saved_for_backward(layer, x) == KIB
    assert saved_for_backward(lambda x: layer(x).relu(), x) == 3 * KIB


def test_a_storage_saved_twice_counts_once():
    x = torch.zeros(256, requires_grad=True)
    y = x * 2
    assert saved_for_backward(lambda: (y * y, y.exp().sum())) == 2 * KIB  # y, and exp's output


def test_what_is_saved_for_a_result_that_leads_nowhere_is_freed_and_does_not_count():
    x = torch.ones(256, requires_grad=True) * 2

    def halved_or_not(x):
        near = x.abs() < 3  # abs saves x; the comparison lets go of it
        return torch.where(near, x / 2, x)

    # x for a moment; then the mask of one byte, which is less
    assert saved_for_backward(halved_or_not, x) == KIB


def test_a_step_that_ends_with_its_backward_pass_tells_what_was_kept_until_then():
    layer, x = torch.nn.Linear(64, 128), torch.zeros(4, 64)

    def step():
        loss = layer(x).relu().sum()
        loss.backward()
        return loss.detach()

    assert saved_for_backward(step) == 3 * KIB


def test_nothing_is_saved_without_gradients():
    layer = torch.nn.Linear(64, 64)
    with torch.no_grad():
        assert saved_for_backward(layer, torch.zeros(4, 64)) == 0


def test_a_row_fits_the_ledger_and_shows_what_it_knows(tmp_path):
    row = memory(lambda: torch.ones(256).sum(), device="cpu")
    ledger.add(row, path=tmp_path / "ledger.sqlite")
    assert ledger.load("memories", path=tmp_path / "ledger.sqlite")["saved_bytes"][0] == 0
    assert "tensor 1.03 kB" in row.summary()
