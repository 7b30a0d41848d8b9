"""Import modules of a package only when one of their names is first used."""

import importlib
from collections.abc import Mapping
from typing import Any


def offered(package: str, by_module: Mapping[str, tuple[str, ...]], name: str) -> Any:
    """Return the object that a package offers under a name, and import its module for that.

    The package calls this in its own `__getattr__`, and does nothing else there.

    package    full name of the package: its `__name__`
    by_module  {module of the package: names that it offers}
    name       the name that is asked for
    Raises     AttributeError for a name that no module offers, as Python expects of `__getattr__`
    """
    for module, names in by_module.items():
        if name in names:
            return getattr(importlib.import_module(f"{package}.{module}"), name)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
