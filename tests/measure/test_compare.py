"""Comparisons on the simulated machine, whose true ratios are known."""

import dataclasses

import numpy as np
import pytest

from labkit import ledger
from labkit.errors import LabError, MeasureError
from labkit.measure import Plan, SimulatedMachine, compare
from labkit.measure.compare import verdict
from labkit.measure.rounds import Series, plan_series


def run(machine, baseline=1e-3, arm=1e-3, turns="series", **plan):
    arms = {"old": machine.work(baseline), "new": machine.work(arm)}
    return compare(
        arms, tolerance=0, device=machine.clock, plan=Plan(**{"seconds": 1, **plan}), turns=turns
    )


def test_the_ratio_is_the_time_of_the_baseline_over_the_time_of_the_arm():
    result = run(SimulatedMachine(0, jitter=0), baseline=3e-3, arm=2e-3)
    assert result["new"].median == pytest.approx(1.5)
    assert tuple(result["new"]) == pytest.approx((1.5, 1.5))
    assert (result["new"].baseline_ms, result["new"].arm_ms) == pytest.approx((3, 2))


@pytest.mark.parametrize(
    ("arm", "said"), [(0.9e-3, "faster"), (1.1e-3, "slower"), (1e-3, "not distinguishable")]
)
def test_the_verdict_follows_the_truth(arm, said):
    assert run(SimulatedMachine(1), arm=arm)["new"].verdict == said


def test_slow_calls_get_the_rounds_that_a_verdict_needs_in_up_to_twice_the_time():
    row = run(SimulatedMachine(0, jitter=0.01), baseline=60e-3, arm=30e-3)["new"]
    assert (row.pairs, row.verdict) == (11, "faster")


def test_with_too_few_pairs_there_is_no_verdict():
    row = run(SimulatedMachine(0, jitter=0.01), baseline=600e-3, arm=300e-3)["new"]
    assert (row.pairs, row.verdict) == (6, "too few pairs")
    assert (row.low, row.high) == pytest.approx(
        (min(row.ratios), max(row.ratios)), rel=1e-6
    )  # 97 times of 100 they hold the median


@pytest.mark.slow
@pytest.mark.parametrize(("turns", "seconds"), [("series", 2), ("calls", 1)])
def test_the_interval_covers_the_true_ratio_despite_drift_spikes_and_two_clocks(turns, seconds):
    covered = 0
    for seed in range(200):
        machine = SimulatedMachine(seed, jitter=0.02, drift=0.1, spikes=0.05, slow=0.05)
        row = run(machine, baseline=1.05e-3, turns=turns, seed=seed, seconds=seconds)["new"]
        covered += row.low <= 1.05 <= row.high
    assert 0.90 <= covered / 200 <= 0.99


def run_with_a_cache(seed, turns="series", **plan):
    """A large network and a small one, as in INT8: 2.0 times as fast alone; (3.0 + 0.2) / (1.5 +
    0.9) = 1.33 beside.
    """
    machine = SimulatedMachine(seed, jitter=0.02)
    large, again = (machine.work(3e-3, cold=0.2e-3) for _ in range(2))
    small = machine.work(1.5e-3, cold=0.9e-3)
    plan = Plan(**{"seconds": 2, "seed": seed, **plan})
    arms = {"large": large, "small": small}
    return compare(
        arms, second_session=again, tolerance=0, device=machine.clock, plan=plan, turns=turns
    )


@pytest.mark.slow
def test_series_cover_the_ratio_of_networks_that_run_alone_and_their_first_calls_that_of_calls_in_turn():
    rows = [run_with_a_cache(seed)["small"] for seed in range(100)]
    alone = np.mean([row.low <= 2 <= row.high for row in rows])
    beside = np.mean([row.beside_low <= 3.2 / 2.4 <= row.beside_high for row in rows])
    assert 0.90 <= alone <= 0.99
    assert 0.90 <= beside <= 0.99
    assert all(row.beside_differs and row.turns == "series" for row in rows)


@pytest.mark.slow
def test_single_calls_in_turn_cover_the_ratio_of_networks_that_push_each_other_out_of_the_cache():
    rows = [run_with_a_cache(seed, "calls", seconds=1)["small"] for seed in range(100)]
    # One call in nine follows one of its own function, at the border of two rounds, and widens the
    # interval.
    assert np.mean([row.low <= 3.2 / 2.4 <= row.high for row in rows]) >= 0.90
    assert not any(row.low <= 2 <= row.high for row in rows)
    assert {(row.turns, row.beside) for row in rows} == {("calls", None)}


def test_where_calls_alternate_the_null_arm_pays_as_well_and_does_not_see_it():
    for turns in ("series", "calls"):
        result = run_with_a_cache(1, turns)
        assert result.null.low <= 1.01 and result.null.high >= 0.99
        assert result.null.verdict == "not distinguishable"


def test_both_ratios_are_shown_where_they_differ_and_one_where_they_do_not():
    differs, alike = run_with_a_cache(0), run(SimulatedMachine(0), baseline=2e-3)
    assert differs["small"].beside == pytest.approx(3.2 / 2.4, rel=0.05)
    assert "where calls alternate 1.3" in differs.summary()
    assert "beside" in differs.frame.columns
    assert alike["new"].beside == pytest.approx(2, rel=0.05)
    assert "where calls alternate" not in alike.summary()
    assert "beside" not in alike.frame.columns


def test_a_row_from_before_there_were_series_is_one_of_alternating_calls(tmp_path):
    row = run(SimulatedMachine(0), turns="calls")["new"]
    old = {
        name: value for name, value in vars(row).items() if not name.startswith(("beside", "turns"))
    }
    assert type(row)(**old) == row


def test_a_series_counts_8_calls_and_20_ms_at_least_after_2_calls_and_5_ms_that_do_not_count():
    long = Plan(seconds=100)
    assert plan_series([1e-3, 10e-3], long, "series") == [Series(5, 20, 1), Series(2, 8, 1)]
    assert plan_series([10e-6, 10e-6], long, "series") == [Series(50, 200, 10)] * 2
    assert plan_series([1e-3, 10e-3], long, "calls") == [Series(0, 1, 1)] * 2


def test_series_are_so_short_that_the_rounds_of_a_verdict_fit_and_single_calls_where_two_calls_do_not():
    for call_s in ([1e-3] * 3, [10e-3, 5e-3, 10e-3]):
        series = plan_series(call_s, Plan(seconds=1), "series")
        seconds = sum(
            (one.cold + one.timed) * call for one, call in zip(series, call_s, strict=True)
        )
        assert 11 * seconds <= 2
        assert min(one.cold for one in series) >= 1
    slow = run(SimulatedMachine(0), baseline=60e-3, arm=30e-3)["new"]
    assert (slow.turns, slow.beside) == ("calls", None)


def test_an_unknown_order_of_turns_is_refused():
    with pytest.raises(LabError, match="series or calls"):
        run(SimulatedMachine(0), turns="blocks")


def test_two_equal_arms_are_hardly_ever_called_different():
    called = [
        run(SimulatedMachine(s, jitter=0.05, spikes=0.05), seed=s)["new"].verdict
        for s in range(100)
    ]
    assert called.count("not distinguishable") >= 97


def test_a_then_b_under_drift_is_fooled_where_rounds_are_not():
    machine = SimulatedMachine(0, jitter=0.01, drift=0.5)
    call, clock = machine.work(1e-3), machine.clock
    first, second = (np.median([clock.time(call)[0] for _ in range(200)]) for _ in range(2))
    assert second / first > 1.05
    assert run(SimulatedMachine(0, jitter=0.01, drift=0.5))["new"].verdict == "not distinguishable"


def test_the_order_within_rounds_is_random_and_follows_the_seed():
    def order(seed):
        seen, machine = [], SimulatedMachine(0)
        work = machine.work(1e-3)
        arms = {name: lambda name=name: seen.append(name) or work() for name in ("old", "new")}
        plan = Plan(seconds=0.2, seed=seed, precision=0)
        compare(arms, tolerance=0, device=machine.clock, plan=plan, turns="calls")
        return seen[-90:]

    assert order(1) == order(1) != order(2)
    rounds = np.array(order(1)).reshape(-1, 3)
    assert all(sorted(row) == ["new", "old", "old"] for row in rounds)
    assert len({tuple(row) for row in rounds}) == 3


def test_the_null_arm_gives_the_floor_of_every_verdict():
    result = run(SimulatedMachine(0, jitter=0.2), precision=0.02)
    null = result.null
    assert null.low <= 1 <= null.high
    assert null.floor == max(null.high, 1 / null.low) - 1 == result["new"].floor


def test_two_sessions_of_one_file_that_differ_widen_the_floor_until_such_a_difference_no_longer_counts():
    machine = SimulatedMachine(0)
    plain, slow, arm = (machine.work(seconds) for seconds in (1e-3, 1.04e-3, 0.98e-3))
    alike = compare({"old": plain, "new": arm}, tolerance=0, device=machine.clock)
    apart = compare(
        {"old": plain, "new": arm}, second_session=slow, tolerance=0, device=machine.clock
    )
    assert (alike["new"].verdict, apart["new"].verdict) == ("faster", "not distinguishable")
    assert alike.null.floor < 0.01 < 0.035 < apart["new"].floor < 0.05
    assert apart["new"].median == pytest.approx(1 / 0.98, rel=0.01)
    assert [row.arm for row in apart.rows] == ["new", "a second session"]


def test_with_a_second_session_each_is_called_as_often_as_the_others_and_none_finds_the_cache_warmer():
    machine, seen = SimulatedMachine(0), []
    work = machine.work(1e-3)
    old, again, new = (
        lambda name=name: seen.append(name) or work() for name in ("old", "again", "new")
    )
    plan = Plan(seconds=0.2, precision=0)
    arms = {"old": old, "new": new}
    compare(arms, second_session=again, tolerance=0, device=machine.clock, plan=plan, turns="calls")
    assert {tuple(sorted(row)) for row in np.array(seen[-90:]).reshape(-1, 3)} == {
        ("again", "new", "old")
    }


def test_a_second_session_that_answers_something_else_is_refused():
    machine = SimulatedMachine(0)
    arms = {"old": machine.work(1e-3), "new": machine.work(1e-3)}
    second_session = machine.work(1e-3, answer=1.0)
    with pytest.raises(MeasureError, match="'a second session' does not do the same work as 'old'"):
        compare(arms, second_session=second_session, tolerance=0, device=machine.clock)


def test_a_session_may_be_an_object_without_a_hash():
    machine = SimulatedMachine(0)
    sessions = [
        dataclasses.make_dataclass(
            "Session", ["details"], namespace={"__call__": machine.work(1e-3)}
        )
        for _ in "abc"
    ]
    first, again, new = (session({}) for session in sessions)
    result = compare(
        {"old": first, "new": new}, second_session=again, tolerance=0, device=machine.clock
    )
    assert result["new"].pairs >= 11


def test_an_interval_must_lie_outside_the_floor_to_count():
    assert verdict(1.02, 1.04, floor=0.01) == "faster"
    assert verdict(1.005, 1.04, floor=0.01) == "not distinguishable"
    assert verdict(0.90, 0.95, floor=0.01) == "slower"
    assert verdict(0.90, 0.995, floor=0.01) == "not distinguishable"


def test_rounds_go_on_until_every_interval_is_narrow_enough():
    row = run(SimulatedMachine(0, jitter=0.02), precision=0.004, seconds=60)["new"]
    assert (row.high - row.low) / 2 <= 0.005
    assert row.pairs < 2000


def test_the_seconds_end_a_comparison_that_cannot_become_precise():
    machine = SimulatedMachine(0, jitter=0.5)
    run(machine, precision=1e-9, seconds=1)
    assert machine.now() < 1.6


def test_three_arms_are_each_held_against_the_first():
    machine = SimulatedMachine(0)
    arms = {name: machine.work(ms / 1e3) for name, ms in (("one", 1), ("half", 0.5), ("two", 2))}
    result = compare(arms, tolerance=0, device=machine.clock)
    assert result["half"].median == pytest.approx(2, rel=0.02)
    assert result["two"].median == pytest.approx(0.5, rel=0.02)
    assert [row.arm for row in result.rows] == ["half", "two", "the same again"]


def test_rows_fit_the_ledger_with_every_pair(tmp_path):
    result = run(SimulatedMachine(0))
    ledger.add(*result.rows, path=tmp_path / "ledger.sqlite")
    frame = ledger.load("ratios", path=tmp_path / "ledger.sqlite")
    assert list(frame["arm"]) == ["new", "the same again"]
    assert len(frame["ratios"][0]) == result["new"].pairs


def test_a_comparison_shows_itself():
    result = run(SimulatedMachine(0, jitter=0), arm=0.5e-3)
    assert "new against old 2.000x" in result.summary()
    assert "faster" in result._repr_html_()


def test_a_loaded_machine_is_called_noisy():
    row = run(SimulatedMachine(0, load=0.9), precision=0)["new"]
    assert row.noisy and "other processes" in row.noise


def test_beside_a_busy_job_a_thread_s_own_clock_finds_and_covers_the_true_ratio():
    machines = [SimulatedMachine(seed, jitter=0.02, load=0.5) for seed in range(15)]
    rows = [
        run(machine, baseline=1.05e-3, seed=machine.seed, seconds=0.3)["new"]
        for machine in machines
    ]
    assert {row.verdict for row in rows} == {"faster"}
    assert np.mean([row.low <= 1.05 <= row.high for row in rows]) >= 0.8
    assert all("the thread's own clock" in row.noise for row in rows)


def test_a_thread_that_did_not_compute_alone_is_timed_by_the_wall_and_warned_of():
    machine = SimulatedMachine(0, load=0.5)
    busy = dataclasses.replace(
        machine.clock, usage=lambda: dataclasses.replace(machine.usage(), process=2 * machine.now())
    )
    result = compare(
        {"old": machine.work(2e-3), "new": machine.work(1e-3)}, tolerance=0, device=busy
    )
    assert result["new"].noise.endswith(
        "waiting dilutes the ratios: the true difference may be larger"
    )
    assert result["new"].arm_ms > 1.2


def test_real_functions_can_be_compared():
    arms = {"short": lambda: sum(range(500)), "long": lambda: sum(range(1, 500))}
    result = compare(arms, tolerance=0, device="cpu", plan=Plan(seconds=0.1))
    assert result["long"].low > 0
    assert result["long"].machine_key
