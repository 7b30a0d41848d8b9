"""Make the reader's own network importable: `from mine import network, inputs, labels`.

The import works in any folder and reads `my-lessons/mine.py`. If that file cannot be used, a
LabError says why. If it is missing and its folder cannot be written, a template is imported
instead, with a network of the course.
"""

import importlib
import sys
import traceback
from collections.abc import Sized
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.util import spec_from_loader
from pathlib import Path
from typing import Any, NamedTuple

from labkit.errors import LabError
from labkit.files import copy, my_lessons
from labkit.lesson.cards import shell

TEMPLATE = Path(__file__).parent.parent / "templates" / "mine.txt"
MEANINGS = {
    "network": "a torch.nn.Module, called with inputs",
    "inputs": "a tensor, one example in each row",
    "labels": "a tensor of class numbers, one for each input",
}
NAMES = tuple(MEANINGS)


def make_importable() -> None:
    """Make `import mine` read the reader's file; if it is missing, write it from the template.

    The first import after this call reads the file, and so does an import after each change of it.
    """
    with suppress(OSError):  # a folder that cannot be written: the template stands in
        network_file()
    _warn_of_local_file()
    sys.modules.pop("mine", None)
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
    if str(my_lessons()) not in sys.path:
        sys.path.append(str(my_lessons()))  # for what mine.py imports from files beside it
    kernel = shell()
    if kernel is not None:
        kernel.events.register("pre_run_cell", _forget_changed_file)


def _warn_of_local_file():
    """Print a warning if a `mine.py` in the current folder is not the file that is imported."""
    local_file = Path.cwd() / "mine.py"
    if local_file.is_file() and local_file.resolve() != _file().resolve():
        print(f"{local_file} is not read: your own network is that of {_file()}.")


def _forget_changed_file(_cell=None):
    """Remove the imported module if its file has changed, so that the next import reads it again.

    IPython calls this before each cell.
    """
    module = sys.modules.get("mine")
    if module is not None and _stamp(_file()) != getattr(module, "__stamp__", None):
        del sys.modules["mine"]


def _stamp(file):
    """Return (path, time of the last change) of a file: another pair means another content."""
    return str(file), file.stat().st_mtime_ns


def network_file() -> Path:
    """Return the path of the reader's `mine.py`; if it is missing, the template is copied there."""
    path = my_lessons() / "mine.py"
    if not path.exists():
        copy(TEMPLATE, path)
    return path


def _file():
    """Return the path of the reader's `mine.py`, or the path of the template if there is none."""
    path = my_lessons() / "mine.py"
    return path if path.is_file() else TEMPLATE


class _Finder(MetaPathFinder):
    """Find the module `mine` for Python's import; leave all other modules to other finders."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "mine":
            return None
        file = _file()
        return spec_from_loader(name, _Mine(file), origin=str(file))

    @classmethod
    def invalidate_caches(cls):
        """Do nothing: there is no cache, because the file is looked for at each import.

        Python calls this on the class, of which there is no instance.
        """


class _Mine(Loader):
    """Run the reader's file as the module `mine`.

    Raises  LabError if the file raises an error, or does not set what a lesson needs
    """

    def __init__(self, file: Path):
        self.file = file

    def exec_module(self, module):
        module.__file__ = str(self.file)
        module.__stamp__ = _stamp(self.file)
        try:
            exec(compile(self.file.read_bytes(), str(self.file), "exec"), vars(module))
        except LabError:
            raise
        except Exception as error:  # a reader's code may fail in any way
            raise _broken(self.file, error) from None
        _require_names(self.file, module)
        _require_fitting(self.file, module)


def _broken(file, error):
    """Return the LabError for a reader's file that raises: with the line, and Python's message.

    error  the exception of the file
    """
    line = None
    if isinstance(error, SyntaxError):
        line = error.lineno
    else:
        for frame, line_number in traceback.walk_tb(error.__traceback__):
            if _is_in(frame, file):
                line = line_number  # the innermost one stays
    message = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    if line:
        message = f"line {line}: {message}"
    return LabError(
        "Your own network, mine.py, stops with an error.",
        expected=f"a file that sets {', '.join(NAMES)}",
        found=message,
        fix=f"mend {file}; or delete it, and the stand-in comes back",
    )


def _is_in(frame, file):
    """Return whether a stack frame runs code of this file."""
    return frame.f_code.co_filename == str(file)


def _require_names(file, module):
    """Raise LabError if the module does not set `network` or `inputs`.

    If it sets both but not `labels`, the LabError comes later, when a lesson asks for `labels`.
    """
    missing = [name for name in NAMES if name not in vars(module)]
    if {*missing} - {"labels"}:
        raise _unset(file, missing)
    if missing:

        def ask(name):
            if name == "labels":
                raise _unset(file, missing)
            raise AttributeError(name)

        module.__getattr__ = ask


def _unset(file, missing):
    """Return the LabError for a file that does not set the names in `missing`."""
    return LabError(
        f"Your own network, mine.py, does not set {' and '.join(missing)}.",
        expected=f"a file that sets {', '.join(NAMES)}",
        found=f"none of that name in {file}",
        fix="set in it " + "; ".join(f"{name}: {MEANINGS[name]}" for name in missing),
    )


def _require_fitting(file, module):
    """Prepare the reader's network for inference, and check the number of labels.

    A network in training mode is switched to evaluation mode, and a line says so.

    Raises  LabError if there are not as many labels as inputs
    """
    if getattr(module.network, "training", False):
        module.network.eval()
        print(
            "Your network was in training mode, where answers change from call to call: it is in "
            ".eval() now."
        )
    inputs = module.inputs
    labels = vars(module).get("labels")
    if isinstance(inputs, Sized) and isinstance(labels, Sized) and len(inputs) != len(labels):
        raise LabError(
            "Your own inputs and labels do not fit.",
            expected="one label for each input",
            found=f"{len(inputs)} inputs and {len(labels)} labels in {file}",
            fix="take both from the same part of your test set",
        )


class Named(NamedTuple):
    """What the report says of the reader's network.

    network   name of its class
    weights   number of its weights; None if it has no method `parameters`
    stand_in  True if it is still the network of the template
    """

    network: str
    weights: int | None
    stand_in: bool


def described() -> Named:
    """Import the reader's network, and return its name and size as a `Named`.

    Raises  LabError for a file that cannot be used
    """
    module: Any = importlib.import_module("mine")
    network = module.network
    weights = None
    if hasattr(network, "parameters"):
        weights = sum(weight.numel() for weight in network.parameters())
    file = Path(module.__file__ or _file())  # a reader may have put another module in its place
    stand_in = file.read_bytes() == TEMPLATE.read_bytes()
    return Named(type(network).__name__, weights, stand_in)
