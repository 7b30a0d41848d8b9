"""What notebooks, commands and docs/ name of labkit says what it takes and gives, and a type
checker agrees.
"""

import ast
import importlib
import inspect
import re
import subprocess
import sys

import pytest
from test_setup import sources

from labkit.files import root


def code_of_others():
    """Python that calls labkit from outside: cells of lessons, commands, and what docs/ shows."""
    yield from sources("notebooks").values()
    yield from sources("labkit/cli").values()
    for path in [*(root() / "docs").glob("*.md"), root() / "README.md", root() / "CONTRIBUTING.md"]:
        yield from re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


def named(tree):
    """What a piece of code imports from labkit, and what it takes of the modules that it
    imports.
    """
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "labkit":
            for alias in node.names:
                try:
                    found = getattr(importlib.import_module(node.module), alias.name)
                except AttributeError:
                    found = importlib.import_module(f"{node.module}.{alias.name}")
                modules[alias.asname or alias.name] = found
                yield found
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = modules.get(node.value.id)
            yield getattr(owner, node.attr, None) if inspect.ismodule(owner) else None


def trees():
    for code in code_of_others():
        try:
            yield ast.parse(code)
        except SyntaxError:  # a page may show a piece of a function
            continue


def without_types(function):
    signature = inspect.signature(inspect.unwrap(function))
    gaps = [name for name, each in signature.parameters.items() if each.annotation is each.empty]
    return gaps + (["return"] if signature.return_annotation is signature.empty else [])


def test_functions_that_others_name_say_what_they_take_and_give():
    functions = {
        found
        for tree in trees()
        for found in named(tree)
        if inspect.isfunction(found) and not found.__module__.startswith("labkit.cli")
    }
    assert len(functions) > 150, "the search finds fewer functions than the lessons name"
    gaps = {f"{each.__module__}.{each.__qualname__}": without_types(each) for each in functions}
    assert not sorted(f"{name}: {', '.join(what)}" for name, what in gaps.items() if what)


@pytest.mark.slow
def test_the_type_checker_finds_nothing():
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=root(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
