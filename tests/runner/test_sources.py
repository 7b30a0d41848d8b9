"""Which notebooks there are, and which parameters they take."""

import pytest

from benchmarks import drills
from labkit.errors import LabError
from labkit.runner import sources


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    drills.write_workbook(tmp_path, {"01_b": ["1"], "00_a": ["1"], "notes": ["1"]}, measures=["01_b"])
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
    lines = 'profile = \\"lab\\"\\nseed = 0  # a number\\nrate = -0.5\\nbudget = 60 * 10\\nprint(seed)'
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
