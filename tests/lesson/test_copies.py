"""The reader's own copies: an update of the course renews what is unchanged, keeps the rest, and
loses nothing.
"""

import os
import shutil
import subprocess

import nbformat
import pytest
from test_cli import call

from labkit.classroom import copies
from labkit.files import my_lessons, root
from labkit.runner.sources import find

COURSE = root()
FIRST, SECOND = "00_tea.ipynb", "01_water.ipynb"
GIT = (
    "git",
    "-c",
    "user.name=Ada",
    "-c",
    "user.email=ada@example.org",
    "-c",
    "init.defaultBranch=main",
)


def write_original(folder, name=FIRST, *code):
    (folder / "notebooks").mkdir(parents=True, exist_ok=True)
    cells = [
        nbformat.v4.new_code_cell(source, id=f"cell-{number}") for number, source in enumerate(code)
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "notebooks" / name)


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course of two lessons; the copies lie where a reader has them."""
    folder = tmp_path / "course"
    write_original(folder, FIRST, "temperature = ...", "print('tea')")
    write_original(folder, SECOND, "print('water')")
    monkeypatch.setenv("LABKIT_ROOT", str(folder))
    monkeypatch.delenv("LABKIT_MY_LESSONS")
    return folder


def edit(path, number, source=None, output=None):
    """As JupyterLab does it: another source, or an output beside it, and the file is saved."""
    page = nbformat.read(path, as_version=4)
    if source:
        page.cells[number].source = source
    if output:
        page.cells[number].outputs = [nbformat.v4.new_output("stream", text=output)]
    nbformat.write(page, path)


def source_of(path, number=0):
    return nbformat.read(path, as_version=4).cells[number].source


def test_the_first_call_copies_every_lesson_and_the_second_changes_nothing(course):
    assert copies.renew() == []
    for name in (FIRST, SECOND):
        assert (my_lessons() / name).read_bytes() == (course / "notebooks" / name).read_bytes()
    times = {path: path.stat().st_mtime_ns for path in my_lessons().rglob("*")}
    assert copies.renew() == []
    assert {path: path.stat().st_mtime_ns for path in my_lessons().rglob("*")} == times


def test_a_lesson_that_the_reader_has_only_run_is_renewed_and_its_outputs_are_kept(course):
    copies.renew()
    edit(my_lessons() / FIRST, 1, output="tea")
    write_original(course, FIRST, "degrees = ...", "print('tea')")
    [told] = copies.renew()
    assert (
        told == "00_tea: renewed, the course has changed it. Yours, with its outputs, is "
        "my-lessons/old/00_tea-1.ipynb."
    )
    assert source_of(my_lessons() / FIRST) == "degrees = ..."
    assert (
        nbformat.read(my_lessons() / "old" / "00_tea-1.ipynb", as_version=4)
        .cells[1]
        .outputs[0]
        .text
        == "tea"
    )
    assert copies.renew() == []


def test_a_lesson_that_nobody_has_opened_is_renewed_without_leaving_an_old_one(course):
    copies.renew()
    write_original(course, FIRST, "degrees = ...")
    assert copies.renew() == ["00_tea: renewed, the course has changed it."]
    assert not (my_lessons() / "old").exists()


def test_a_changed_lesson_stays_and_the_new_one_is_offered_until_it_is_reset(course):
    copies.renew()
    edit(my_lessons() / FIRST, 0, source="temperature = 80")
    assert copies.renew() == []
    write_original(course, FIRST, "temperature = ...", "print('green tea')")
    [told] = copies.renew()
    assert "the course has changed this lesson" in told
    assert "you have changed your copy, so it stays" in told.lower()
    assert "`labkit reset 00`" in told
    assert source_of(my_lessons() / FIRST) == "temperature = 80"
    assert copies.renew() == [told]

    output = call("reset", "00")
    assert "00_tea.ipynb is fresh. Yours is" in output
    assert source_of(my_lessons() / FIRST, 1) == "print('green tea')"
    assert source_of(my_lessons() / "old" / "00_tea-1.ipynb") == "temperature = 80"
    assert copies.renew() == []


def test_every_reset_keeps_an_older_copy_under_its_own_number(course):
    copies.renew()
    for number, source in enumerate(("temperature = 70", "temperature = 90"), start=1):
        edit(my_lessons() / FIRST, 0, source=source)
        call("reset", str(my_lessons() / FIRST))
        assert source_of(my_lessons() / "old" / f"00_tea-{number}.ipynb") == source
    assert call("reset", "00").strip().endswith("is fresh.")
    assert len(list((my_lessons() / "old").iterdir())) == 2


def test_a_copy_that_is_no_notebook_any_more_counts_as_changed(course):
    copies.renew()
    (my_lessons() / FIRST).write_text('{"cells": [<<<<<<< yours', encoding="utf-8")
    write_original(course, FIRST, "degrees = ...")
    assert "You have changed your copy" in copies.renew()[0]
    assert (my_lessons() / FIRST).read_text(encoding="utf-8") == '{"cells": [<<<<<<< yours'
    assert "is fresh. Yours is" in call("reset", "00")
    assert source_of(my_lessons() / FIRST) == "degrees = ..."


def test_a_lesson_that_the_course_no_longer_has_is_put_away(course):
    copies.renew()
    (my_lessons() / "my_notes.ipynb").write_text("{}")
    edit(my_lessons() / FIRST, 0, source="temperature = 80")
    for name in (FIRST, SECOND):
        (course / "notebooks" / name).unlink()
    write_original(course, "02_milk.ipynb", "print('milk')")
    told = (
        "00_tea: no longer in the course. Yours, with its outputs, is "
        "my-lessons/old/00_tea-1.ipynb."
    )
    assert copies.renew() == [told]
    assert sorted(path.name for path in my_lessons().glob("*.ipynb")) == [
        "02_milk.ipynb",
        "my_notes.ipynb",
    ]
    assert copies.renew() == []


def test_a_renewal_that_was_cut_short_leaves_nothing_that_looks_changed(course, monkeypatch):
    copies.renew()
    write_original(course, FIRST, "degrees = ...")

    def killed(original):
        raise KeyboardInterrupt

    with monkeypatch.context() as at_the_kill, pytest.raises(KeyboardInterrupt):
        at_the_kill.setattr(copies, "_remember", killed)
        copies.renew()
    assert source_of(my_lessons() / FIRST) == "degrees = ..."
    assert copies.renew() == []
    write_original(course, FIRST, "kelvin = ...")
    assert copies.renew() == ["00_tea: renewed, the course has changed it."]


def git(folder, *words):
    done = subprocess.run([*GIT, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_git_pull_never_meets_the_work_of_a_reader(course, tmp_path, monkeypatch):
    shutil.copyfile(COURSE / ".gitignore", course / ".gitignore")
    for words in (("init",), ("add", "."), ("commit", "-m", "the course")):
        git(course, *words)
    student = tmp_path / "student"
    git(tmp_path, "clone", str(course), str(student))
    monkeypatch.setenv("LABKIT_ROOT", str(student))
    copies.renew()
    edit(my_lessons() / FIRST, 0, source="temperature = 80", output="hot")
    edit(my_lessons() / SECOND, 0, output="water")

    write_original(course, FIRST, '"""In degrees."""\ntemperature = ...', "print('tea')")
    write_original(course, SECOND, "print('soft water')")
    git(course, "commit", "-a", "-m", "both lessons in other words")
    git(student, "pull")
    assert git(student, "status", "--porcelain") == ""
    kept, renewed = copies.renew()
    assert kept.startswith(
        "00_tea: the course has changed this lesson. You have changed your copy, so it stays"
    )
    assert renewed.startswith("01_water: renewed")
    assert source_of(my_lessons() / FIRST) == "temperature = 80"
    assert source_of(my_lessons() / SECOND) == "print('soft water')"
    assert git(student, "status", "--porcelain") == ""


def test_make_clean_removes_what_runs_produced_and_leaves_the_copies(course):
    copies.renew()
    shutil.copyfile(COURSE / "Makefile", course / "Makefile")
    for name in ("artifacts/recorded", "artifacts/executed", ".venv"):
        (course / name).mkdir(parents=True)
    before = {path: path.read_bytes() for path in my_lessons().rglob("*.ipynb")}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    subprocess.run(["make", "clean"], cwd=course, env=environment, check=True, capture_output=True)
    assert {path: path.read_bytes() for path in my_lessons().rglob("*.ipynb")} == before
    assert sorted(path.name for path in course.iterdir()) == [
        "Makefile",
        "artifacts",
        "my-lessons",
        "notebooks",
    ]
    assert [path.name for path in (course / "artifacts").iterdir()] == ["recorded"]


def test_the_page_for_tools_that_help_comes_along_and_is_renewed_unless_the_reader_changed_it(
    course, monkeypatch
):
    copies.renew()
    page, guide = my_lessons() / "AGENTS.md", COURSE / "labkit" / "templates" / "AGENTS.md"
    assert page.read_bytes() == guide.read_bytes()
    assert "Never" in page.read_text(encoding="utf-8")
    earlier = course / "AGENTS.md"
    earlier.write_text("of last year", encoding="utf-8")
    with monkeypatch.context() as last_year:
        last_year.setattr(copies, "GUIDE", earlier)
        assert copies.renew() == []
    assert page.read_text(encoding="utf-8") == "of last year"
    copies.renew()
    assert page.read_bytes() == guide.read_bytes()
    page.write_text("my own", encoding="utf-8")
    copies.renew()
    assert page.read_text(encoding="utf-8") == "my own"


def test_a_headless_run_takes_the_originals_and_a_copy_where_its_path_is_given(course):
    copies.renew()
    assert [notebook.path.parent for notebook in find(["00", "01"])] == [course / "notebooks"] * 2
    assert [notebook.path for notebook in find([my_lessons() / FIRST])] == [my_lessons() / FIRST]


def test_jupyterlab_opens_on_the_copies_and_for_authors_on_the_originals(course, monkeypatch):
    opened = []
    monkeypatch.setattr(
        "labkit.classroom.jupyter.serve", lambda *settings: opened.append(settings) or 0
    )
    assert "Your copies of the lessons:" in call("lab", "--port", "9999")
    assert "copies" not in call("lab", "--originals")
    assert opened == [(my_lessons(), ["--port", "9999"]), (course / "notebooks", [])]


def test_no_test_sees_the_copies_of_this_checkout(own_artifacts):
    assert my_lessons() == own_artifacts.parent / "my-lessons"
