"""What the runner promises: fast enough for a first look, and nothing lost or left behind when it is killed.

    python benchmarks/run.py [--quick]

Full: about 15 minutes (30 kills). Quick: under a minute, fewer of everything.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import drills
from figures import Figures
from writers import write_rows_with_kills

ROOT = Path(__file__).resolve().parent.parent
SMALL = ("sys-exit", "os-exit", "recap-then-exit", "recap-too-early", "no-recap", "empty")


def import_seconds(times=9):
    """Median seconds that `import labkit` adds to a fresh interpreter."""
    code = "import time; begun = time.perf_counter(); import labkit; print(time.perf_counter() - begun)"
    found = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(times)
    ]
    return statistics.median(float(done.stdout) for done in found)


def run_seconds(folder):
    """Seconds for the two first notebooks by `labkit run`, or None when they do not all pass."""
    command = [sys.executable, "-m", "labkit.cli", "run", "00", "01", "--profile", "quick", "--fresh"]
    own = {**os.environ, "LABKIT_ARTIFACTS": str(folder)}
    begun = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
    return time.monotonic() - begun if done.returncode == 0 else None


def early_exits_passed(folder, forms):
    """How many of the early exits were counted as passed, and how many gave no fitting reason."""
    cells = {f"{number:02}_{name}": drills.EARLY_EXITS[name][0] for number, name in enumerate(forms)}
    drills.write_workbook(folder, cells)
    drills.start_batch(folder, cell_deadline_s=8).wait()
    attempts = drills.attempts(folder)
    unexplained = sum(drills.EARLY_EXITS[row.notebook[3:]][1] not in (row.reason or "") for row in attempts)
    passed = sum(row.status == "passed" for row in attempts)
    return passed, unexplained + abs(len(attempts) - len(forms))


def data_figures(figures, folder):
    """The damaged and hostile data files of the tests."""
    sys.path.insert(0, str(ROOT / "tests"))
    from hostile_data import survey

    problems = survey(folder)
    escaped = sum((problem or "").startswith("changed") for problem in problems.values())
    figures.add("data_mutations", len(problems), at_least=100)
    figures.add("data_mutations_undetected", sum(map(bool, problems.values())) - escaped, at_most=0)
    figures.add("data_escapes", escaped, at_most=0)


def kill_figures(figures, folder, *, kills, within_s):
    """SIGKILLs at random moments."""
    drill = drills.KillDrill(folder, random.Random(int(os.environ.get("SEED", "0"))), notebooks=3)
    count = drill.run(kills, within_s=within_s)
    figures.add("kills", count["kills"], at_least=kills)
    figures.add("torn_files", count["torn"], at_most=0)
    figures.add("lost_rows", count["lost"], at_most=0)
    figures.add("resume_completes", count["resumed"], at_least=count["kills"])
    figures.add("finished_notebooks_rerun", count["rerun"], at_most=0)
    figures.add("finished_notebooks_kept", count["kept"], at_least=1 if kills > 5 else None)
    figures.add("kernels_alive_after_5s", count["alive"], at_most=0)


def ledger_figures(figures, folder, *, rows, kills):
    """Eight writers, some of them killed."""
    acknowledged, missing, damaged = write_rows_with_kills(folder, rows=rows, kills=kills)
    figures.add("acknowledged_rows", acknowledged, at_least=8 * rows)
    figures.add("acknowledged_rows_missing", missing, at_most=0)
    figures.add("ledger_damaged", damaged, at_most=0)


def main():
    quick = parse().quick
    figures = Figures()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures.add("import_labkit_seconds", import_seconds(3 if quick else 9), at_most=0.2, unit="s")
        if not quick:  # in a quick check these two notebooks alone would take the minute
            figures.add("run_seconds", run_seconds(folder / "run"), at_most=90, unit="s")
        ledger_figures(figures, folder / "rows", rows=60 if quick else 500, kills=3 if quick else 16)
        passed, unexplained = early_exits_passed(folder / "exits", SMALL[:3] if quick else tuple(drills.EARLY_EXITS))
        figures.add("early_exit_forms_counted_passed", passed, at_most=0)
        figures.add("early_exit_forms_unexplained", unexplained, at_most=0)
        kill_figures(figures, folder / "kills", kills=2 if quick else 30, within_s=5)
        data_figures(figures, folder / "data")
    figures.exit()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer of everything, under a minute")
    return parser.parse_args()


if __name__ == "__main__":
    main()
