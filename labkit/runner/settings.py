"""How a batch is to run."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from labkit import device


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to run a batch.

    profile          "quick", "lab" or "paper": passed to each notebook as its parameter `profile`
    parameters       further parameters, as the types of the notebook's defaults
    seeds            run each notebook once per seed, its parameter `seed`; (): once, with the parameters as they are
    cluster          the address of a dask scheduler, or "local": see `labkit.runner.cluster`; None: on this machine
    fresh            start over even if an earlier batch can be continued
    solutions        fill the reference answers into the cells tagged `exercise`; "both": run each as it is given, then
                     solved, and keep the first verdicts under the run key `<run key>/as-given`
    strict           an unsolved or wrong exercise is an error: in the kernel (LABKIT_STRICT=1), and afterwards by
                     `labkit.lesson.grading`, in a fresh process
    together         so many notebooks at a time, measuring ones too: what they measure then means nothing. None: at
                     most two, and those that measure alone
    cell_deadline_s  most seconds for one cell; None means the profile's
    """

    profile: str = "quick"
    parameters: Mapping = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    cluster: str | None = None
    fresh: bool = False
    solutions: bool | str = False
    strict: bool = False
    together: int | None = None
    cell_deadline_s: float | None = None

    def at_a_time(self):
        return self.together or min(2, device.usable_cores())
