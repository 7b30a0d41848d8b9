"""Import the code that only one lesson needs, from notebooks/support."""

import importlib
import sys
from types import ModuleType

from labkit.errors import LessonError
from labkit.files import root


def load_support(name: str) -> ModuleType:
    """Import a module of notebooks/support and return it, whatever the current folder is.

    name    name of the module, such as "pruning_and_coding"
    Raises  LessonError if there is no such file; labkit from a wheel does not contain the lessons
    """
    folder = root() / "notebooks" / "support"
    if not (folder / f"{name}.py").is_file():
        raise LessonError(
            f"The lesson's module {name!r} is missing.",
            expected=str(folder / f"{name}.py"),
            found="labkit without the folder of the course, or a folder from which "
            "it was taken out",
            fix="get the folder of the course (a clone of its repository), and run the lesson "
            "with its labkit",
        )
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return importlib.import_module(name)
