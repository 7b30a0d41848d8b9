"""One training in several variants, timed in turn, so that a machine that changes its pace hits all of them alike."""

import copy
from dataclasses import dataclass, replace

import numpy as np
import torch

from labkit import device as devices
from labkit.errors import Unavailable
from labkit.ledger.rows import Training
from labkit.measure.stats import bootstrap_median
from labkit.train.loop import fit
from labkit.train.watch import PHASES


def run_variants(model, data, variants, *, device, rounds=3):
    """Train a copy of `model` with each config once a round, in random order: `Variants`.

    data      an ImageSet of a few batches: one epoch of it is one sample
    variants  {name: TrainConfig}; the first is the baseline. Each runs two epochs: the first warms up (and compiles,
              and starts the workers), the second is counted, with its phases
    rounds    samples of each variant
    What has no effect on this device, or cannot run on it, becomes a reason without a number.
    """
    baseline = next(iter(variants.values()))
    random, device = np.random.default_rng(baseline.seed), torch.device(device)
    reasons = {name: reason for name, config in variants.items() if (reason := _idle(config, baseline, device))}
    histories = {name: [] for name in variants if name not in reasons}
    for _ in range(rounds):
        for name in random.permutation(list(histories)):
            config = replace(variants[name], epochs=2, phases=variants[name].phases or "events")
            try:
                histories[name].append(fit(copy.deepcopy(model), data, config, device=device))
            except Unavailable as error:
                reasons[name] = f"{error.what} {error.found}"
                del histories[name]
    return Variants(variants, histories, reasons, device, devices.threads())


def _idle(config, baseline, device):
    """Why a variant is the baseline over again on this device; None when it is not."""
    changed = {name for name, value in vars(config).items() if value != getattr(baseline, name)}
    reasons = config.idle(device)
    return "; ".join(reasons[name] for name in changed) if changed and changed <= set(reasons) else None


@dataclass(frozen=True)
class Variants:
    """What was measured.

    configs    {name: TrainConfig}
    histories  {name: [History a round]} of those that ran
    reasons    {name: why there is no number}
    threads    of the CPU's operators
    """

    configs: dict
    histories: dict
    reasons: dict
    device: torch.device
    threads: int

    def seconds(self, name, phase="total"):
        """(rounds,) seconds of the counted epoch, or of one of its phases."""
        runs = self.histories[name]
        return np.array([run.epoch_seconds[-1] if phase == "total" else run.epoch_phases[-1][phase] for run in runs])

    def ratio(self, name, baseline=None):
        """95 % `Interval` of how many times as fast as the baseline, from pairs of one round each."""
        baseline = next(iter(self.histories)) if baseline is None else baseline
        return bootstrap_median(self.seconds(baseline) / self.seconds(name))

    def rows(self, study, *, model, dataset):
        """A `rows.Training` for each variant, the medians over the rounds."""
        return [self._row(name, study=study, model=model, dataset=dataset) for name in self.configs]

    def _row(self, name, **about):
        about |= {"variant": name, "device": str(self.device), "batch": self.configs[name].batch}
        if name in self.reasons:
            return Training(**about, reason=self.reasons[name])
        runs = self.histories[name]
        return Training(
            **about,
            **{f"{phase}_s": float(np.median(self.seconds(name, phase))) for phase in PHASES},
            threads=self.threads,
            images=runs[0].steps // 2 * self.configs[name].batch,
            total_s=float(np.median(self.seconds(name))),
            memory_bytes=max((run.peak_bytes for run in runs if run.peak_bytes), default=None),
        )
