"""The tours and proofs of notebooks/deeper: clean, listed, run by `labkit run --deeper`, and
running to their end.
"""

import ast
import importlib.util
import re

import nbformat
import pytest
from test_notebooks import papermill
from typer.testing import CliRunner

from labkit import ledger, runner
from labkit.cli.app import app
from labkit.files import deeper_notebooks, notebooks, root
from labkit.ledger.rows import Completion
from labkit.runner import sources

MOST_CELLS = 60
# What a notebook cannot begin without: TensorRT builds engines on Linux on x86-64 alone.
NEEDS = {"tensorrt_features_one_by_one": ("tensorrt", "tensorrt_rtx", "tensorrt_rtx_bindings")}
each_notebook = pytest.mark.parametrize("path", deeper_notebooks(), ids=lambda path: path.stem)


def cells_of(path):
    return nbformat.read(path, as_version=4).cells


@each_notebook
def test_a_deeper_notebook_is_valid_short_and_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert isinstance(notebook.metadata.labkit.measures, bool)
    assert len(notebook.cells) <= MOST_CELLS
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)


@each_notebook
def test_a_deeper_notebook_has_one_cell_of_parameters_starts_under_its_name_and_ends_with_the_recap(
    path,
):
    code = [cell for cell in cells_of(path) if cell.cell_type == "code"]
    (cell,) = [cell for cell in code if "parameters" in cell.metadata.get("tags", [])]
    assert re.search(r'^profile = "lab"', cell.source, flags=re.MULTILINE)
    assert re.search(r"^seed = 0$", cell.source, flags=re.MULTILINE)
    assert any(f'start("{path.stem}", profile, seed)' in cell.source for cell in code)
    assert code[-1].source == "recap()"
    assert max(len(cell.source.splitlines()) for cell in code) <= 25


@each_notebook
def test_a_deeper_notebook_reveals_what_it_asks_and_makes_no_claim_of_the_register(path):
    text = "\n".join(cell.source for cell in cells_of(path) if cell.cell_type == "code")
    assert set(re.findall(r'predict\(\s*"([\w-]+)"', text)) == set(
        re.findall(r'reveal\(\s*"([\w-]+)"', text)
    )
    called = {
        node.func.id
        for node in ast.walk(ast.parse(text))
        if isinstance(getattr(node, "func", None), ast.Name)
    }
    assert not called & {"claim", "answer", "exercise", "keep_mine"}


@each_notebook
def test_a_deeper_notebook_is_listed_names_its_lesson_and_its_lesson_names_it(path):
    listed = (root() / "docs" / "editions.md").read_text(encoding="utf-8")
    assert f"notebooks/deeper/{path.name}" in listed
    first = cells_of(path)[0].source
    senders = re.findall(r"\]\(\.\./(\d\d_\w+\.ipynb)\)", first)
    assert senders
    texts = [(root() / "notebooks" / name).read_text(encoding="utf-8") for name in senders]
    assert any(f"notebooks/deeper/{path.name}" in text for text in texts)


@each_notebook
def test_every_link_of_a_deeper_notebook_leads_to_a_lesson(path):
    for cell in cells_of(path):
        if cell.cell_type == "markdown":
            for target in re.findall(r"\]\((?!https?:)([^)]+)\)", cell.source):
                assert (path.parent / target).is_file(), target


def test_the_lessons_are_counted_without_the_deeper_notebooks():
    assert len(notebooks()) == 21
    assert not set(notebooks()) & set(deeper_notebooks())


@each_notebook
def test_a_deeper_notebook_is_found_by_its_name(path):
    [found] = sources.find([path.stem])
    assert found.path == path


class _Ran(Exception):
    """Raised in place of a run."""


@pytest.mark.parametrize(
    ("words", "lessons"),
    [((), [path.stem for path in notebooks()]), (("02",), ["02_measuring_honestly"])],
)
def test_run_deeper_takes_the_deeper_notebooks_after_the_lessons(words, lessons, monkeypatch):
    def run_batch(names, **settings):
        raise _Ran([notebook.name for notebook in sources.find(names)])

    monkeypatch.setattr(runner, "run_batch", run_batch)
    done = CliRunner().invoke(app, ["run", *words, "--deeper"])
    assert isinstance(done.exception, _Ran), done.output
    assert done.exception.args[0] == [*lessons, *(path.stem for path in deeper_notebooks())]


@each_notebook
@pytest.mark.release
@pytest.mark.course
@pytest.mark.timeout(600)
def test_a_deeper_notebook_runs_to_its_end_by_papermill_alone(path, tmp_path, brief):
    needed = NEEDS.get(path.stem, ("labkit",))
    if not any(map(importlib.util.find_spec, needed)):
        pytest.skip(f"needs one of {', '.join(needed)}")
    done = papermill(str(path), "out.ipynb", "-p", "profile", "quick", folder=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    [record] = ledger.find(Completion)
    code = [
        cell
        for cell in cells_of(tmp_path / "out.ipynb")
        if cell.cell_type == "code" and cell.source.strip()
    ]
    assert record.cell_count == len(code)
