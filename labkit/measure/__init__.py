"""Measure times, memory and energy. Every measured number of the course comes from here.

`latency` times one function, and `in_turn` times several functions. `compare` also times several
functions, which have to do the same work. `memory` and `energy` measure one call, and
`multiply_adds` counts the arithmetic of a network. `neighbour` disturbs a measurement on purpose.
`queued` shows how a queue deceives a stopwatch. Every function that measures times has an argument
`device`: a device, or a `Clock`, so that a `SimulatedMachine` can stand in for the real machine.
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
