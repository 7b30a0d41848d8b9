"""The noise flag from counters worked out by hand, and on this machine that it can be read at
all.
"""

import numpy as np
import pytest

from labkit.device import Quota
from labkit.measure.noise import Usage, drift, noise_of, read_usage, spread

STEADY = np.ones(100)


def window(**after):
    """The verdict on a second of two cores in which this process used one of them."""
    start = {"wall": 0.0, "cores": 2, "busy": 0.0, "process": 0.0, "stolen": 0.0, "waited": 0.0}
    return noise_of(
        Usage(**start),
        Usage(**{**start, "wall": 1.0, "busy": 1.0, "process": 1.0, **after}),
        STEADY,
    )


def test_a_quiet_window_is_not_noisy():
    assert window() == noise_of(Usage(0, 2, 0, 0, 0, 0), Usage(1, 2, 1.0, 1.0, 0, 0), STEADY)
    assert not window().noisy and window().why is None and not window().diluted


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ({"busy": 1.5}, "other processes used 25 % of the cores"),
        ({"stolen": 0.2}, "other machines took 10 % of the cores"),
        ({"waited": 0.3}, "the thread waited 30 % of the time"),
        ({"cpu_throttles": 2}, "the CPU slowed down for heat"),
        ({"gpu_throttle": "power cap"}, "the GPU slows itself down: power cap"),
        ({"other_gpu_processes": 1}, "1 other processes on the GPU"),
    ],
)
def test_each_cause_is_named(after, why):
    assert window(**after).noisy
    assert window(**after).why == why


def test_a_thread_works_alone_when_it_computes_or_waits_all_the_time_and_no_other_does():
    start, busy = Usage(0, 2, 0, 0, 0, 0, 0), {"busy": 1.6, "waited": 0.4}
    assert noise_of(start, Usage(1, 2, process=0.6, computed=0.6, **busy), STEADY).alone
    # another thread computed
    assert not noise_of(start, Usage(1, 2, process=1.1, computed=0.6, **busy), STEADY).alone
    assert not noise_of(
        start, Usage(1, 2, process=0.3, computed=0.3, **busy), STEADY
    ).alone  # it slept, or waited for a disk
    crowded = {"busy": 1.6, "waited": 0.86}
    assert noise_of(start, Usage(1, 2, process=0.14, computed=0.14, **crowded), STEADY).alone
    # it slept 0.04 s
    assert not noise_of(start, Usage(1, 2, process=0.1, computed=0.1, **crowded), STEADY).alone


def test_a_little_load_is_forgiven():
    assert not window(busy=1.15).noisy


def test_a_window_too_short_for_the_counters_says_nothing_of_the_load():
    verdict = noise_of(Usage(0.0, 2, 0.0, 0.0), Usage(0.1, 2, 0.2, 0.0), STEADY)
    assert not verdict.diluted and not verdict.noisy


def test_unknown_counters_are_not_noise():
    verdict = noise_of(Usage(0.0, 2), Usage(1.0, 2), STEADY)
    assert not verdict.diluted and not verdict.noisy


def test_wide_and_drifting_samples_are_noise_in_themselves():
    random = np.random.default_rng(0)
    assert "middle half" in noise_of(Usage(0, 2), Usage(1, 2), random.uniform(1, 3, 200)).why
    assert (
        "last third took +20 %"
        in noise_of(Usage(0, 2), Usage(1, 2), np.repeat([1.0, 1.1, 1.2], 50)).why
    )


def test_this_machine_s_counters_go_forward():
    first = read_usage("cpu")
    sum(range(200_000))
    second = read_usage("cpu")
    assert second.wall > first.wall and second.process > first.process
    assert second.busy >= first.busy
    assert first.cores >= 1


@pytest.mark.parametrize(("stopped", "noisy"), [(0, False), (2, False), (40, True)])
def test_a_quota_that_stops_the_process_is_noise_and_is_named(stopped, noisy):
    """A process that stands still neither computes nor waits for a core: no other counter shows
    it.
    """
    before, after = Quota(0.4, 1000, 100), Quota(0.4, 1100, 100 + stopped)
    verdict = noise_of(Usage(0, 2, quota=before), Usage(10, 2, quota=after), STEADY)
    assert verdict.noisy == noisy
    assert verdict.why == (
        "a quota of 0.4 cores stopped it in 40 % of the periods" if noisy else None
    )
    assert not noise_of(Usage(0, 2, quota=None), Usage(10, 2, quota=after), STEADY).noisy
    assert not noise_of(Usage(0, 2, quota=after), Usage(10, 2, quota=after), STEADY).noisy, (
        "no period has passed"
    )


def test_a_constant_series_has_no_spread_and_no_drift():
    assert (spread(STEADY), drift(STEADY)) == (0, 0)


def test_spread_is_the_interquartile_range_over_the_median_and_deaf_to_a_spike():
    assert spread([1, 2, 3, 4, 5]) == pytest.approx(2 / 3)
    assert spread([1, 2, 3, 4, 500]) == pytest.approx(2 / 3)


def test_drift_compares_the_last_third_with_the_first():
    assert drift([1.0] * 10 + [1.5] * 10 + [2.0] * 10) == pytest.approx(1.0)
