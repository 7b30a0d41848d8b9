"""Which notebooks there are, and which parameters they take."""

import shutil
from pathlib import Path

import pytest

from benchmarks import drills
from labkit.errors import LabError
from labkit.runner import sources


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    drills.write_workbook(
        tmp_path, {"01_b": ["1"], "00_a": ["1"], "notes": ["1"]}, measures=["01_b"]
    )
    return tmp_path / "notebooks"


def test_notebooks_are_found_in_order_by_number_name_and_path(folder):
    assert [source.name for source in sources.find()] == ["00_a", "01_b"]
    assert [source.name for source in sources.find(["01", "00_a", "01_b"])] == ["01_b", "00_a"]
    assert [source.name for source in sources.find([folder / "notes.ipynb"])] == ["notes"]
    assert [source.measures for source in sources.find()] == [False, True]


@pytest.mark.parametrize("names", [["02"], ["missing.ipynb"], ["../pyproject.toml"], []])
def test_a_notebook_that_does_not_exist_is_refused(folder, names):
    with pytest.raises(LabError):
        sources.find(names)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cells": [{}], "metadata": {}}', "not json"])
def test_a_file_that_is_no_notebook_is_named(folder, text):
    (folder / "02_c.ipynb").write_text(text)
    with pytest.raises(LabError, match=r"02_c\.ipynb is not a notebook"):
        sources.find(["02"])


def test_papermill_sees_the_same_parameters(tmp_path):
    import papermill

    drills.write_workbook(tmp_path, {"00_a": ["1"]})
    path = tmp_path / "notebooks" / "00_a.ipynb"
    lines = (
        'profile = \\"lab\\"\\nseed = 0  # a number\\nrate = -0.5\\nbudget = 60 * 10\\nprint(seed)'
    )
    path.write_text(path.read_text().replace('profile = \\"lab\\"\\nseed = 0', lines))
    (source,) = sources.find([path])
    assert source.parameters == {"profile": "lab", "seed": 0, "rate": -0.5, "budget": None}
    assert list(papermill.inspect_notebook(str(path))) == list(source.parameters)


@pytest.mark.parametrize(
    "name, given, becomes",
    [("seed", "3", 3), ("rate", "1e-3", 0.001), ("rate", 2, 2.0), ("deep", False, False), ("sizes", [1, 2], [1, 2]),
     ("profile", "7", "7"), ("free", "7", "7"), ("free", None, None)],
)  # fmt: skip
def test_a_value_becomes_the_type_of_the_default(name, given, becomes):
    assert sources.typed(SOURCE, {name: given}) == {name: becomes}


@pytest.mark.parametrize(
    "name, given",
    [("seed", "3.5"), ("seed", "abc"), ("seed", True), ("seed", 1.5), ("deep", "maybe"), ("deep", 1), ("profile", 3),
     ("sizes", "x"), ("rate", "fast"), ("rate", float("nan")), ("free", object())],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(name, given):
    with pytest.raises(LabError, match=f"parameter '{name}'"):
        sources.typed(SOURCE, {name: given})


DEFAULTS = {"profile": "lab", "seed": 0, "rate": 0.5, "deep": True, "sizes": [], "free": None}
SOURCE = sources.Notebook("00_a", None, False, DEFAULTS)


def test_the_digest_changes_with_a_notebook_and_not_without(folder):
    found = sources.find()
    paths = [notebook.path for notebook in found]
    before = sources.digest(paths)
    assert sources.digest(paths) == before
    (folder / "00_a.ipynb").write_text("{}")
    assert sources.digest(paths) != before


def test_the_digest_changes_with_the_exercises_of_its_notebooks_and_with_no_others(folder):
    paths = [folder / "00_a.ipynb"]
    (folder / "exercises").unlink()  # the course's own
    (folder / "exercises").mkdir()
    digests = [sources.digest(paths)]
    for name in ("l00_a.py", "l01_b.py"):
        (folder / "exercises" / name).write_text("EXERCISES = ()")
        digests.append(sources.digest(paths))
    assert digests[0] != digests[1] == digests[2]


def test_the_digest_changes_with_the_data_of_the_course_and_not_with_that_of_the_reader(folder):
    paths = [folder / "00_a.ipynb"]
    digests = [sources.digest(paths)]
    for name in ("fashion-mnist/labels.gz", "trained/vgg.safetensors", "cifar10/batch"):
        file = folder.parent / "data" / name
        file.parent.mkdir(parents=True)
        file.write_bytes(b"1")
        digests.append(sources.digest(paths))
    assert len(set(digests)) == 3
    assert digests[2] == digests[3]


def test_the_digest_changes_with_a_module_beside_the_lessons(folder):
    before = sources.course()
    (folder / "support").mkdir()
    (folder / "support" / "pruning_and_coding.py").write_text("1")
    first = sources.course()
    (folder / "support" / "pruning_and_coding.py").write_text("2")
    assert len({before, first, sources.course()}) == 3


@pytest.fixture
def package(folder, tmp_path, monkeypatch):
    """A copy of labkit's own files, which a test may change."""
    copy = tmp_path / "copy" / "labkit"
    shutil.copytree(
        Path(sources.__file__).parent.parent, copy, ignore=shutil.ignore_patterns("__pycache__")
    )
    monkeypatch.setattr(sources, "_PACKAGE", copy)
    return copy


# each kind of file of the package, by one that decides a result or how it is shown
DECIDING = (
    "lesson/claims.toml",
    "data/published.toml",
    "engines/tensorrt/messages.toml",
    "templates/style.css",
    "templates/report.html",
    "templates/claims.md",
    "templates/lesson.ipynb",
    "templates/predict.txt",
    "train/loop.py",
)


@pytest.mark.parametrize("name", DECIDING)
def test_the_digest_changes_with_every_kind_of_file_of_the_package(name, package):
    before = sources.course()
    content = (package / name).read_bytes()
    (package / name).write_bytes(content + b"\n")
    assert sources.course() != before
    (package / name).write_bytes(content)
    assert sources.course() == before


def test_every_kind_of_file_in_the_package_is_among_those_that_were_tried(package):
    kinds = {path.suffix for path in package.rglob("*") if path.is_file()}
    assert kinds == {Path(name).suffix for name in DECIDING} | {".typed"}


def test_the_digest_changes_when_a_file_moves_or_is_new(package):
    before = sources.course()
    (package / "templates" / "card.md").rename(package / "lesson" / "card.md")
    moved = sources.course()
    (package / "lesson" / "new.json").write_text("{}")
    assert len({before, moved, sources.course()}) == 3


def test_what_python_and_editors_leave_behind_is_no_part_of_the_digest(package):
    before = sources.course()
    for name in (
        "__pycache__/loop.pyc",
        ".loop.py.swp",
        "lesson/claims.toml~",
        ".ipynb_checkpoints/lesson.ipynb",
    ):
        path = package / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("left behind")
    assert sources.course() == before


def test_a_notebook_that_lost_its_tag_is_told_from_one_without_the_parameter(folder):
    page = folder / "00_a.ipynb"
    page.write_text(page.read_text().replace('"parameters"', '"something"'))
    [lost] = sources.find(["00"])
    assert sources.typed(lost, {}) == {}
    with pytest.raises(
        LabError, match="no cell with the tag `parameters`: an editor may have dropped it"
    ) as caught:
        sources.typed(lost, {"profile": "quick"})
    assert "labkit reset" in caught.value.fix
    [other] = sources.find(["01"])
    with pytest.raises(LabError, match="no parameter 'epochs'"):
        sources.typed(other, {"epochs": 1})


@pytest.mark.parametrize(
    ("parameters", "keeps_tag", "words"),
    [
        ({"sed": 3}, True, "has no parameter 'sed'; there are profile, seed"),
        ({"profile": "quick"}, False, "no cell has the tag `parameters`"),
    ],
)
def test_papermill_with_the_engine_of_the_course_refuses_what_it_would_pass_over(
    folder, tmp_path, parameters, keeps_tag, words
):
    import papermill

    from labkit.runner.engine import LessonFailed

    page = folder / "00_a.ipynb"
    if not keeps_tag:
        page.write_text(page.read_text().replace('"parameters"', '"something"'))
    with pytest.raises(LessonFailed, match=words):
        papermill.execute_notebook(
            page, tmp_path / "out.ipynb", parameters, engine_name="labkit", progress_bar=False
        )
