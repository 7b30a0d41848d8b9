"""What runs on a cluster can be trusted with, and what they cost. About 20 minutes; `--quick` about
one.

Workers, nannies, client and scheduler are processes of their own, on the loopback address.
"""

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from figures import Figures

# the drills are imported as the tests import them
sys.path.append(str(Path(__file__).resolve().parent.parent))
from benchmarks import cluster_drills, drills

# A notebook that mostly waits: what is compared is what the runner adds, not the machine's mood.
WAITS = "import time\nsum(range(10**6))\ntime.sleep({seconds})"
SHORTEST_LESSON_S = 30  # the quick profile's shortest takes 32 s


def kills(figures, folder, *, quick):
    """Random kills in a run of short notebooks with several seeds."""
    size = {"notebooks": 3, "seeds": 2} if quick else {"notebooks": 12, "seeds": 3}
    wanted = 3 if quick else 30
    drill = cluster_drills.KillDrill(
        folder, random.Random(int(os.environ.get("SEED", "0"))), **size
    )
    count = drill.run(wanted)
    print("# killed:", ", ".join(f"{number} x {who}" for who, number in drill.killed.items()))
    print(
        f"# {drill.begun} starts of the client; {drill.runs} runs of {drill.tasks} "
        "tasks came to their end"
    )
    figures.add("kills", count.pop("kills"), at_least=wanted)
    figures.add("runs_that_came_to_their_end", drill.runs, at_least=1)
    for name, number in count.items():
        figures.add(name, number, at_most=0)
    figures.add("processes_left", drills.alive_after(folder), at_most=0)


def seconds_of(folder, **settings):
    """Seconds of one batch in a process of its own."""
    begun = time.monotonic()
    if drills.start_batch(folder, fresh=True, **settings).wait():
        raise RuntimeError(f"a batch with {settings} did not pass: {folder}/batch.log")
    return time.monotonic() - begun


def speed(figures, folder, *, quick):
    """A local cluster against `labkit run`: one notebook at a time on both, then two at a time
    on the cluster.
    """
    count, seconds = (2, 4) if quick else (6, SHORTEST_LESSON_S)
    cells = [WAITS.format(seconds=seconds), drills.RECORD]
    (folder / "artifacts").mkdir(parents=True)
    drills.write_workbook(folder, {f"{number:02}_waits": cells for number in range(count)})
    ways = {
        "here": {"together": 1},
        "one": {"cluster": "local", "together": 1},
        "two": {"cluster": "local"},
    }
    took = {name: [] for name in ways}
    for _ in range(1 if quick else 3):
        for name, settings in ways.items():
            took[name].append(seconds_of(folder, **settings))
    middle = {name: statistics.median(values) for name, values in took.items()}
    overhead = 100 * (middle["one"] / middle["here"] - 1)
    figures.add("overhead", overhead, at_most=None if quick else 5, unit="%")
    figures.add(
        "speed_of_two", middle["here"] / middle["two"], at_least=None if quick else 1.6, unit="x"
    )


PARTS = {"kills": kills, "speed": speed}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="fewer of everything; no target for speed"
    )
    parser.add_argument("--only", choices=PARTS, help="one part")
    options, figures = parser.parse_args(), Figures()
    for name in [options.only] if options.only else PARTS:
        with tempfile.TemporaryDirectory() as folder:
            PARTS[name](figures, Path(folder) / "workbook", quick=options.quick)
    figures.exit()


if __name__ == "__main__":
    main()
