"""Imports inside labkit point only downwards, in one form, and importing labkit costs nothing."""

import ast
import importlib.util
import re
import subprocess
import sys

import pytest

from labkit.files import root

PACKAGE = root() / "labkit"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def stated_layers():
    """{module or package: height} as the table of the page states it; in a row, what stands left
    is higher.
    """
    page = (root() / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:course|topics|tools) \| (.+) \|$", page, flags=re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    return {name: height for height, name in enumerate(reversed(names))}


LAYERS = stated_layers()


def room(path):
    """The first name below labkit: `data` for labkit/data/_load.py."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path):
    """Names imported from labkit anywhere in a file, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] == "labkit")
        elif isinstance(node, ast.ImportFrom) and (
            node.level or (node.module or "").split(".")[0] == "labkit"
        ):
            names = (
                [f"labkit.{name.name}" for name in node.names]
                if node.module == "labkit"
                else [node.module]
            )
            yield from (f"{'.' * node.level}{name}" for name in names)


def test_every_module_has_a_layer_and_every_layer_its_modules():
    rooms = {room(path) for path in MODULES}
    assert rooms - set(LAYERS) == set(), "not in the table of layers"
    assert set(LAYERS) - rooms == set(), "in the table of layers, but gone"


def names_above(path, found):
    targets = {name.split(".")[1] for name in found} - {room(path)}
    return sorted(target for target in targets if LAYERS[target] > LAYERS[room(path)])


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_only_downwards(path):
    found = list(imports(path))
    assert not [name for name in found if name.startswith(".")], "write `from labkit.x import y`"
    assert names_above(path, found) == [], (
        "these stand above it, see the table of docs/architecture.md"
    )


def test_the_layer_check_notices_an_upward_import():
    assert names_above(PACKAGE / "files.py", ["labkit.report"]) == ["report"]
    assert names_above(PACKAGE / "report.py", ["labkit.files"]) == []


def test_the_words_of_a_lesson_know_nothing_of_trainings_and_races():
    words = [path for path in MODULES if path.is_relative_to(PACKAGE / "lesson")]
    targets = {name.split(".")[1] for path in words for name in imports(path)}
    assert not targets & {"capstone", "engines", "train"}


def test_importing_labkit_loads_nothing_heavy():
    code = (
        "import sys, labkit; print(sorted({'torch', 'numpy', 'pandas', 'papermill', 'IPython'} & "
        "set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "module", ["cli", "doctor", "ledger", "lesson", "report", "runner", "measure", "data"]
)
def test_importing_a_module_does_nothing(module, own_artifacts):
    code = (
        f"import sys, labkit.{module}; print(sorted({{'torch', 'papermill', 'matplotlib'}} & "
        "set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert not own_artifacts.exists()


def test_only_device_engines_and_the_measurements_of_a_gpu_say_cuda():
    said = [
        room(path)
        for path in MODULES
        if re.search(r'["\']cuda["\']|torch\.cuda', path.read_text(encoding="utf-8"))
    ]
    assert set(said) <= {"device", "doctor", "engines", "gpu"}


def test_the_drawing_of_the_architecture_is_that_of_the_code():
    path = root() / "docs" / "draw_architecture.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    drawer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawer)
    page = (root() / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert page == drawer.redrawn(page), "draw it anew: python docs/draw_architecture.py"
