"""Do the tests notice a fault? planted/faults.toml holds fifty that a programmer could make, in all
rooms of labkit, and beside each the tests that have to fail while it is there.

Each fault is put into a copy of the course, where these tests run in a process of their own.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from labkit.files import short_digest

COURSE = Path(__file__).parent.parent
FAULTS = tomllib.loads((COURSE / "tests" / "planted" / "faults.toml").read_text(encoding="utf-8"))[
    "fault"
]
COPIED = ("labkit", "tests", "pyproject.toml")
NOT_LINKED = (".git", ".venv", "artifacts", "my-lessons", *COPIED)
LIMIT_S = 400  # for the tests of one fault, on a busy machine
each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["name"])


def moved_on(fault, text):
    """Return in words why a fault cannot be put into the text of its file; None where it can."""
    count = text.count(fault["old"])
    if count == 1:
        return None
    return (
        f"The code has moved on: labkit/{fault['file']} has {count} times, and not once, what the "
        f"fault {fault['name']!r} replaces:\n{fault['old']}\n"
        "Give it the text that stands there now (tests/planted/faults.toml)."
    )


@pytest.fixture(scope="module")
def copy_of_course(tmp_path_factory):
    """A folder with a copy of labkit and of the tests; all else is linked."""
    course = tmp_path_factory.mktemp("course")
    without_bytecode = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        source = COURSE / name
        if source.is_dir():
            shutil.copytree(source, course / name, ignore=without_bytecode)
        else:
            shutil.copy2(source, course / name)
    for source in COURSE.iterdir():
        if source.name not in NOT_LINKED:
            (course / source.name).symlink_to(source)
    # the fault is read from its source: what is compiled here is that of the others
    subprocess.run([sys.executable, "-m", "compileall", "-q", course / "labkit"], check=True)
    return course


def run_of_tests(fault, course, folder):
    """Run the tests of a fault in a copy of the course. Returns the finished process."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "LABKIT_"))
    }
    environment = {
        **inherited,
        "PYTHONPATH": os.pathsep.join([str(course), str(course / "notebooks")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    options = ["-x", "-q", "-p", "no:cacheprovider", f"--basetemp={folder / 'temporary'}"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *fault["tests"]],
        cwd=course,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def test_every_fault_fits_the_code_it_is_put_into():
    words = [moved_on(fault, source_of(fault)) for fault in FAULTS]
    assert not any(words), "\n\n".join(filter(None, words))


def source_of(fault):
    return (COURSE / "labkit" / fault["file"]).read_text(encoding="utf-8")


def test_faults_lie_in_all_rooms_and_each_has_a_name_of_its_own():
    rooms = {Path(fault["file"]).parts[0] for fault in FAULTS}
    packages = {path.parent.name for path in (COURSE / "labkit").glob("*/__init__.py")}
    assert packages - rooms == {"authoring", "experiments"}
    assert set(Counter(fault["name"] for fault in FAULTS).values()) == {1}


def test_a_fault_whose_code_has_moved_on_is_named_in_words():
    fault = {"name": "a sign", "file": "format.py", "old": "a - b"}
    assert moved_on(fault, "c = a - b") is None
    assert "has 0 times" in moved_on(fault, "c = a + b")
    assert "has 2 times" in moved_on(fault, "c = a - b\nd = a - b")
    assert "'a sign'" in moved_on(fault, "")


@pytest.mark.release
@each_fault
def test_a_planted_fault_is_caught(fault, copy_of_course, once, tmp_path):
    def require_that_they_pass(folder):
        process = run_of_tests(fault, copy_of_course, folder)
        assert process.returncode == 0, f"without the fault:\n{process.stdout[-3000:]}"

    once(f"sound-{short_digest(' '.join(fault['tests']))}", require_that_they_pass)

    path = copy_of_course / "labkit" / fault["file"]
    text = path.read_text(encoding="utf-8")
    assert moved_on(fault, text) is None
    status = path.stat()
    path.write_text(text.replace(fault["old"], fault["new"]), encoding="utf-8")
    os.utime(path, (0, 0))  # another time than that of the compiled file
    try:
        process = run_of_tests(fault, copy_of_course, tmp_path)
    finally:
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert process.returncode == 1, f"no test failed:\n{process.stdout[-3000:]}"
