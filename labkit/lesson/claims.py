"""Read the register of claims (claims.toml), with the bound of each claim and its reason.

A claim is a sentence of a lesson that each run tests. Its bound comes from theory, from a paper, or
from a cost that matters to a reader, and is not loosened because the claim failed. If a bound was
changed after a run had judged the claim, a dated line in the register says so.
"""

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from labkit.errors import LedgerError
from labkit.ledger import completed, recorded, slug
from labkit.ledger.claims import by_seed
from labkit.lesson.cards import template
from labkit.lesson.syllabus import lessons


class Entry(NamedTuple):
    """One claim of the register.

    sentence  the claim as the lesson says it; {…} stands for a value that each run fills in
    bound     where the claim's number has to lie, such as "at least 1.5"
    why       the reason for the bound
    changed   one line for each change of the bound after a run had judged the claim, the newest
              first: date, old bound, verdicts under the old bound
    """

    sentence: str
    bound: str
    why: str
    changed: tuple = ()


class RecordedVerdict(NamedTuple):
    """The verdict of one recorded run on a claim.

    row    row of the table `claims`, as pandas' `itertuples` gives it
    where  machine, profile and date, as a text
    """

    row: object
    where: str


@cache
def register():
    """Return the register: {slug of a lesson: {claim id: `Entry`}}.

    {…} in a claim id stands for a part that each run fills in.
    """
    content = tomllib.loads(Path(__file__).with_name("claims.toml").read_text(encoding="utf-8"))
    entries_by_lesson = {}
    for lesson, claims in content.items():
        entries_by_lesson[slug(lesson)] = {
            claim_id: Entry(**fields) for claim_id, fields in claims.items()
        }
    return entries_by_lesson


def entry(lesson, claim_id):
    """Return the `Entry` of a claim; None for a claim that is not in the register.

    lesson  name of the notebook
    """
    for pattern, claim in register().get(slug(lesson), {}).items():
        if _matches(pattern, claim_id):
            return claim
    return None


def as_page() -> str:
    """Return the text of docs/claims.md: the register, with the verdicts of recorded runs."""
    verdicts_by_claim = recorded_verdicts()
    failed = set()
    for key, verdicts in verdicts_by_claim.items():
        if any(verdict.row.verdict == "fails" for verdict in verdicts):
            failed.add(key)
    page = template("claims.md").render(
        lessons=lessons(), register=register(), recorded=verdicts_by_claim, failed=failed
    )
    return page.strip() + "\n"


def recorded_verdicts():
    """Return all recorded verdicts: {(slug of a lesson, claim id): list of `RecordedVerdict`}.

    A run whose sentence under this id is not that of the register, because its bound was another
    one, is left out.
    """
    rows_by_lesson = defaultdict(list)
    for row in recorded("claims").itertuples():
        # a lesson's file of recorded rows is named by its slug
        rows_by_lesson[row.experiment].append(row)
    verdicts_by_claim = {}
    for lesson, claims in register().items():
        for claim_id, claim in claims.items():
            verdicts = []
            for row in rows_by_lesson[lesson]:
                if _matches(claim_id, row.claim_id) and judged(claim, row.sentence):
                    where = f"{row.hardware}, {row.instructions}, {row.profile}, {row.recorded_on}"
                    verdicts.append(RecordedVerdict(row, where))
            verdicts_by_claim[lesson, claim_id] = verdicts
    return verdicts_by_claim


def judged(claim: Entry, sentence: str) -> bool:
    """Return whether a run tested the claim as the register now has it.

    sentence  the sentence of the run
    """
    return _matches(claim.sentence, sentence)


def _matches(pattern, text):
    """Return whether a text equals a pattern, in which {…} stands for one character or more."""
    expression = re.sub(r"\\{.*?\\}", ".+", re.escape(pattern))
    return re.fullmatch(expression, text) is not None


def as_markdown(profile: str, seeds: Iterable[int] | None = None) -> str:
    """Return the verdicts on all claims, over seeds and machines, as a page of Markdown.

    There is a row for each claim that `labkit.ledger.claims.by_seed` tallies.

    seeds   seeds of the runs that count; None: any seed
    Raises  LedgerError if no completed run of this profile, with one of these seeds, makes a claim
    """
    tallies = by_seed(profile, seeds)
    if not tallies:
        raise _no_claims(profile)
    counts: Counter[str] = Counter()
    for tally in tallies.values():
        counts.update(tally.verdicts.values())
    page = template("claims_by_seed.md").render(
        profile=profile, seeds=seeds, tallies=tallies, counts=counts, plain=_plain
    )
    return page.strip() + "\n"


def _no_claims(profile):
    """Return the LedgerError for a profile in which no completed run makes a claim.

    The error names the profiles that have completed runs.
    """
    completed_profiles = sorted({run.profile for run in completed()} - {profile})
    commands = [f"--profile {name}" for name in completed_profiles]
    commands.append(f"labkit run --profile {profile}")
    found = "no completed run"
    if completed_profiles:
        found = f"runs of the profile {' and '.join(completed_profiles)}"
    return LedgerError(
        f"No completed run of the profile {profile!r} makes a claim.",
        found=found,
        fix=" or ".join(commands),
    )


def _plain(words):
    """Return a text with Markdown's special characters escaped, so that it is shown as it is."""
    return re.sub(r"([\\`*_\[\]<>|$#~&])", r"\\\1", words)
