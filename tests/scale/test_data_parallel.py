"""Gradients of several workers against one worker's, for every way; rings and trees against a plain sum."""

import copy

import pytest
import torch

from labkit.methods.ghost_batch_norm import with_ghost_batch_norm
from labkit.models.cnn import tiny
from labkit.scale import data_parallel
from labkit.scale.processes import Team

pytestmark = pytest.mark.slow  # each team of workers starts for seconds


@pytest.fixture(scope="module", params=[2, 3])
def team(request):
    with Team(request.param) as team:
        yield team


@pytest.fixture
def problem():
    torch.manual_seed(0)
    return tiny().eval(), torch.randn(48, 1, 14, 14), torch.randint(10, (48,))


def close(found, wanted):
    return float((found - wanted).norm() / wanted.norm()) < 1e-6


def both_sums(length):
    """In a worker: the sum of arrays that differ from worker to worker, by ring and by tree."""
    mine = torch.arange(float(length)) + 100 * torch.distributed.get_rank()
    return data_parallel.ring_all_reduce(mine.clone()), data_parallel.tree_all_reduce(mine.clone())


@pytest.mark.parametrize("length", [1, 7, 60])
def test_ring_and_tree_give_every_worker_the_sum(team, length):
    k = team.size
    wanted = k * torch.arange(float(length)) + 100 * sum(range(k))
    for sums in team.run(both_sums, length):
        assert all(torch.equal(found, wanted) for found in sums)


@pytest.mark.parametrize("way", data_parallel.WAYS)
@pytest.mark.parametrize("images", [48, 47])
def test_every_way_gives_every_worker_the_gradient_of_the_whole_batch(team, problem, way, images):
    network, x, y = problem
    alone = data_parallel.alone(network, x[:images], y[:images])
    found = team.run(data_parallel.WAYS[way], network, x[:images], y[:images])
    assert all(close(each, alone) for each in found)
    assert all(torch.equal(each, found[0]) for each in found)


@pytest.mark.parametrize("way", ["by hand", "DDP"])
def test_workers_with_batch_norm_compute_ghost_batch_norm_and_not_batch_norm(team, problem, way):
    network, x, y = problem
    network.train()
    found = team.run(data_parallel.WAYS[way], network, x, y)[0]
    ghosts = with_ghost_batch_norm(copy.deepcopy(network), len(x) // team.size)
    assert close(found, data_parallel.alone(ghosts, x, y))
    assert not close(found, data_parallel.alone(copy.deepcopy(network), x, y))
