"""Drills for the ledger: processes that write at once, some of them killed, and what to look for
afterwards.
"""

import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from labkit import ledger
from labkit.ledger.rows import Memory


def write_rows_with_kills(folder, *, writers=8, rows=500, kills=8, rng=None, source=None):
    """Let processes write rows at once, kill some and start them again; returns (acknowledged,
    missing, damaged).

    source  the writer's program, for drills with a broken one
    """
    rng, folder = rng or random.Random(0), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    program = source or WRITER

    def start(number):
        return subprocess.Popen(
            [sys.executable, "-c", program, str(folder), str(number), str(rows)]
        )

    running = {number: start(number) for number in range(writers)}
    for _ in range(kills):
        number = rng.randrange(writers)
        before = len(acknowledgements(folder / f"ack-{number}.txt"))
        while (
            running[number].poll() is None
            and len(acknowledgements(folder / f"ack-{number}.txt")) == before
        ):
            time.sleep(0.01)  # while it starts it writes nothing: a kill then would try nothing
        time.sleep(rng.uniform(0.0, 0.1))
        running[number].kill()
        running[number].wait()
        running[number] = start(number)
    codes = [process.wait() for process in running.values()]
    acknowledged = set().union(
        *(acknowledgements(folder / f"ack-{number}.txt") for number in range(writers))
    )
    kept = {
        f"{row.run_key} {row.name}" for row in ledger.find(Memory, path=folder / "ledger.sqlite")
    }
    with sqlite3.connect(folder / "ledger.sqlite") as connection:
        sound = connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    connection.close()
    return (
        len(acknowledged),
        len(acknowledged - kept),
        (not sound) + sum(code != 0 for code in codes),
    )


def acknowledgements(path):
    """What a writer said is safe; a line it was killed in the middle of does not count."""
    return set(path.read_text(encoding="utf-8").split("\n")[:-1]) if path.exists() else set()


# Continues after the last row it was told is safe.
WRITER = """
import os, pathlib, sys
from labkit import ledger
from labkit.ledger.rows import Memory

folder, number, rows = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
handle = os.open(folder / f"ack-{number}.txt", os.O_RDWR | os.O_CREAT | os.O_APPEND)
for row in range(os.read(handle, 1 << 20).count(b"\\n"), rows):
    ledger.add(Memory(run_key=f"w{number}", name=f"r{row}", device="cpu", threads=1), path=folder / "ledger.sqlite")
    os.write(handle, f"w{number} r{row}\\n".encode())
"""
