"""Names in labkit say what a thing is: words that would fit anything are refused."""

import ast

import pytest

from labkit.files import root

VAGUE = """
    found each place about part parts what known kept wanted seen said told own others more some rest way ways these
    those whole held here there taken given dice thing things both asked shown used anew again beside info obj tmp stuff
""".split()  # noqa: SIM905
# The four parts of an error, a word with a unit, and a column of the ledger. `found` is right
# beside `expected`.
RIGHT = {
    "errors.py": ["what", "known", "found"],
    "format.py": ["shown"],
    "_measured.py": ["beside"],
}
MODULES = sorted((root() / "labkit").rglob("*.py"))


def vague_names(path):
    """[(line, name)] of the vague names that a module binds: variables, arguments, attributes,
    functions, classes.
    """
    source = path.read_text(encoding="utf-8")
    right = RIGHT.get(path.name, []) + (["found"] if "found=found" in source else [])
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            name = node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = node.name
        else:
            continue
        if name.strip("_") in VAGUE and name not in right:
            yield node.lineno, name


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(root()).as_posix())
def test_no_name_of_labkit_fits_anything(path):
    assert path.stem.strip("_") not in VAGUE
    assert list(vague_names(path)) == []
