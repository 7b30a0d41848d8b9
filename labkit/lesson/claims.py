"""The register of claims: each with the reason for its bound, the date, and the bounds it had before (claims.toml).

A bound is set before the run that judges it: from theory, from a paper, from a cost that matters to a reader. It is not
loosened because the claim failed; what a changed one had shown stands in `before`.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from labkit.errors import LedgerError
from labkit.ledger import completed
from labkit.ledger.claims import by_seed
from labkit.lesson.cards import template
from labkit.lesson.syllabus import lessons

_HELD_OUT = re.compile(r"seeds 3 to 7[^;:]*: holds in (\d+) of \d+(?:, fails in (\d+))?(?:, open in (\d+))?")


class Entry(NamedTuple):
    """One claim as the register has it.

    sentence  as the lesson says it; {…} stands for a value of the run
    rule      when it holds: the expression after `holds_if`
    since     the date from which this rule stands
    why       the reason for the bound; empty in a lesson of the second edition, which wrote none down
    seen      what recorded runs said under this rule
    before    earlier rules, the newest first, each with the date it was given up and what became of it
    """

    sentence: str
    rule: str
    since: object
    why: str = ""
    seen: str = ""
    before: tuple = ()

    @property
    def history(self):
        """`before`, without changes of the second edition for which no reason was written down."""
        return [old for old in self.before if "no reason was written down" not in old["became"]]


@cache
def register():
    """{lesson: {claim id: `Entry`}}; in an id, {…} stands for a part that each run fills in."""
    read = tomllib.loads(Path(__file__).with_name("claims.toml").read_text(encoding="utf-8"))
    return {lesson: {name: Entry(**entry) for name, entry in claims.items()} for lesson, claims in read.items()}


def entry(lesson, claim_id):
    """The `Entry` of a claim, or None: a reader may add claims of their own."""
    for name, found in register().get(lesson, {}).items():
        if re.fullmatch(re.sub(r"\\{.*?\\}", ".+", re.escape(name)), claim_id):
            return found
    return None


def as_page() -> str:
    """The register in Markdown, as docs/claims.md has it."""
    claims = [claim for group in register().values() for claim in group.values()]
    page = template("claims.md").render(
        claims=len(claims),
        failed=sum("fails" in claim.seen for claim in claims),
        silent=sum(len(claim.before) - len(claim.history) for claim in claims),
        lessons=lessons(),
        register=register(),
        held_out=_held_out(claims),
    )
    return page.strip() + "\n"


def _held_out(claims):
    """What `seen` says of seeds 3 to 7: counts of claims, of verdicts, and of claims that came out in two ways."""
    import numpy as np

    said = [found for claim in claims for found in _HELD_OUT.findall(claim.seen)]
    counts = np.array([[int(number or 0) for number in found] for found in said])
    holds, fails, still_open = counts.sum(axis=0)
    return {
        "claims": len(counts),
        "verdicts": counts.sum(),
        "holds": holds,
        "fails": fails,
        "open": still_open,
        "changing": np.sum(np.sum(counts > 0, axis=1) > 1),
        "opposite": np.sum(np.all(counts[:, :2], axis=1)),
    }


def as_markdown(profile: str, seeds: Iterable[int] | None = None) -> str:
    """How the claims fared over seeds and machines, in Markdown: `labkit.ledger.claims.by_seed` as a table.

    Raises  LedgerError when no run of the profile, with one of these seeds, is complete
    """
    found = by_seed(profile, seeds)
    if not found:
        others = sorted({run.profile for run in completed()} - {profile})
        raise LedgerError(
            f"No completed run of the profile {profile!r} makes a claim.",
            found=f"runs of the profile {' and '.join(others)}" if others else "no completed run",
            fix=" or ".join([*(f"--profile {each}" for each in others), f"labkit run --profile {profile}"]),
        )
    counts = Counter(verdict for tally in found.values() for verdict in tally.verdicts.values())
    page = template("claims_by_seed.md").render(profile=profile, seeds=seeds, found=found, counts=counts, plain=_plain)
    return page.strip() + "\n"


def _plain(words):
    """Words that Markdown shows as they are, also where a stranger wrote them."""
    return re.sub(r"([\\`*_\[\]<>|$#~&])", r"\\\1", words)
