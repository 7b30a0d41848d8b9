"""How a batch is run."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from labkit import device
from labkit.errors import LabError

# Seconds for one cell and for one whole notebook.
DEADLINES_S = {"quick": (300, 900), "lab": (3600, 4 * 3600), "paper": (24 * 3600, 72 * 3600)}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to run a batch.

    profile              "quick", "lab" or "paper": passed to each notebook as its parameter `profile`
    parameters           further parameters; text is converted to the type of the notebook's default
    fresh                start over even if an earlier batch can be continued
    solutions            fill the reference answers into the cells tagged `exercise`
    strict               an unsolved or wrong exercise is an error (LABKIT_STRICT=1)
    jobs                 most notebooks side by side; None means 2, or 1 on a single core
    cell_deadline_s      most seconds for one cell; None means the profile's
    notebook_deadline_s  most seconds for one notebook; None means the profile's
    """

    profile: str = "quick"
    parameters: Mapping = field(default_factory=dict)
    fresh: bool = False
    solutions: bool = False
    strict: bool = False
    jobs: int | None = None
    cell_deadline_s: float | None = None
    notebook_deadline_s: float | None = None

    def check(self):
        """Refuse what cannot be meant: LabError."""
        if self.profile not in DEADLINES_S:
            raise LabError(
                f"There is no profile {self.profile!r}.",
                expected=", ".join(DEADLINES_S),
                found=self.profile,
                fix="labkit run --profile quick",
            )
        for name in ("jobs", "cell_deadline_s", "notebook_deadline_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise LabError(f"The setting {name} makes no sense.", expected="a number above 0", found=repr(value))

    def deadlines(self):
        """(seconds for a cell, seconds for a notebook)."""
        cell, notebook = DEADLINES_S[self.profile]
        return self.cell_deadline_s or cell, self.notebook_deadline_s or notebook

    def side_by_side(self):
        return self.jobs or min(2, device.usable_cores())

    def folder(self):
        """Where executed notebooks go, relative to the artifacts folder; solved ones apart from the reader's own."""
        return f"executed/{self.profile}" + ("-solved" if self.solutions else "")
