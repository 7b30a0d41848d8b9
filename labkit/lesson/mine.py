"""The reader's own network: `from mine import network, inputs, labels` finds `my-lessons/mine.py`
from any folder.

A file that cannot be used is a LabError in words. Where the folder cannot be written, the stand-in
of the template is taken instead.
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
    """Let `import mine` find the reader's file, made when it is missing, and read it anew at the
    next import.
    """
    with suppress(OSError):  # a folder that cannot be written: the template stands in
        network_file()
    _say_which_is_read()
    sys.modules.pop("mine", None)
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
    if str(my_lessons()) not in sys.path:
        sys.path.append(str(my_lessons()))  # for what mine.py imports from files beside it
    kernel = shell()
    if kernel is not None:
        kernel.events.register("pre_run_cell", _forget_changed_file)


def _say_which_is_read():
    """Say that a `mine.py` beside the notebook is not the one that is read, where there is one."""
    local_file = Path.cwd() / "mine.py"
    if local_file.is_file() and local_file.resolve() != _file().resolve():
        print(f"{local_file} is not read: your own network is that of {_file()}.")


def _forget_changed_file(_cell=None):
    """Let the next import read the file anew where it was changed since; IPython calls this
    before each cell.
    """
    module = sys.modules.get("mine")
    if module is not None and _stamp(_file()) != getattr(module, "__stamp__", None):
        del sys.modules["mine"]


def _stamp(file):
    """Return what changes with a file: its path and the time of its last change."""
    return str(file), file.stat().st_mtime_ns


def network_file() -> Path:
    """Return the path of the reader's own network, `mine.py`, made from the template when it is
    missing.
    """
    path = my_lessons() / "mine.py"
    if not path.exists():
        copy(TEMPLATE, path)
    return path


def _file():
    """The reader's file, or the template where there is none."""
    path = my_lessons() / "mine.py"
    return path if path.is_file() else TEMPLATE


class _Finder(MetaPathFinder):
    """Finds the module `mine`, and nothing else."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "mine":
            return None
        file = _file()
        return spec_from_loader(name, _Mine(file), origin=str(file))

    @classmethod
    def invalidate_caches(cls):
        """Do nothing: the file is looked for at each import.

        Python calls this on the class, which has no instance.
        """


class _Mine(Loader):
    """Runs the reader's file, and says in words what is wrong with it."""

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
    """Return the LabError of a file that does not run: the line, and what Python says of it."""
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
    return frame.f_code.co_filename == str(file)


def _require_names(file, module):
    """Raise LabError without network or inputs; labels may be missing until a lesson asks for
    them.
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
    """Return the LabError of a file that does not set these names."""
    return LabError(
        f"Your own network, mine.py, does not set {' and '.join(missing)}.",
        expected=f"a file that sets {', '.join(NAMES)}",
        found=f"none of that name in {file}",
        fix="set in it " + "; ".join(f"{name}: {MEANINGS[name]}" for name in missing),
    )


def _require_fitting(file, module):
    """Put a network that trains into evaluation; raise LabError where inputs and labels are not
    as many.
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
    """What the report says of the reader's network: its class, its number of weights, whether it
    is the stand-in.
    """

    network: str
    weights: int | None
    stand_in: bool


def described() -> Named:
    """Describe the reader's network as the report names it.

    Raises LabError for a file that cannot be used.
    """
    module: Any = importlib.import_module("mine")
    network = module.network
    weights = None
    if hasattr(network, "parameters"):
        weights = sum(weight.numel() for weight in network.parameters())
    file = Path(module.__file__ or _file())  # a reader may have put another module in its place
    stand_in = file.read_bytes() == TEMPLATE.read_bytes()
    return Named(type(network).__name__, weights, stand_in)
