"""Which notebooks there are, and which parameters they take."""

import pytest

from benchmarks import drills
from labkit.errors import LabError
from labkit.runner import sources


@pytest.fixture
def folder(tmp_path):
    drills.write_workbook(tmp_path, {"01_b": ["1"], "00_a": ["1"], "notes": ["1"]}, measures=["01_b"])
    return tmp_path / "notebooks"


def test_notebooks_are_found_in_order_by_number_name_and_path(folder):
    assert [source.name for source in sources.find(folder=folder)] == ["00_a", "01_b"]
    assert [source.name for source in sources.find(["01", "00_a", "01_b"], folder=folder)] == ["01_b", "00_a"]
    assert [source.name for source in sources.find([folder / "notes.ipynb"], folder=folder)] == ["notes"]
    assert [source.measures for source in sources.find(folder=folder)] == [False, True]


@pytest.mark.parametrize("names", [["02"], ["missing.ipynb"], ["../pyproject.toml"], []])
def test_a_notebook_that_does_not_exist_is_refused(folder, names):
    with pytest.raises(LabError):
        sources.find(names, folder=folder)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cells": [{}], "metadata": {}}', "not json"])
def test_a_file_that_is_no_notebook_says_so_instead_of_raising(folder, text):
    (folder / "02_c.ipynb").write_text(text)
    assert sources.find(["02"], folder=folder)[0].problem.startswith("not a notebook: ")


def test_parameters_are_seen_however_they_are_assigned():
    cell = "profile, seed = 'lab', 0\nrate: float = -0.5\nnames = ['a']\nbudget = 60 * 10\nfirst, *rest = range(3)"
    assert sources.assigned(cell + "\nx.y = 1\nprint(profile)") == {
        "profile": "lab",
        "seed": 0,
        "rate": -0.5,
        "names": ["a"],
        "budget": sources.UNKNOWN,
        "first": sources.UNKNOWN,
    }


def test_papermill_sees_the_same_parameters_where_it_understands_the_cell(tmp_path):
    import papermill

    drills.write_workbook(tmp_path, {"00_a": [("profile = 'lab'\nseed = 0  # a number\nrate = 0.5", ["parameters"])]})
    path = tmp_path / "notebooks" / "00_a.ipynb"
    text = path.read_text().replace(drills.PARAMETERS.replace('"', '\\"'), "# none")
    path.write_text(text.replace('"tags": ["parameters"]', '"tags": []', 1))
    assert (
        list(papermill.inspect_notebook(str(path)))
        == list(sources.read(path).parameters)
        == ["profile", "seed", "rate"]
    )


@pytest.mark.parametrize(
    "name, given, becomes",
    [("seed", "3", 3), ("rate", "1e-3", 0.001), ("rate", 2, 2), ("deep", "no", False), ("sizes", "[1, 2]", [1, 2]),
     ("profile", "7", "7"), ("free", "7", 7), ("free", "seven", "seven"), ("free", None, None)],
)  # fmt: skip
def test_text_becomes_the_type_of_the_default(name, given, becomes):
    assert sources.typed(source(), {name: given}) == {name: becomes}


@pytest.mark.parametrize(
    "name, given",
    [("seed", "3.5"), ("seed", True), ("seed", 1.5), ("deep", "maybe"), ("deep", 1), ("profile", 3), ("sizes", "x"),
     ("rate", "fast"), ("free", object()), ("sizes", "(")],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(name, given):
    with pytest.raises(LabError, match=f"parameter '{name}'"):
        sources.typed(source(), {name: given})


def source():
    cell = "profile, seed, rate, deep, sizes, free = 'lab', 0, 0.5, True, [], None"
    return sources.Source("00_a", None, None, False, sources.assigned(cell))


def test_the_digest_changes_with_a_notebook_and_not_without(folder):
    found = sources.find(folder=folder)
    before = sources.digest(found)
    assert sources.digest(found) == before
    (folder / "00_a.ipynb").write_text("{}")
    assert sources.digest(found) != before
