"""What the runner promises: fast enough for a first look, and nothing lost or left behind when it
is killed.

    python benchmarks/run.py [--quick]

Full: about 15 minutes (30 kills). Quick: under a minute, fewer of everything.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import drills
from figures import Figures
from writers import write_rows_with_kills

from labkit.files import root

IMPORT = (
    "import time; begun = time.perf_counter(); import labkit; print(time.perf_counter() - begun)"
)


def import_seconds(times):
    """Median seconds that `import labkit` adds to a fresh interpreter."""
    return statistics.median(
        float(subprocess.check_output([sys.executable, "-c", IMPORT])) for _ in range(times)
    )


def exit_figures(figures, folder, *, forms):
    """Ways to leave a notebook early: none may count as passed, and each must give its reason."""
    cells = {
        f"{number:02}_{name}": drills.EARLY_EXITS[name][0] for number, name in enumerate(forms)
    }
    drills.write_workbook(folder, cells)
    drills.start_batch(folder, cell_deadline_s=8).wait()
    attempts = drills.attempts(folder)
    explained = sum(
        drills.EARLY_EXITS[row.notebook[3:]][1] in (row.reason or "") for row in attempts
    )
    figures.add(
        "early_exit_forms_counted_passed",
        sum(row.status == "passed" for row in attempts),
        at_most=0,
    )
    figures.add("early_exit_forms_explained", explained, at_least=len(forms))


def data_figures(figures, folder):
    """The damaged and hostile data files of the tests."""
    sys.path.insert(0, str(root() / "tests"))
    from hostile_data import survey

    problems = survey(folder)
    escaped = sum((problem or "").startswith("changed") for problem in problems.values())
    figures.add("data_mutations", len(problems), at_least=100)
    figures.add("data_mutations_undetected", sum(map(bool, problems.values())) - escaped, at_most=0)
    figures.add("data_escapes", escaped, at_most=0)


def kill_figures(figures, folder, *, kills):
    """SIGKILLs at random moments."""
    count = drills.KillDrill(folder, notebooks=3).run(kills, within_s=5)
    figures.add("kills", count["kills"], at_least=kills)
    figures.add("resume_completes", count["resumed"], at_least=count["kills"])
    figures.add("finished_notebooks_kept", count["kept"], at_least=1 if kills > 5 else None)
    figures.add("torn_files", count["torn"], at_most=0)
    figures.add("lost_rows", count["lost"], at_most=0)
    figures.add("finished_notebooks_rerun", count["rerun"], at_most=0)
    figures.add("kernels_alive_after_5s", count["alive"], at_most=0)


def ledger_figures(figures, folder, *, rows, kills):
    """Eight writers, some of them killed."""
    acknowledged, missing, damaged = write_rows_with_kills(folder, rows=rows, kills=kills)
    figures.add("acknowledged_rows", acknowledged, at_least=8 * rows)
    figures.add("acknowledged_rows_missing", missing, at_most=0)
    figures.add("ledger_damaged", damaged, at_most=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer of everything, under a minute")
    quick = parser.parse_args().quick
    figures = Figures()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures.add(
            "import_labkit_seconds", import_seconds(3 if quick else 9), at_most=0.2, unit="s"
        )
        if not quick:  # in a quick check these two notebooks alone would take the minute
            figures.lesson("00", "01", at_most=90)
        ledger_figures(
            figures, folder / "rows", rows=60 if quick else 500, kills=3 if quick else 16
        )
        exit_figures(
            figures, folder / "exits", forms=tuple(drills.EARLY_EXITS)[: 3 if quick else None]
        )
        kill_figures(figures, folder / "kills", kills=2 if quick else 30)
        data_figures(figures, folder / "data")
    figures.exit()


if __name__ == "__main__":
    main()
