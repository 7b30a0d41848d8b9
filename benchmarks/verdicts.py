"""Do the lessons say the same twice? Verdicts and answers of two runs of each lesson on one
machine.

    python benchmarks/verdicts.py [05 16 ...] [--profile quick]

Each lesson runs twice: half an hour for all in quick, on a machine that does nothing else. What the
first run said is kept in artifacts/recorded/HARDWARE/PROFILE/LESSON.json, LESSON without its
number, with what the second said otherwise. The figures count all lessons that are kept, so that
one that was changed is run again alone. A later run is compared with them by `labkit run --against
artifacts/recorded`. Commit first: what is kept names its commit.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

from figures import Figures

from labkit import ledger
from labkit.files import root, write_text
from labkit.ledger.claims import flips
from labkit.lesson.syllabus import lessons
from labkit.runner import run_batch

KEPT = {"machines", "runs", "claims", "lesson_answers"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("lessons", nargs="*", help="numbers; all by default")
    parser.add_argument("--profile", default="quick", choices=["quick", "lab"])
    options, figures, pages = parser.parse_args(), Figures(), {}
    names = [each.name for each in lessons()]
    for name in names:
        if not options.lessons or name[:2] in options.lessons:
            folder, page = twice(name, options.profile)
            pages[folder / options.profile / f"{ledger.slug(name)}.json"] = page
            figures.add(f"{name}_flipped", len(page["again"]["flipped"]))
    # at the end: a file that is changed here makes the commit one with changes
    for path, page in pages.items():
        write_text(path, json.dumps(page, indent=0) + "\n")
    total(
        figures,
        [
            path
            for path in folder.glob(f"{options.profile}/*.json")
            if path.stem in map(ledger.slug, names)
        ],
    )
    figures.exit()


def twice(name, profile):
    """Run a lesson twice: (the folder of this kind of machine, what the first run said and what
    flipped).
    """
    with tempfile.TemporaryDirectory() as artifacts:
        os.environ["LABKIT_ARTIFACTS"] = artifacts
        run_once(name, profile)
        [path] = ledger.record(profile=profile)
        page = json.loads(path.read_text(encoding="utf-8"))
        page["tables"] = {table: rows for table, rows in page["tables"].items() if table in KEPT}
        # of other programs, if it is well above that of this lesson alone
        load = os.getloadavg()[0]
        flipped, compared = flips([run_once(name, profile)], Path(artifacts) / "recorded")
    for line in flipped:
        print(f"# {line}", flush=True)
    again = {"compared": compared, "flipped": flipped, "load_average": load}
    return root() / "artifacts" / "recorded" / path.parent.name, page | {"again": again}


def run_once(name, profile):
    """The key of a fresh run that passed."""
    result = run_batch([name], profile=profile, fresh=True, show=False)
    assert result.ok, result.attempts[0].reason
    return result.attempts[0].run_key


def total(figures, paths):
    """Of all lessons that are kept: how many verdicts and answers a second run had otherwise."""
    again = [json.loads(path.read_text(encoding="utf-8"))["again"] for path in paths]
    compared = sum(each["compared"] for each in again)
    figures.add("lessons", len(paths), at_least=len(lessons()))
    figures.add("verdicts_and_answers", compared)
    flipped = sum(len(each["flipped"]) for each in again)
    figures.add("flipped_share", 100 * flipped / compared, at_most=5, unit="%")


if __name__ == "__main__":
    main()
