"""The alpha-beta model: against numbers worked out by hand, and against times made from known constants."""

import numpy as np
import pytest
import torch
import torch.distributed as dist

from labkit.errors import MeasureError
from labkit.scale.link import Link, exchange, exposed, fit, there_and_back, timed, two_levels
from labkit.scale.processes import Team

MILLISECOND = Link(latency_s=1e-3, bytes_per_s=1e9)
SIZES = np.array([2.0**power for power in range(10, 24, 2)])


def test_collectives_take_what_was_worked_out_by_hand():
    assert MILLISECOND.message(2e6) == pytest.approx(3e-3)
    assert MILLISECOND.ring(8e6, 4) == pytest.approx(6 * 3e-3)  # 6 messages of 2 MB
    assert MILLISECOND.tree(8e6, 4) == pytest.approx(4 * 9e-3)  # 2 levels up, 2 down, 8 MB each
    assert MILLISECOND.tree(8e6, 5) == pytest.approx(6 * 9e-3)
    assert MILLISECOND.ring(8e6, 1) == MILLISECOND.tree(8e6, 1) == 0


def test_a_ring_of_many_is_bound_by_twice_the_bytes_and_by_its_latencies():
    free = Link(0.0, 1e9)
    assert free.ring(1e9, 10_000) == pytest.approx(2, rel=1e-3)
    assert MILLISECOND.ring(0, 101) == pytest.approx(0.2)


def test_the_fit_finds_the_constants_that_made_the_times():
    found = fit(SIZES, 2e-4 + SIZES / 5e8)
    assert found.latency_s == pytest.approx(2e-4)
    assert found.bytes_per_s == pytest.approx(5e8)


def test_the_fit_weighs_small_and_large_messages_alike():
    noise = np.where(np.arange(len(SIZES)) % 2, 1.1, 0.9)
    found = fit(SIZES, (2e-4 + SIZES / 5e8) * noise)
    assert found.latency_s == pytest.approx(2e-4, rel=0.15)
    assert found.bytes_per_s == pytest.approx(5e8, rel=0.15)


def test_times_that_do_not_grow_have_no_bandwidth():
    with pytest.raises(MeasureError, match="did not take longer"):
        fit(SIZES, 1 / SIZES)


def test_servers_of_one_gpu_are_a_ring_and_a_single_server_needs_no_network():
    inside, between = Link(1e-6, 1e11), MILLISECOND
    assert two_levels(8e6, 4, 1, inside=inside, between=between) == pytest.approx(between.ring(8e6, 4))
    assert two_levels(8e6, 1, 8, inside=inside, between=between) == pytest.approx(inside.ring(8e6, 8))


def test_what_fits_under_the_backward_pass_is_not_waited_for():
    assert exposed(0.1, 0.3, overlap=True) == 0
    assert exposed(0.4, 0.3, overlap=True) == pytest.approx(0.1)
    assert exposed(0.4, 0.3, overlap=False) == 0.4


def exchanged_and_brought_back():
    """In a worker: its tensor after an exchange, and after a way to the other one and back."""
    here, there = (torch.full((5,), 1.0 + dist.get_rank()) for _ in range(2))
    exchange(here)
    there_and_back(there)
    return here[0].item(), there[0].item()


def test_workers_exchange_messages_and_time_them_in_the_same_order():
    ways = {"exchange": (exchange, [64, 4096]), "there and back": (there_and_back, [1024])}
    with Team(2) as team:
        assert team.run(exchanged_and_brought_back) == [(3.0, 1.0), (3.0, 1.0)]
        for found in team.run(timed, ways, 4):
            assert {name: times.shape for name, times in found.items()} == {
                "exchange": (2, 4),
                "there and back": (1, 4),
            }
            assert all((times > 0).all() for times in found.values())
