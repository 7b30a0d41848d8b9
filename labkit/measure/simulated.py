"""Simulate a machine, to show in milliseconds what a real machine shows in minutes.

Its true speeds are known, so a method of measuring can be checked against the truth. Its device can
work through a queue, so that a forgotten synchronisation can be seen without a GPU.
"""

from dataclasses import KW_ONLY, dataclass

import numpy as np

from labkit.measure.clock import Clock
from labkit.measure.noise import Usage

WAIT_S = 1e-3  # mean wait for a core at full load


@dataclass
class SimulatedMachine:
    """A machine whose clock moves only when work is done on it.

    seed      seed of the random numbers
    jitter    relative standard deviation of the time of each call
    drift     relative slow-down per second, as of a chip getting hot
    spikes    chance that a call is interrupted, which makes it 2 to 10 times longer
    slow      chance per call that the machine changes between its full clock and 70 % of it
    load      share of the cores that other processes use, 0 to 1: a call waits for its turn, on
              average load times 1 ms
    launch    seconds to put a call into the queue of the device. None: there is no queue, the
              calling thread does the work itself
    """

    seed: int = 0
    _: KW_ONLY
    jitter: float = 0.01
    drift: float = 0.0
    spikes: float = 0.0
    slow: float = 0.0
    load: float = 0.0
    launch: float | None = None

    def __post_init__(self):
        self.random = np.random.default_rng(self.seed)
        self.time = 0.0  # seconds
        self.waited = 0.0  # seconds of `time` spent waiting, because of the load
        self.idle_at = 0.0  # when the queue will be empty
        self.at_full_clock = True
        self.in_cache = None  # the function whose data fill the cache

    @property
    def clock(self):
        """The `Clock` of this machine: the `device` of `latency` or `compare`."""
        return Clock(
            "simulated", self.now, self.synchronize, computed=self.computed, usage=self.usage
        )

    def now(self):
        return self.time

    def synchronize(self):
        self.time = max(self.time, self.idle_at)

    def computed(self):
        return self.time - self.waited

    def work(self, seconds, answer=0.0, *, cold=0.0):
        """Return a function whose call takes time on this machine and returns `answer`.

        seconds  time of the call, before the machine adds its jitter, waiting and the like
        cold     seconds that are added if the call before was of another function: the data of this
                 function then have to be fetched into the cache
        """

        def call(*inputs):
            fetching = 0.0 if self.in_cache is call else cold
            self.in_cache = call
            duration = (seconds + fetching) * self.slowness()
            # Other processes make the call wait for a core. With a queue, the caller only puts the
            # call into the queue.
            wait = 0.0
            if self.load:
                wait = WAIT_S * self.load * self.random.exponential()
            duration += wait
            if self.launch is None:
                self.time += duration
                self.waited += wait
            else:
                self.time += self.launch
                self.idle_at = max(self.time, self.idle_at) + duration
            return answer

        return call

    def slowness(self):
        """Draw the factor by which the machine makes the next call longer than the ideal time."""
        if self.slow and self.random.random() < self.slow:
            self.at_full_clock = not self.at_full_clock
        factor = np.exp(self.jitter * self.random.standard_normal()) * (1 + self.drift * self.time)
        factor *= 1 if self.at_full_clock else 1 / 0.7
        if self.spikes and self.random.random() < self.spikes:
            factor *= self.random.uniform(2, 10)
        return float(factor)

    def usage(self):
        """Return the load counters of this machine, as a `Usage`: two cores, one of them in use."""
        computed = self.computed()
        return Usage(
            wall=self.time,
            cores=2,
            busy=computed + self.time * self.load,
            process=computed,
            stolen=0.0,
            waited=self.waited,
            computed=computed,
        )
