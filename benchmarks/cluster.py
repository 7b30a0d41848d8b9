"""What runs on a cluster can be trusted with, and what they cost. About 20 minutes; `--quick` about one.

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

sys.path.append(str(Path(__file__).resolve().parent.parent))  # the drills are imported as the tests import them
from benchmarks import cluster_drills, drills

# A notebook that mostly waits: what is compared is what the runner adds, not the machine's mood.
WAITS = "import time\nsum(range(10**6))\ntime.sleep({seconds})"
SHORTEST_LESSON_S = 30  # the quick profile's shortest takes 32 s


def kills(figures, folder, *, quick):
    """Random kills in a run of short notebooks with several seeds."""
    size = {"notebooks": 3, "seeds": 2} if quick else {"notebooks": 12, "seeds": 3}
    wanted = 3 if quick else 30
    drill = cluster_drills.KillDrill(folder, random.Random(int(os.environ.get("SEED", "0"))), **size)
    count = drill.run(wanted)
    print("# killed:", ", ".join(f"{number} x {who}" for who, number in drill.killed.items()))
    print(f"# {drill.begun} starts of the client; {drill.runs} runs of {drill.tasks} tasks came to their end")
    figures.add("kills", count["kills"], at_least=wanted)
    figures.add("runs_that_came_to_their_end", drill.runs, at_least=1)
    figures.add("lost", count["lost"], at_most=0)
    figures.add("doubled", count["doubled"], at_most=0)
    figures.add("finished_run_again", count["rerun"], at_most=0)
    figures.add("torn", count["torn"], at_most=0)
    figures.add("processes_left", drills.alive_after(folder), at_most=0)


def seconds_of(folder, **settings):
    """Seconds of one batch in a process of its own; None when it did not pass."""
    begun = time.monotonic()
    code = drills.start_batch(folder, fresh=True, **settings).wait()
    return time.monotonic() - begun if code == 0 else None


def pairs(folder, times, first, second):
    """[(seconds of the first way, of the second), ...], interleaved; None where a batch did not pass."""
    found = []
    for number in range(times):
        ways = {"first": first, "second": second}
        order = list(ways) if number % 2 == 0 else list(ways)[::-1]
        took = {name: seconds_of(folder, **ways[name]) for name in order}
        shown = {name: f"{value:.1f} s" if value else "not passed" for name, value in took.items()}
        print(f"# {shown['first']} and {shown['second']}", flush=True)
        found.append((took["first"], took["second"]))
    return found if all(all(pair) for pair in found) else None


def overhead(figures, folder, *, quick):
    """One worker of a cluster that runs, against `labkit run`: notebooks as long as the shortest lesson."""
    seconds = 4 if quick else SHORTEST_LESSON_S
    names = ["00_waits"] if quick else ["00_waits", "01_waits", "02_waits"]
    drills.write_workbook(
        folder, {name: [WAITS.format(seconds=seconds), drills.RECORD] for name in names}, measures=names
    )
    with cluster_drills.cluster(folder) as cluster:
        seconds_of(folder, cluster=cluster.address)  # the worker is there from here on
        found = pairs(folder, 1 if quick else 3, {}, {"cluster": cluster.address})
    extra = 100 * (statistics.median(there / here for here, there in found) - 1) if found else None
    figures.add("overhead", extra, at_most=None if quick else 5, unit="%")


def sharing(figures, folder, *, quick):
    """Two local workers against one notebook at a time, on notebooks that do not measure."""
    count, seconds = (2, 4) if quick else (6, SHORTEST_LESSON_S)
    drills.write_workbook(
        folder, {f"{n:02}_waits": [WAITS.format(seconds=seconds), drills.RECORD] for n in range(count)}
    )
    found = pairs(folder, 1 if quick else 2, {"together": 1}, {"cluster": "local"})
    rate = statistics.median(one / two for one, two in found) if found else None
    figures.add("notebooks_per_hour_of_two_workers", rate, at_least=None if quick else 1.6, unit="x")


PARTS = {"kills": kills, "overhead": overhead, "sharing": sharing}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer of everything; no target for speed")
    parser.add_argument("--only", choices=PARTS, help="one part")
    options, figures = parser.parse_args(), Figures()
    for name in [options.only] if options.only else PARTS:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "workbook"
            if name != "kills":
                (place / "artifacts").mkdir(parents=True)
            PARTS[name](figures, place, quick=options.quick)
    figures.exit()


if __name__ == "__main__":
    main()
