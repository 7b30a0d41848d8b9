"""What is handed in: an ONNX file and the name of an engine, or Python source that makes them.

The source defines `make(folder)`, which writes `model.onnx` into the folder and returns the engine's name. With an
engine of its own it also defines `serve(path)`, which returns a function from float32 (N, 1, 28, 28) to (N, 10); then
`make` returns "own". Both run confined (`confine`), never in the process that scores.
"""

import os
import re
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from labkit.errors import LabError

LARGEST = 2**24  # bytes of what is handed in; the reference network takes six million
NAME_LENGTH = 60


@dataclass(frozen=True)
class Submission:
    """One thing to score.

    path    an .onnx file, or Python source (.py)
    engine  one of `labkit.engines.names(runs="onnx")`; a source may leave it None, for `make` returns it
    name    of who or what it is, for the leaderboard
    """

    path: Path
    engine: str | None = None
    name: str = ""

    def job(self):
        """What the judge is told. Raises LabError for a file that need not be judged."""
        path = Path(self.path)
        if path.suffix not in (".py", ".onnx") or not path.is_file():
            raise LabError("There is nothing to score.", expected="an .onnx or .py file", found=str(path)[:200])
        if path.suffix == ".onnx" and self.engine is None:
            raise LabError("An ONNX file needs an engine.", expected="--engine NAME", fix="--engine onnxruntime")
        return {"name": plain(self.name or path.stem), "path": str(path.resolve()), "engine": self.engine}


def plain(text):
    """Any text as one line of at most 60 printable characters."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(text)[: 10 * NAME_LENGTH])
    return re.sub(r" +", " ", text).strip()[:NAME_LENGTH] or "nameless"


def copied(path, target):
    """Copy a file of at most `LARGEST` bytes: what is checked afterwards is what is run. Returns the target.

    Raises  LabError for what is no ordinary file, or is too large
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)  # no pipe waits, no link leads on
    with os.fdopen(handle, "rb") as source:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise LabError("It is no ordinary file.")
        size = about.st_size
        if size > LARGEST:
            raise LabError(
                "It is too large.", expected=f"at most {LARGEST / 1e6:.0f} MB", found=f"{size / 1e6:,.0f} MB"
            )
        with Path(target).open("wb") as copy:
            shutil.copyfileobj(source, copy)
    return Path(target)
