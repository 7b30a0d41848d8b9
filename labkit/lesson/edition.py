"""The student edition: the course as a folder without solutions. docs/teaching.md says what that hides, and what not.

The modules of exercises stay, because their checks and the results of their answers are needed; their source is packed,
so that neither `??`, nor a search through the files, nor a tool that reads along shows it.
"""

import base64
import re
import shutil
import subprocess
import zlib
from pathlib import Path

from labkit.device import commit
from labkit.errors import LabError
from labkit.files import root, write_text

LEFT_OUT = ("tests/", "benchmarks/", ".ci/", ".github/")  # tests hold answers, benchmarks use the tests
PACKED = '''"""The checks of a lesson's exercises and what an unsolved one lends, without source: a student edition."""

import base64
import zlib

exec(compile(zlib.decompress(base64.b85decode("{}")), "<exercises>", "exec"))
'''
NOTE = """
> **Student edition**, made of commit {}. An exercise that you have not solved lends what its reference answer
> computes. Solutions, tests and benchmarks are not in it, so `make test` has nothing to run.
"""


def release(folder: Path) -> Path:
    """Write the student edition into a folder that is not there yet; returns its path.

    Raises  LabError where the folder is there, or the course is no checkout of git: only what git tracks is handed out
    """
    listed = subprocess.run(["git", "-C", root(), "ls-files", "-z"], capture_output=True, text=True)
    if folder.exists() or listed.returncode:
        raise LabError(
            "The student edition cannot be written.",
            expected="a new folder, and the course as a checkout of git",
            found=f"{folder} is there already" if folder.exists() else listed.stderr.strip(),
            fix="name another folder" if folder.exists() else "clone the course's repository, and call it there",
        )
    for name in listed.stdout.split("\0")[:-1]:
        if not name.startswith(LEFT_OUT) and (root() / name).is_file():
            _write(name, folder / name)
    return folder


def _write(name, target):
    """One file of the course as the student edition has it."""
    source = root() / name
    if re.search(r"lesson/exercises/l\d\d_\w+\.py$", name):
        write_text(target, PACKED.format(base64.b85encode(zlib.compress(source.read_bytes(), 9)).decode()))
    elif name == "README.md":
        title, rest = source.read_text(encoding="utf-8").split("\n", 1)
        write_text(target, f"{title}\n{NOTE.format(commit())}{rest}")
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
