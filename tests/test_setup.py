"""Set-up: one source of dependencies, a lock without hosts, an environment.yml that says the same."""

import re
import tomllib

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
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
    assert ADDRESS.search("torch @ https://example.org/torch.whl"), "the check itself must notice one"


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
    for text in PROJECT["dependencies"] + extras["dev"] + extras["book"]:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate(where):
            versions = [version for version, marker in pins[requirement.name] if not marker or marker.evaluate(where)]
            assert len(versions) == 1, f"{requirement.name}: {versions}"
            assert requirement.specifier.contains(versions[0]), text


def test_environment_yml_takes_the_tested_versions_and_has_what_they_need():
    text = (root() / "environment.yml").read_text(encoding="utf-8")
    *packages, nested = yaml.safe_load(text)["dependencies"]
    named = {re.split("[=>]", package)[0]: package for package in packages}
    assert SpecifierSet(PROJECT["requires-python"]).contains(named["python"].removeprefix("python=") + ".0")
    assert {"pip", "make", "cxx-compiler"} <= set(named)
    build = tomllib.loads((root() / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    assert set(build) <= set(packages), "installed without build isolation, the package needs its build tools here"
    assert nested["pip"] == ["-r requirements.lock"]
    assert "tensorrt and pycuda: pip install -e '.[gpu]'" in text


def test_the_gpu_extra_stays_out_of_the_lock():
    names = {Requirement(text).name for text in PROJECT["optional-dependencies"]["gpu"]}
    assert names == {"tensorrt", "pycuda"}
    assert names.isdisjoint(locked())


def test_what_only_a_comparison_needs_stays_out_of_the_lock():
    assert {Requirement(text).name for text in PROJECT["optional-dependencies"]["peers"]}.isdisjoint(locked())
