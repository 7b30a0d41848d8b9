"""Check whether packages and compilers are installed and work, and say how to install them."""

import importlib
import os
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from labkit.errors import Unavailable

# How to measure on a GPU, said where a machine has none
ON_A_GPU = (
    "on a machine with an NVIDIA GPU `labkit gpu`, or `python -m labkit.gpu` where "
    "only torch is installed"
)


@dataclass(frozen=True)
class Check:
    """The result of checking something that the course may need, such as a package or a compiler.

    name    what was checked, for a package its name
    ok      True where it is installed and works
    detail  its version, or why it is not usable
    needed  True where the course cannot run without it
    fix     what the reader should do next, or None
    """

    name: str
    ok: bool
    detail: str
    needed: bool = False
    fix: str | None = None


def install(*words):
    """Return the command line that installs packages for the Python that runs this code.

    That Python may belong to a virtual environment, to conda or to the system.

    words  arguments of `pip install`, such as the name of a package
    """
    if _version("pip"):
        command = [sys.executable, "-m", "pip", "install"]
    else:
        command = ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*command, *words])


def check(name, *, module=None, without=None, needed=False, fix=None):
    """Check that a package is installed and can be imported. Returns a `Check`.

    Importing matters: a package may be installed, and yet fail to load a library that it needs.

    name     name of the package
    module   module to import; None: the module named like the package; "": import nothing, because
             the import takes many seconds
    without  what the lessons do without the package, in words
    needed   True where the course cannot run without it
    fix      what the reader should do next; None: the command that installs the package
    """
    installed_version = _version(name)
    if installed_version is None:
        problem = "not installed"
        fix = fix or install(name)
    else:
        problem = None if module == "" else _import_problem(module or name)
        fix = fix or install("--force-reinstall", "--no-deps", name)
    if problem is None:
        return Check(name, True, installed_version, needed)
    detail = f"{problem}: {without}" if without else problem
    return Check(name, False, detail, needed, fix)


def _version(name):
    """Return the version of an installed package, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _import_problem(module):
    """Import a module of an installed package. Returns why it does not load, as a text, or None."""
    try:
        importlib.import_module(module)
        return None
    except Exception as error:  # a library may fail to load in its own way
        reason = str(error).splitlines()[0] if str(error) else "no reason given"
        return f"installed, but does not load: {type(error).__name__}: {reason}"


def imported(module, *, problem=None, fix=None):
    """Import a module and return it.

    problem  sentence for the error: what cannot be done without the module. None: "MODULE is not
             here."
    fix      what the reader should do next; None: the command that installs the module
    Raises   Unavailable where the module cannot be imported
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Unavailable(
            problem or f"{module} is not here.",
            expected=f"the package {module}",
            found=str(error),
            fix=fix or install(module),
        ) from error


def require_cpp():
    """Raise Unavailable where torch.compile cannot build kernels for the CPU.

    It needs three things: a C++ compiler, a temporary folder and a cache without white space in
    their names, and a cache on a file system from which programs may run.
    """
    if not any(map(shutil.which, ("g++", "clang++", "cl"))):
        raise Unavailable(
            "torch.compile cannot build kernels for the CPU here.",
            expected="a C++ compiler",
            found="none of g++, clang++, cl",
            fix="install g++ (Debian, Ubuntu: apt-get install g++)",
        )
    # torch 2.15 splits the command at white space; its headers lie in the temporary folder whatever
    # the cache is.
    folders = {
        "TMPDIR": tempfile.gettempdir(),
        "TORCHINDUCTOR_CACHE_DIR": os.getenv("TORCHINDUCTOR_CACHE_DIR", ""),
    }
    for name, folder in folders.items():
        if any(map(str.isspace, folder)):
            raise Unavailable(
                "torch.compile cannot build kernels in a folder whose name has a space.",
                expected="a temporary folder and a cache without white space",
                found=folder,
                fix=f"set {name} to another folder, such as /tmp, and start again",
            )
    kernels = folders["TORCHINDUCTOR_CACHE_DIR"] or folders["TMPDIR"]
    if _forbids_programs(Path(kernels)):
        raise Unavailable(
            "torch.compile cannot load kernels from a folder that may hold no programs (mounted "
            "with noexec).",
            expected="a cache on a file system that lets programs run",
            found=kernels,
            fix="set TORCHINDUCTOR_CACHE_DIR to another folder, such as ~/.cache/inductor, and "
            "start again",
        )


def _forbids_programs(folder):
    """Return whether the file system of a folder is mounted with noexec.

    If the folder does not exist yet, the nearest existing folder above it is checked.
    """
    while not folder.exists():
        folder = folder.parent
    return bool(os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0))
