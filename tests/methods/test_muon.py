"""Muon: its equation against the singular values and against torch's; which weights it leaves to
AdamW.
"""

import pytest
import torch
from made_up import network, shapes

from labkit.methods.muon import Muon, _orthogonal
from labkit.train import TrainConfig, fit


@pytest.mark.parametrize("shape", [(12, 40), (40, 12), (7, 7)])
def test_a_matrix_made_orthogonal_has_singular_values_near_one_and_its_own_directions(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    found = u.T @ _orthogonal(matrix) @ v.T  # the singular values, where the directions are its own
    assert ((found.diag() > 0.5) & (found.diag() < 1.3)).all()
    assert (found - found.diag().diag()).abs().max() < 0.05


class Layers(torch.nn.Module):
    """Three matrices and three vectors."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.hidden, self.head = (
            torch.nn.Linear(5, 8),
            torch.nn.Linear(8, 6),
            torch.nn.Linear(6, 3),
        )


def trained(make, steps=4):
    """{name: weight} after steps along the same made-up gradients."""
    model, random = Layers(), torch.Generator().manual_seed(1)
    optimizer = make(model)
    for _ in range(steps):
        for weight in model.parameters():
            weight.grad = torch.randn(weight.shape, generator=random)
        optimizer.step()
    return {name: weight.detach() for name, weight in model.named_parameters()}


def test_a_hidden_matrix_takes_the_steps_of_torch_and_all_other_weights_those_of_adamw():
    rates = {"lr": 0.02, "weight_decay": 0.1}
    ours = trained(lambda model: Muon(model.named_parameters(), betas=(0.95, 0.999), **rates))
    torchs = torch.optim.Muon
    muon = trained(
        lambda model: torchs(
            [model.hidden.weight], momentum=0.95, adjust_lr_fn="match_rms_adamw", **rates
        )
    )
    adamw = trained(
        lambda model: torch.optim.AdamW(model.parameters(), betas=(0.95, 0.999), **rates)
    )
    # in bfloat16
    torch.testing.assert_close(ours.pop("hidden.weight"), muon["hidden.weight"], rtol=0, atol=2e-3)
    for name, weight in ours.items():
        torch.testing.assert_close(weight, adamw[name])


def test_a_convolution_is_a_matrix_with_a_row_per_channel_in_any_layout():
    found = []
    for layout in (torch.contiguous_format, torch.channels_last):
        convolution = torch.nn.Parameter(torch.zeros(6, 4, 3, 3).to(memory_format=layout))
        ends = [torch.nn.Parameter(torch.ones(2, 2)) for _ in range(2)]
        named = [("first", ends[0]), ("hidden", convolution), ("last", ends[1])]
        optimizer = Muon(named, 1.0, (0.0, 0.999), 0.0)
        convolution.grad = torch.randn(6, 4, 3, 3, generator=torch.Generator().manual_seed(0)).to(
            memory_format=layout
        )
        optimizer.step()
        found.append(convolution.detach().contiguous())
    torch.testing.assert_close(*found)
    values = torch.linalg.svdvals(found[0].flatten(1)) / (0.2 * 36**0.5)
    assert ((values > 0.5) & (values < 1.3)).all()


def test_its_name_switches_it_on_and_it_learns():
    model = network().insert(3, torch.nn.Conv2d(6, 6, 3, padding=1))
    before = model[3].weight.detach().clone()
    history = fit(
        model, shapes(40), TrainConfig(batch=20, epochs=20, optimizer="muon"), device="cpu"
    )
    assert history.losses[-1] < history.losses[0] / 2
    moved = torch.linalg.svdvals((model[3].weight.detach() - before).flatten(1))
    assert moved[-1] > moved[0] / 20  # in every direction
