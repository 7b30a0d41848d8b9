"""Measuring that can be believed. Every number of the course comes from here.

`latency` one thing, `compare` several; `memory`; `ceilings` of the machine and `roofline` of a result;
`multiply_adds` of a network. What takes time takes a device or a `Clock`, so that a `SimulatedMachine` can stand in.
"""
# ruff: noqa: F401 (what is offered here)

from labkit.measure.clock import Clock, Plan, clock_of
from labkit.measure.compare import Comparison, compare
from labkit.measure.latency import latency
from labkit.measure.memory import memory, saved_for_backward
from labkit.measure.multiply_adds import multiply_adds
from labkit.measure.roofline import ceilings, roofline
from labkit.measure.simulated import SimulatedMachine
