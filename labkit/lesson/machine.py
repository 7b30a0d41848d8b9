"""What this machine has for the course, and what each gap costs a reader."""

from typing import NamedTuple

from labkit.device.packages import Check
from labkit.doctor import examine
from labkit.lesson import cards

COSTS = {  # how the name of a check begins, and what it costs that this is not here
    "gpu": "what needs a GPU is not measured: recorded rows of named GPUs stand in its place",
    "bf16 on the CPU": "16-bit numbers work, but are slower than 32-bit ones, so nothing is "
    "gained by them here",
    "int8 on the CPU": "8-bit files are as small as elsewhere, but hardly faster",
    "engine": "its rows have a reason and no time",
    "data: ": "experiments on these pictures are shown as recorded rows; the lessons themselves "
    "do not need them",
    "netron": "graphs are shown as tables",
}


class Gap(NamedTuple):
    """Something that is not here: its name, what that costs, and how to get it (None: it cannot
    be got here).
    """

    name: str
    cost: str
    fix: str | None


def show_machine() -> None:
    """Show what this machine has, and for each thing that is not here what it costs and how to get
    it.

    It really imports the engines, which takes some seconds.
    """
    checks = {check.name: check for check in examine()}
    gaps = [gap_of(check) for check in checks.values() if not check.ok]
    cards.show("machine", checks["cpu"].detail, len(checks) - len(gaps), len(checks), gaps)


def gap_of(check: Check) -> Gap:
    """Return what it costs that a check is not ok: in the words above, else as the check itself
    says.
    """
    cost = check.detail
    for beginning, cost_in_words in COSTS.items():
        if check.name.startswith(beginning):
            cost = cost_in_words
            break
    return Gap(check.name.removeprefix("data: "), cost, check.fix)
