"""Let a package offer names of its modules, and import a module when a name of it is first used."""

import importlib
from collections.abc import Mapping
from typing import Any


def offered(package: str, by_module: Mapping[str, tuple[str, ...]], name: str) -> Any:
    """Import the module of a package that offers `name`, and return the object of that name.

    A package calls this function as the whole body of its own `__getattr__`.

    package    the package's full name: `__name__` in the package
    by_module  {module of the package: the names that it offers}
    Raises     AttributeError for any other name, as Python expects of `__getattr__`
    """
    for module, names in by_module.items():
        if name in names:
            return getattr(importlib.import_module(f"{package}.{module}"), name)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
