"""What `labkit grade` promises: thirty students, all judged rightly, and none stops the others.

    python benchmarks/grading.py [--quick]

Full: thirty students with two lessons each, five of whom never come to an end: about seven minutes
on two cores. Quick: eight of them, about a minute.
"""

import argparse
import csv
import sys
import tempfile
import time
from pathlib import Path

from figures import Figures

from labkit.classroom import handed_in
from labkit.files import root

sys.path.insert(0, str(root() / "tests"))
from made_up_class import write_class

EIGHT = ("ada", "di", "fay", "kim", "ned", "pam", "yan", "zoe")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="eight students, none of whom takes long"
    )
    quick, figures = parser.parse_args().quick, Figures()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        expected = write_class(folder, EIGHT if quick else None)
        begun = time.monotonic()
        table, _ = handed_in.grade(folder, tell=lambda line: print(f"# {line}", flush=True))
        minutes = (time.monotonic() - begun) / 60
        with table.open(newline="") as file:
            rows = list(csv.DictReader(file))
    misjudged = [row for row in rows if not _as_expected(row, expected)]
    for row in misjudged:
        print(f"# {row}")
    students = len({row["student"] for row in rows})
    figures.add("grade_students", students, at_least=len(EIGHT) if quick else 30)
    figures.add("grade_answers", len(rows), at_least=4 * students)
    figures.add("grade_misjudged", len(misjudged), at_most=0)
    figures.add("grade_minutes", minutes, at_most=2 if quick else 10, unit="min")
    figures.exit()


def _as_expected(row, expected):
    verdict, words = expected.get((row["student"], row["exercise"]), ("passed", ""))
    return row["verdict"] == verdict and words in row["reason"]


if __name__ == "__main__":
    main()
