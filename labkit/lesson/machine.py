"""Show what this machine has for the course, and what a reader misses where it lacks something."""

from typing import NamedTuple

from labkit.device.packages import Check
from labkit.doctor import examine
from labkit.lesson import cards

# {beginning of a check's name: what the reader misses where the check fails}
COSTS = {
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
    """Something that this machine lacks.

    name  name of the check that failed, such as "gpu"
    cost  what the reader misses without it
    fix   how to get it; None if this machine cannot have it
    """

    name: str
    cost: str
    fix: str | None


def show_machine() -> None:
    """Show what this machine has, and for each thing that it lacks the cost and the fix.

    The check really imports the engines, which takes some seconds.
    """
    checks = {check.name: check for check in examine()}
    gaps = [gap_of(check) for check in checks.values() if not check.ok]
    cards.show("machine", checks["cpu"].detail, len(checks) - len(gaps), len(checks), gaps)


def gap_of(check: Check) -> Gap:
    """Return the `Gap` of a check that failed.

    Its cost is the text in COSTS for this check; if there is none, it is the detail of the check.
    """
    cost = check.detail
    for beginning, cost_in_words in COSTS.items():
        if check.name.startswith(beginning):
            cost = cost_in_words
            break
    return Gap(check.name.removeprefix("data: "), cost, check.fix)
