"""Calls measured in turn, on the simulated machine, whose true ratios are known."""

import numpy as np
import pytest
from scipy.stats import binom

from labkit.errors import LabError, MeasureError
from labkit.lesson import verdicts
from labkit.measure import SimulatedMachine, in_turn
from labkit.measure.turns import NULL_ARM, Times, floor_of


def measured(machine, *, seconds=1.0, turns="series", seed=0, **true_seconds):
    calls = {name: machine.work(true_s) for name, true_s in true_seconds.items()}
    return in_turn(calls, seconds=seconds, turns=turns, seed=seed, device=machine.clock)


def test_a_ratio_is_the_time_of_the_first_call_over_that_of_the_other_in_the_same_round():
    seconds = np.array([[6e-3, 3e-3, 5e-3], [8e-3, 2e-3, 8e-3], [4e-3, 2e-3, 8e-3]])
    times = Times(("old", "new"), seconds)
    assert times.ratios("new").tolist() == [2, 4, 2]
    assert times.ratios(NULL_ARM).tolist() == [1.2, 1, 0.5]
    assert times["new"].median == 2
    assert times.milliseconds("new").median == pytest.approx(2)


@pytest.mark.parametrize(("end", "floor"), [(1.25, 0.25), (0.8, 0.25), (1.0, 0.0)])
def test_the_floor_is_a_factor_so_that_its_band_holds_the_interval_of_the_same_code(end, floor):
    assert floor_of(np.full(20, end)) == pytest.approx(floor)
    assert floor_of(np.full(3, end)) == np.inf, "too few rounds"


@pytest.mark.parametrize("rounds", [6, 11, 40, 101])
def test_the_interval_ends_at_the_ranks_of_the_binomial_distribution(rounds):
    ratios = np.random.default_rng(rounds).normal(1.2, 0.05, rounds)
    times = Times(("old", "new"), np.column_stack([ratios, np.ones(rounds), ratios]))
    ranks = [rank for rank in range(1, rounds) if binom.cdf(rank - 1, rounds, 0.5) <= 0.025]
    rank = max(ranks)  # as many of the ratios lie below the true median as coins show heads
    assert tuple(times["new"]) == pytest.approx((np.sort(ratios)[rank - 1], np.sort(ratios)[-rank]))


def test_a_machine_without_noise_gives_the_true_ratios_of_all_calls_and_one_for_the_null_arm():
    times = measured(SimulatedMachine(0, jitter=0), old=3e-3, new=2e-3, slow=6e-3)
    assert [times[name].median for name in ("new", "slow")] == pytest.approx([1.5, 0.5])
    assert tuple(times.null) == pytest.approx((1, 1))
    assert times.floor == pytest.approx(0, abs=1e-9)
    assert times.milliseconds("new").median == pytest.approx(2)


@pytest.mark.parametrize(
    ("new", "said"), [(0.9e-3, "faster"), (1.1e-3, "slower"), (1e-3, "not distinguishable")]
)
def test_the_verdict_follows_the_truth(new, said):
    assert measured(SimulatedMachine(1), old=1e-3, new=new)["new"].verdict == said


def test_six_rounds_are_too_few_for_a_verdict():
    ratio = measured(SimulatedMachine(0), old=0.6, new=0.3)["new"]
    assert (ratio.samples, ratio.verdict) == (6, "too few pairs")


def test_a_claim_about_a_ratio_is_judged_with_the_floor_at_both_ends():
    seconds = np.column_stack([np.full(40, 1.04), np.ones(40), np.full(40, 1.04 / 1.05)])
    evidence = verdicts.weigh(Times(("old", "new"), seconds)["new"])
    assert (evidence.low, evidence.high) == pytest.approx((1.04 / 1.05, 1.04 * 1.05))


def test_a_first_call_that_compiles_for_long_leaves_room_for_series():
    """Without another call before the plan, the compiled call would count as one of seconds."""
    machine, calls = SimulatedMachine(0), []

    def compiled():
        calls.append(1)
        machine.time += 2.0 if len(calls) == 1 else 1e-3

    times = in_turn({"plain": machine.work(1e-3), "compiled": compiled}, device=machine.clock)
    assert times.turns == "series"
    assert times["compiled"].median == pytest.approx(1, rel=0.05)


def with_a_cache(turns):
    """A large network and a small one: 2.0 times as fast alone, (3.0 + 0.2) / (1.5 + 0.9) = 1.33
    in alternation.
    """
    machine = SimulatedMachine(3, jitter=0.01)
    calls = {"large": machine.work(3e-3, cold=0.2e-3), "small": machine.work(1.5e-3, cold=0.9e-3)}
    return in_turn(calls, seconds=4, turns=turns, device=machine.clock)


def test_in_series_a_call_finds_its_own_data_in_the_cache_and_where_calls_alternate_that_of_another():
    assert with_a_cache("series")["small"].median == pytest.approx(2.0, rel=0.02)
    assert with_a_cache("calls")["small"].median < 1.5


def test_the_order_is_shuffled_anew_in_every_round():
    def order(seed):
        machine, made = SimulatedMachine(0, jitter=0), []

        def call(name):
            work = machine.work(1e-3)
            return lambda: (made.append(name), work())

        calls = {name: call(name) for name in "ab"}
        in_turn(calls, seconds=0.2, precision=0, turns="calls", seed=seed, device=machine.clock)
        return "".join(made[-60:])  # three calls in each round

    rounds = [order(0)[start : start + 3] for start in range(0, 60, 3)]
    assert {*rounds} == {"aab", "aba", "baa"}
    assert order(0) == order(0) != order(1)


def test_the_precision_that_ends_a_measurement_is_relative_to_the_ratio():
    def rounds(ratio):
        machine = SimulatedMachine(0, jitter=0.05)
        calls = {"first": machine.work(1e-3), "second": machine.work(1e-3 / ratio)}
        times = in_turn(calls, seconds=600, precision=0.01, turns="calls", device=machine.clock)
        return len(times.seconds)

    # the width is looked at when there are 1.4 times as many rounds: so within two such steps
    for ratio in (1 / 20, 20):
        assert 1 / 2.1 < rounds(ratio) / rounds(1) < 2.1


@pytest.mark.slow
def test_drift_spikes_and_two_clock_rates_leave_the_true_ratio_in_the_interval():
    covered = 0
    for seed in range(100):
        machine = SimulatedMachine(seed, jitter=0.02, drift=0.1, spikes=0.05, slow=0.05)
        low, high = measured(machine, seconds=2, seed=seed, old=1.05e-3, new=1e-3)["new"]
        covered += low <= 1.05 <= high
    assert covered / 100 >= 0.90


def test_the_table_has_a_row_for_each_call_and_one_for_the_null_arm():
    times = measured(SimulatedMachine(0, jitter=0), old=3e-3, new=2e-3)
    assert times.frame["call"].tolist() == ["old", "new", NULL_ARM]
    assert times.frame["time (ms)"].tolist() == pytest.approx([3, 2, 3])
    assert "<table" in times._repr_html_()


def test_what_cannot_be_measured_is_refused_with_what_can():
    machine = SimulatedMachine(0)
    with pytest.raises(MeasureError, match="nothing to measure"):
        in_turn({}, device=machine.clock)
    with pytest.raises(LabError, match="series"):
        measured(machine, old=1e-3, turns="rounds")
    with pytest.raises(LabError, match="old"):
        measured(machine, old=1e-3)["new"]
