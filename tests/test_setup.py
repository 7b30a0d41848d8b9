"""Set-up: one source of dependencies, a lock without hosts, an environment.yml that says the
same.
"""

import ast
import functools
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from labkit.files import root

PROJECT = tomllib.loads((root() / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (root() / "requirements.lock").read_text(encoding="utf-8")
ADDRESS = re.compile(r"https?://|git\+|--(extra-)?index-url|--find-links|file:")


def locked():
    """{name: [(version, marker or None)]} of the lock."""
    found = {}
    for line in re.findall(r"^([a-z0-9][^\\\n]*)", LOCK, flags=re.MULTILINE):
        requirement = Requirement(line.strip())
        (pin,) = requirement.specifier
        found.setdefault(requirement.name, []).append((Version(pin.version), requirement.marker))
    return found


def test_the_lock_names_no_address():
    assert ADDRESS.search(LOCK) is None
    assert ADDRESS.search("torch @ https://example.org/torch.whl"), (
        "the check itself must notice one"
    )


def test_no_lock_that_names_hosts_is_kept():
    assert not (root() / "pylock.toml").exists()
    assert "uv.lock" in (root() / ".gitignore").read_text(encoding="utf-8")


def test_every_pin_has_a_hash():
    pins = re.split(r"^(?=[a-z0-9])", LOCK, flags=re.MULTILINE)[1:]
    assert len(pins) > 50
    assert [pin.splitlines()[0] for pin in pins if "--hash=sha256:" not in pin] == []


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_the_lock_meets_every_declared_requirement(python, system):
    machine = {"linux": "x86_64", "darwin": "arm64", "win32": "AMD64"}[system]
    where = default_environment() | {
        "python_version": python,
        "python_full_version": f"{python}.7",
        "sys_platform": system,
        "platform_machine": machine,
        "platform_system": {"linux": "Linux", "darwin": "Darwin", "win32": "Windows"}[system],
        "os_name": "nt" if system == "win32" else "posix",
    }
    pins = locked()
    extras = PROJECT["optional-dependencies"]
    texts = PROJECT["dependencies"] + [
        text for extra in (*COURSE, "dev", "book") for text in extras[extra]
    ]
    for text in texts:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate(where):
            versions = [
                version
                for version, marker in pins[requirement.name]
                if not marker or marker.evaluate(where)
            ]
            assert len(versions) == 1, f"{requirement.name}: {versions}"
            assert requirement.specifier.contains(versions[0]), text


ENVIRONMENT = (root() / "environment.yml").read_text(encoding="utf-8")
NAMED = [
    "torch",
    "torchvision",
    "jupyterlab",
    "matplotlib",
    "pandas",
    "onnx",
    "netron",
    "papermill",
]


def test_environment_yml_has_what_the_packages_and_the_build_need():
    *packages, _ = yaml.safe_load(ENVIRONMENT)["dependencies"]
    named = {re.split("[=>]", package)[0]: package for package in packages}
    assert SpecifierSet(PROJECT["requires-python"]).contains(
        named["python"].removeprefix("python=") + ".0"
    )
    assert {"pip", "make", "cxx-compiler"} <= set(named)
    build = tomllib.loads((root() / "pyproject.toml").read_text(encoding="utf-8"))["build-system"][
        "requires"
    ]
    assert set(build) <= set(packages), (
        "installed without build isolation, the package needs its build tools here"
    )


def test_environment_yml_takes_the_lock_first_and_then_names_the_packages_of_the_course_in_its_versions():
    *_, nested = yaml.safe_load(ENVIRONMENT)["dependencies"]
    lock, *pinned = nested["pip"]
    assert lock == "-r requirements.lock", "pip refuses a name that stands before its hash"
    assert [Requirement(text).name for text in pinned] == NAMED
    extras = PROJECT["optional-dependencies"]
    declared = {Requirement(text).name for text in PROJECT["dependencies"] + extras["lab"]}
    pins = locked()
    for requirement in map(Requirement, pinned):
        ((version, marker),) = pins[requirement.name]
        assert requirement.name in declared
        assert marker is None
        assert str(requirement.specifier) == f"=={version}"


def test_environment_yml_names_what_needs_a_gpu_in_lines_that_are_commented_out_each_with_its_reason():
    declared = {
        each.name: each for each in map(Requirement, PROJECT["optional-dependencies"]["gpu"])
    }
    lines = re.findall(r"^ +# - (\S+==\S+) # (.+)$", ENVIRONMENT, flags=re.MULTILINE)
    pinned = {each.name: each for each in (Requirement(text) for text, _ in lines)}
    assert list(pinned) == ["tensorrt", "pycuda"] == list(declared)
    for name, requirement in pinned.items():
        (pin,) = requirement.specifier
        assert (pin.operator, declared[name].specifier.contains(pin.version)) == ("==", True)
    assert all("NVIDIA" in reason or "CUDA" in reason for _, reason in lines)


def test_the_gpu_extra_stays_out_of_the_lock():
    names = {Requirement(text).name for text in PROJECT["optional-dependencies"]["gpu"]}
    assert names == {"tensorrt", "pycuda"}
    assert names.isdisjoint(locked())


def test_what_only_a_comparison_needs_stays_out_of_the_lock():
    assert {
        Requirement(text).name for text in PROJECT["optional-dependencies"]["peers"]
    }.isdisjoint(locked())


# What each folder may import: the core, and what the extras named here bring.
# what one later lesson or one command needs
COURSE = ("lab", "engines", "compress", "language", "cluster", "tables")
FOLDERS = {
    "labkit": (*COURSE, "gpu", "peers"),
    "notebooks": (*COURSE, "peers"),
    "tests": (*COURSE, "dev"),
    "benchmarks": (*COURSE, "dev", "peers"),
    "docs": (*COURSE, "book", "dev"),
}
OWN = {"labkit", "benchmarks", "answers", "engines"}  # the last two are folders of tests
BROUGHT = {
    "markupsafe": "jinja2 brings it, and marks with it what is escaped",
    "triton": "torch brings it on Linux; elsewhere the lessons do without it",
    "traitlets": "nbclient is configured with it",
}
UNIMPORTED = {
    "pyarrow": "pandas writes Parquet files with it",
    "tensorrt-rtx-cu13-libs": "the libraries of the bindings",
}


installed = functools.cache(packages_distributions)


@functools.cache
def sources(folder):
    """{place: code} of a folder: Python files and the cells of notebooks, without the lines that
    are for IPython.
    """
    files = {
        str(path): path.read_text(encoding="utf-8") for path in (root() / folder).rglob("*.py")
    }
    for path in (root() / folder).glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        plain = [cell for cell in code if not cell.startswith("%%")]
        files[path.name] = re.sub("^( *)[%!].*", r"\1pass", "\n".join(plain), flags=re.MULTILINE)
    return files


@functools.cache
def imported(code):
    """The top-level names of the modules that some code imports."""
    nodes = list(ast.walk(ast.parse(code)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in names}


def mentioned(code):
    """The words of code that can name a module: in imports, and in texts such as
    "tensorrt_rtx_bindings".
    """
    texts = {node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)}
    return imported(code) | {text.partition(".")[0] for text in texts if isinstance(text, str)}


def declared(*extras):
    """The packages of everybody and of some extras."""
    lists = [
        PROJECT["dependencies"],
        *(PROJECT["optional-dependencies"][extra] for extra in extras),
    ]
    return {canonicalize_name(Requirement(text).name) for each in lists for text in each}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_package_that_is_imported_is_declared(folder):
    found = installed()
    own = OWN | {
        path.stem
        for place in FOLDERS
        for path in (root() / place).rglob("*.py")
        if folder != "labkit"
    }
    allowed = declared(*FOLDERS[folder]) | set(BROUGHT)
    missing = {}
    for place, code in sources(folder).items():
        for name in imported(code) - own - sys.stdlib_module_names:
            packages = {canonicalize_name(package) for package in found.get(name, [name])}
            if not packages & allowed:
                missing.setdefault(name, set()).add(place)
    assert missing == {}


def test_every_package_that_is_declared_is_used_or_has_a_reason():
    modules = {}
    for module, packages in installed().items():
        for package in packages:
            modules.setdefault(canonicalize_name(package), set()).add(module)
    words = {
        word
        for folder in ("labkit", "notebooks")
        for code in sources(folder).values()
        for word in mentioned(code)
    }
    idle = {name for name in declared(*COURSE) if not modules.get(name, {name}) & words}
    assert idle <= set(UNIMPORTED)


def test_uv_finds_no_constraints_of_its_own_beside_the_lock():
    tools = tomllib.loads((root() / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert "uv" not in tools, (
        "uv adds them to the lock when it installs, and refuses them for want of a hash"
    )


def test_there_are_no_more_packages_than_a_reader_can_look_over():
    assert len(declared(*COURSE)) <= 46


def test_make_locks_every_extra_of_the_course_and_none_that_needs_a_gpu():
    makefile = (root() / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^EXTRAS +:= (.+)$", makefile, re.MULTILINE)[1].split() == [
        *COURSE,
        "book",
        "dev",
    ]
    assert set(PROJECT["optional-dependencies"]) == {*COURSE, "book", "dev", "gpu", "peers"}


@pytest.mark.parametrize("words", [["check"], ["format", "--check"]], ids=" ".join)
def test_code_and_notebooks_pass_what_make_lint_asks(words):
    ruff = [sys.executable, "-m", "ruff", *words, "--no-cache", "."]
    done = subprocess.run(ruff, cwd=root(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
