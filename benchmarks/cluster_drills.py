"""Drills for runs on a cluster: a scheduler and workers as processes of their own, killed at random
moments.

The tests run them a few times, `benchmarks/cluster.py` many times.
"""

import random
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import psutil

from benchmarks import drills
from labkit import ledger
from labkit.ledger.rows import Attempt, Memory

QUIET = {
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "30s",
    "DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH": "0",
}
ROWS = 10  # of each run of `drills.WORK`


def free_port():
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Cluster:
    """A dask scheduler and its workers on the loopback address, for the workbook in `folder`.

    settings  further environment, such as dask's own settings
    """

    def __init__(self, folder, **settings):
        self.folder, self.port = Path(folder), free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        (self.folder / "temporary").mkdir(exist_ok=True)
        place = {"TMPDIR": str(self.folder / "temporary")}
        self.environment = {**drills.environment(folder), **QUIET, **place, **settings}
        self.scheduler, self.workers = None, {}

    def start_scheduler(self):
        self.scheduler = self._dask(
            "scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"
        )

    def start_worker(self, name="0"):
        """Start a worker; its nanny is the process that is kept."""
        words = f"worker {self.address} --host 127.0.0.1 --nthreads 1 --resources labkit=1 --no-dashboard".split()
        self.workers[name] = self._dask(
            *words, "--name", name, "--local-directory", str(self.folder / "scratch")
        )

    def _dask(self, *words):
        with (self.folder / "cluster.log").open("ab") as log:
            how = {
                "env": self.environment,
                "cwd": self.folder,
                "stdin": subprocess.DEVNULL,
                "start_new_session": True,
            }
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "dask", *words], stdout=log, stderr=log, **how
            )

    def worker_process(self, name="0"):
        """The process under the nanny that runs tasks, or None when there is none just now."""
        with suppress(psutil.Error):
            for child in psutil.Process(self.workers[name].pid).children():
                if "spawn_main" in " ".join(child.cmdline()):
                    return child
        return None

    def close(self):
        """End it as a user would, and then whatever is left of it."""
        processes = [process for process in (*self.workers.values(), self.scheduler) if process]
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def cluster(folder, **settings):
    """A running cluster with one worker, as a context that closes it at the end."""
    made = Cluster(folder, **settings)
    made.start_scheduler()
    made.start_worker()
    return closing(made)


class KillDrill:
    """Kills workers, the client and the scheduler of a run at random moments, and counts what that
    broke.

    folder  an empty folder for the workbook
    """

    def __init__(self, folder, rng=None, *, notebooks=12, seeds=3, workers=2):
        self.folder, self.rng = Path(folder), rng or random.Random(0)
        (self.folder / "artifacts").mkdir(parents=True)
        drills.write_workbook(
            folder,
            {f"{n:02}_drill": [drills.WORK, "x = 1", drills.RECORD] for n in range(notebooks)},
        )
        self.tasks, self.seeds, self.names = (
            notebooks * seeds,
            tuple(range(seeds)),
            [str(n) for n in range(workers)],
        )
        self.cluster, self.client = Cluster(folder), None
        self.killed = dict.fromkeys(("worker", "nanny", "client", "scheduler"), 0)
        self.seen, self.runs, self.begun = {}, 0, 0

    def run(self, kills, *, within_s=4.0, limit_s=1200):
        """Kill `kills` times, then let the run end. Returns the counts.

        within_s  the next kill comes this long after the last, or earlier
        """
        end, fresh = time.monotonic() + limit_s, True
        try:
            while time.monotonic() < end:
                self.mend(fresh=fresh)
                fresh = False
                with suppress(subprocess.TimeoutExpired):
                    self.client.wait(timeout=self.rng.uniform(0.3, within_s))
                self.note_finished()
                if self.client.poll() == 0:
                    self.runs += 1
                    if sum(self.killed.values()) >= kills:
                        break
                    fresh = True
                elif self.client.poll() is None and sum(self.killed.values()) < kills:
                    self.kill(self.rng.choices(list(self.killed), [6, 2, 4, 2])[0])
            return self.counts()
        finally:
            if self.client:
                self.client.kill()
                self.client.wait()
            self.cluster.close()

    def mend(self, *, fresh):
        """Start again what is not there."""
        if _ended(self.cluster.scheduler):
            self.cluster.start_scheduler()
        for name in self.names:
            if _ended(self.cluster.workers.get(name)):
                self.cluster.start_worker(name)
        if _ended(self.client):
            settings = {"cluster": self.cluster.address, "seeds": self.seeds, "fresh": fresh}
            self.client = drills.start_batch(self.folder, **settings)
            self.begun += 1

    def kill(self, who):
        """Kill one of them as hard as the system can."""
        name = self.rng.choice(self.names)
        if who == "worker":
            process = self.cluster.worker_process(name)
        else:
            process = {"nanny": self.cluster.workers[name], "client": self.client}.get(
                who, self.cluster.scheduler
            )
        if process:
            with suppress(psutil.Error):
                process.kill()
                process.wait()
                self.killed[who] += 1

    def note_finished(self):
        """Remember how often each finished task had been started by the time it was first seen
        as finished.
        """
        for row in passed(self.folder):
            self.seen.setdefault((row.batch_key, row.notebook, row.seed), self.starts(row))

    def starts(self, row):
        """How often the task of an attempt was started, in whatever batch."""
        keys = drills.lines(self.folder, "started.txt")
        return sum(key.split("/")[1] == f"{row.notebook}-seed-{row.seed}" for key in keys)

    def counts(self):
        """What the newest run has, and what must not be."""
        path = drills.ledger_of(self.folder)
        done, rows = passed(self.folder), ledger.find(Memory, path=path)
        keys = {row.run_key for row in done}
        every = {row.run_key for row in ledger.find(Attempt, path=path)}
        seen = {row: self.seen.get((row.batch_key, row.notebook, row.seed)) for row in done}
        return {
            "kills": sum(self.killed.values()),
            "lost": self.tasks - len(keys) + self.tasks * ROWS - sum(row.run_key in keys for row in rows),
            "doubled": len(rows) - len({(row.run_key, row.name) for row in rows})
            + len(done) - len({(row.notebook, row.seed) for row in done})
            + sum(row.run_key not in every for row in rows),
            "rerun": sum(count is not None and self.starts(row) > count for row, count in seen.items()),
            "torn": len(drills.torn_files(self.folder)) + (damage(path) != "ok")
            + sum(not (self.folder / "artifacts" / row.output).exists() for row in done),
        }  # fmt: skip


def _ended(process):
    """Whether a process has ended, or never began."""
    return process is None or process.poll() is not None


def passed(folder):
    """The attempts of the newest batch that passed."""
    return [row for row in drills.attempts(folder) if row.status == "passed"]


def damage(path):
    """What SQLite finds wrong with a ledger; "ok" when nothing is."""
    with closing(sqlite3.connect(path)) as stored:
        return stored.execute("PRAGMA integrity_check").fetchone()[0]
