"""Packages and compilers of the Python that runs: whether they are here and work, and how to install them."""

import importlib
import os
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from labkit.errors import Unavailable


@dataclass(frozen=True)
class Check:
    """One thing a lesson may want.

    name    what it is
    ok      whether it is here
    detail  what was found, or why it is missing
    needed  whether the course cannot run without it
    fix     what to do, when something can be done
    """

    name: str
    ok: bool
    detail: str
    needed: bool = False
    fix: str | None = None


def install(*words):
    """The command that installs into the Python that runs: of a virtual environment, of conda or of the system.

    words  what `pip install` takes, such as the name of a package
    """
    pip, uv = [sys.executable, "-m", "pip", "install"], ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*(pip if _version("pip") else uv), *words])


def check(name, *, module=None, without=None, needed=False, fix=None):
    """Check that a package is installed and really imports: a `Check`. Many need libraries beside themselves.

    module   what to import, None: the module of the same name, "": nothing, where importing takes many seconds
    without  what the lessons do where it is missing
    fix      what to do; None: the command that installs it
    """
    found = _version(name)
    if found is None:
        problem, fix = "not installed", fix or install(name)
    else:
        problem = None if module == "" else _import_problem(module or name)
        fix = fix or install("--force-reinstall", "--no-deps", name)
    if problem is None:
        return Check(name, True, found, needed)
    return Check(name, False, f"{problem}: {without}" if without else problem, needed, fix)


def _version(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _import_problem(module):
    """Why a module of an installed package does not load, or None."""
    try:
        importlib.import_module(module)
        return None
    except Exception as error:  # a library may fail to load in its own way
        reason = str(error).splitlines()[0] if str(error) else "no reason given"
        return f"installed, but does not load: {type(error).__name__}: {reason}"


def imported(module, *, what=None, fix=None):
    """A module; Unavailable where it is not here.

    what  what cannot be done without it, as a sentence
    fix   what to do; None: the command that installs it
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Unavailable(
            what or f"{module} is not here.",
            expected=f"the package {module}",
            found=str(error),
            fix=fix or install(module),
        ) from error


def require_cpp():
    """Raise Unavailable where torch.compile cannot call a C++ compiler, or not in the folders that it would use."""
    if not any(map(shutil.which, ("g++", "clang++", "cl"))):
        raise Unavailable(
            "torch.compile cannot build kernels for the CPU here.",
            expected="a C++ compiler",
            found="none of g++, clang++, cl",
            fix="install g++ (Debian, Ubuntu: apt-get install g++)",
        )
    # torch 2.15 splits the command at white space; its headers lie in the temporary folder whatever the cache is.
    folders = {"TMPDIR": tempfile.gettempdir(), "TORCHINDUCTOR_CACHE_DIR": os.getenv("TORCHINDUCTOR_CACHE_DIR", "")}
    for name, folder in folders.items():
        if any(map(str.isspace, folder)):
            raise Unavailable(
                "torch.compile cannot build kernels in a folder whose name has a space.",
                expected="a temporary folder and a cache without white space",
                found=folder,
                fix=f"set {name} to another folder, such as /tmp, and start again",
            )
