"""The register of claims: each with the reason for its bound, the date, and the bounds it had before (claims.toml).

A bound is set before the run that judges it: from theory, from a paper, from a cost that matters to a reader. It is
never moved because the claim failed.
"""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from labkit.lesson.syllabus import lessons

PAGE = """# The claims of the lessons

Each sentence that a lesson computes from the run in front of the reader, with its rule and with what became of it.
A bound is set before the run that judges it, and is never moved because the claim failed. {{…}} stands for a value of
the run. "Seen" names what recorded runs in the profile `lab` said; where it is missing, the claim as it stands has no
recorded run. `labkit ledger claims` counts your own runs.

{lessons}"""


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


def as_page():
    """The register in Markdown, as docs/claims.md has it."""
    parts = []
    for lesson in lessons():
        claims = register().get(lesson.name, {})
        parts.append(f"## {lesson.name[:2]} {lesson.title}\n\n" + "\n".join(map(_item, claims.values())))
    return PAGE.format(lessons="\n\n".join(parts)) + "\n"


def _item(claim):
    lines = [f"- {claim.sentence}  ", f"  `{claim.rule}`, since {claim.since}"]
    if claim.why:
        lines[-1] += f": {claim.why}"
    if claim.seen:
        lines.append(f"  Seen: {claim.seen}.")
    lines += [f"  Until {old['until']}: `{old['rule']}`. {old['became']}" for old in claim.before]
    return "\n".join(lines)
