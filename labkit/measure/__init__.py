"""Measuring that can be believed. Every number of the course comes from here.

`latency` one thing, `in_turn` several, `compare` several that do the same work; `memory` and
`energy` of a call; `multiply_adds` of a network. `neighbour` disturbs and `queued` deceives, on
purpose. What takes time takes a device or a `Clock`, so that a `SimulatedMachine` can stand in.
"""
# ruff: noqa: F401 (what is offered here)

from labkit.measure.clock import Clock, Plan, clock_of
from labkit.measure.compare import Comparison, compare
from labkit.measure.energy import Energy, energy
from labkit.measure.latency import latency
from labkit.measure.memory import memory, saved_for_backward
from labkit.measure.multiply_adds import multiply_adds
from labkit.measure.neighbour import neighbour, queued
from labkit.measure.simulated import SimulatedMachine
from labkit.measure.stats import Interval, median_interval
from labkit.measure.turns import Times, in_turn
