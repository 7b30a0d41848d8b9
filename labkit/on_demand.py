"""A package that offers names of its modules, and imports a module when one of its names is first
asked for.
"""

import importlib
from collections.abc import Mapping
from typing import Any


def offered(package: str, by_module: Mapping[str, tuple[str, ...]], name: str) -> Any:
    """Return what a package offers under a name: the body of the package's own `__getattr__`.

    package    its full name, `__name__` there
    by_module  {module of the package: the names that it offers}
    Raises     AttributeError for any other name, as Python expects of `__getattr__`
    """
    for module, names in by_module.items():
        if name in names:
            return getattr(importlib.import_module(f"{package}.{module}"), name)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
