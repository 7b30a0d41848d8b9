"""README and docs: every lesson and command is in them, what they name exists, what they say to
type works.
"""

import contextlib
import importlib
import io
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from PIL import Image
from test_cli import COMMANDS

from labkit import __version__, device, ledger
from labkit.authoring.minutes import reading
from labkit.errors import LabError
from labkit.files import root
from labkit.ledger.rows import Attempt, Latency, Run
from labkit.lesson import syllabus

README = (root() / "README.md").read_text(encoding="utf-8")
TEACHING = (root() / "docs" / "teaching.md").read_text(encoding="utf-8")
PLACES = [str(place) for place in (root(), Path.home()) if len(place.parts) > 1]


def test_the_readme_fits_on_a_few_screens():
    assert len(README.splitlines()) <= 130
    prose = re.sub(r"!\[.*?\]\(.*?\)", "", README)  # what a picture shows is not read twice
    assert len(re.findall(r"\S*\w\S*", prose)) <= 1200


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_is_documented(command):
    assert f"`labkit {command}" in (root() / "docs" / "commands.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("lesson", syllabus.lessons(), ids=lambda lesson: lesson.name)
def test_every_lesson_is_documented_with_its_question_and_its_minutes(lesson):
    rows = [
        line
        for line in README.splitlines()
        if line.startswith(f"| [`{lesson.name}`](notebooks/{lesson.name}.ipynb) |")
    ]
    assert len(rows) == 1, f"add one line on {lesson.name} to the table of lessons in README.md"
    _, _, question, picture, minutes, _ = (cell.strip() for cell in rows[0].split("|"))
    assert not picture or f"](docs/pictures/{lesson.name}.png)" in picture
    text = lesson.path.read_text(encoding="utf-8")
    assert f"**{question}**" in text
    counted = reading(lesson)
    assert counted.sentence in text, "labkit minutes"
    assert int(minutes) == lesson.minutes == counted.minutes, "labkit minutes"
    points = sum(exercise.difficulty for exercise in lesson.exercises)
    about = (
        rf"\| {lesson.name[:2]} \| {minutes} \| \d+ \| \d+ \| {len(lesson.exercises)}, {points} \|"
    )
    assert re.search(about, TEACHING)


# {a row of the table of paths: its lessons}
PATHS = {
    "measure a network": range(5),
    "train faster": (0, 2, 3, 4, *range(5, 12)),
    "deploy smaller and faster": (*range(5), *range(12, 21)),
}


def test_the_hours_of_a_path_are_those_of_its_lessons():
    minutes = [lesson.minutes for lesson in syllabus.lessons()]
    for path, numbers in PATHS.items():
        hours = re.search(rf"^\| {path}.* \| ([\d.]+) \|$", README, flags=re.MULTILINE)[1]
        assert float(hours) == pytest.approx(
            sum(minutes[number] for number in numbers) / 60, abs=0.5
        )
        assert re.search(rf"\b{hours}\b", read(root() / "docs" / "book" / "index.md"))
    for page in ("README.md", "docs/teaching.md", "docs/book/index.md"):
        hours = re.search(r"about (\d+) hours", read(root() / page))[1]
        assert int(hours) == pytest.approx(sum(minutes) / 60, abs=0.5)


@pytest.mark.parametrize(
    "path",
    re.findall(r"`((?:notebooks|labkit|data|artifacts|tests|benchmarks|docs)/[\w./-]*)`", README),
)
def test_every_path_in_the_readme_exists(path):
    made_by_runs = {"artifacts/report.html", "artifacts/ledger.sqlite", "artifacts/book/index.html"}
    assert path in made_by_runs or (root() / path).exists()


PAGES = ["README.md", "CONTRIBUTING.md", "labkit/templates/AGENTS.md"]
PAGES += [
    f"docs/{name}.md"
    for name in ("architecture", "cluster", "commands", "installing", "publishing", "teaching")
]
PAGES += [
    "docs/published-experiments.md",
    "docs/editions.md",
    "docs/writing-lessons.md",
    "docs/glossary.md",
]
PAGES += ["docs/your-own-network.md", "CHANGELOG.md", "SECURITY.md", "THIRD_PARTY.md"]


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_or_links_exists(page):
    text = (root() / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:notebooks|labkit|tests|benchmarks|docs)/[\w./-]*)`", text)
    missing = [name for name in named if "NAME" not in name and not (root() / name).exists()]
    links = re.findall(r"\]\((?!https?:)([^)#]+)[#)]", text)
    missing += [link for link in links if not ((root() / page).parent / link).exists()]
    assert named or links
    assert missing == []


@pytest.fixture
def pictures(monkeypatch):
    monkeypatch.syspath_prepend(str(root() / "docs"))
    return importlib.import_module("take_pictures")


def outdated(folder, pictures):
    """The pictures of a folder that show another list of lessons than the course has."""
    names = [lesson.name for lesson in syllabus.lessons()]
    return [
        path.name for path in sorted(folder.glob("*.png")) if pictures.lessons_in(path) != names
    ]


def test_no_picture_of_the_readme_shows_lessons_of_the_past(pictures, tmp_path):
    assert outdated(root() / "docs" / "pictures", pictures) == [], (
        "take them anew: python docs/take_pictures.py"
    )
    page = io.BytesIO()
    Image.new("RGB", (4, 4)).save(page, "PNG")
    (tmp_path / "unsaid.png").write_bytes(page.getvalue())
    pictures.save(tmp_path / "old.png", page.getvalue(), ["03_what_limits_speed"])
    pictures.save(
        tmp_path / "today.png", page.getvalue(), [lesson.name for lesson in syllabus.lessons()]
    )
    assert outdated(tmp_path, pictures) == ["old.png", "unsaid.png"]


def test_pictures_are_taken_of_a_quiet_run_of_all_lessons_at_one_commit(pictures):
    machine = device.describe()
    with pytest.raises(LabError, match="Not every lesson passed"):
        pictures.require_a_quiet_run(["00_a", "01_b"])
    for name in ("00_a", "01_b"):
        at = {
            "run_key": name,
            "notebook": name,
            "profile": "quick",
            "started_utc": "2026-01-01T10:00:00+00:00",
        }
        ledger.add(machine, Run(**at, seed=0, machine_key=machine.machine_key, commit="abc"))
        ledger.add(Attempt(**at, batch_key="b", status="passed"))
        ledger.add(Latency(run_key=name, name="call", device="cpu", noisy=False))
    pictures.require_a_quiet_run(["00_a", "01_b"])
    ledger.add(Latency(run_key="00_a", name="busy", device="cpu", noisy=True))
    with pytest.raises(LabError, match="busy"):
        pictures.require_a_quiet_run(["00_a", "01_b"])
    ledger.add(replace(ledger.find(Run, run_key="01_b")[0], commit="abc-dirty"))
    with pytest.raises(LabError, match="not of one commit"):
        pictures.require_a_quiet_run(["00_a", "01_b"])


def planned(folder, *settings):
    """What `make run` would do in a folder, line by line."""
    # these run under make too
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "-n", "run", *settings],
        cwd=folder,
        env=own,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip().splitlines()


def test_a_second_call_reinstalls_nothing_and_a_changed_lock_reinstalls(tmp_path):
    (tmp_path / "Makefile").write_text((root() / "Makefile").read_text())
    (tmp_path / ".venv").mkdir()
    for age, name in enumerate(("requirements.lock", "pyproject.toml", ".venv/.ready")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1000 + age, 1000 + age))
    assert planned(tmp_path) == [".venv/bin/labkit run --profile quick"]
    assert planned(tmp_path, "DEEPER=yes") == [".venv/bin/labkit run --profile quick --deeper"]
    os.utime(tmp_path / "requirements.lock", (2000, 2000))
    assert any(
        "--require-hashes" in line and "-r .venv/requirements.lock" in line
        for line in planned(tmp_path)
    )


def test_make_refuses_another_python_with_the_way_out(tmp_path):
    (tmp_path / "Makefile").write_text((root() / "Makefile").read_text())
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "requirements.lock").touch()
    fake = tmp_path / "python3"
    fake.write_text(
        '#!/bin/sh\nexec python3 -c "import sys; sys.version_info = (3, 9, 0); '
        'exec(sys.argv[1])" "$2"\n'
    )
    fake.chmod(0o755)
    done = subprocess.run(
        ["make", "run", f"PYTHON={fake}"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "needs Python 3.11, 3.12 or 3.13; found 3.9" in done.stderr
    assert "make PYTHON=" in done.stderr


def test_no_file_names_a_place_of_this_machine():
    listed = subprocess.run(["git", "ls-files"], cwd=root(), capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = [
        root() / name
        for name in listed.stdout.splitlines()
        if not name.endswith((".gz", "test_docs.py"))
    ]
    found = [
        (path.name, word)
        for path in files
        for word in PLACES
        if path.exists() and word in read(path)
    ]
    assert found == []


def read(path):
    return path.read_text(encoding="utf-8", errors="ignore")


TITLE = "The deployment workbook"


def test_the_course_has_one_name_everywhere():
    said = {
        "README.md": rf"\A# {TITLE}\n",
        "docs/book/index.md": rf"\A# {TITLE}\n",
        "docs/book/conf.py": rf'project = "{TITLE}"',
        "labkit/templates/report.html": rf"<title>{TITLE}: report</title>",
        ".devcontainer/devcontainer.json": rf'"name": "{TITLE}"',
        "CITATION.cff": rf"(?m)^title: {TITLE}$",
        "pyproject.toml": rf'description = "{TITLE}: ',
    }
    assert [name for name, words in said.items() if not re.search(words, read(root() / name))] == []


def test_citation_and_changelog_name_the_version_of_the_package():
    citation = yaml.safe_load(read(root() / "CITATION.cff"))
    assert (citation["version"], citation["license"]) == (__version__, "MIT")
    assert citation["authors"][0]["name"] in read(root() / "LICENSE")
    newest = re.search(r"^## (\d+\.\d+)", read(root() / "CHANGELOG.md"), flags=re.MULTILINE)[1]
    assert __version__.startswith(f"{newest}.")


def test_until_a_record_of_a_gpu_is_there_the_first_page_says_that_none_is():
    machines = ledger.recorded("machines", folder=root() / "artifacts" / "recorded")
    record = bool(machines["gpu_driver"].notna().any())
    first_screen = "\n".join(README.splitlines()[:20])
    assert ("Not measured on a GPU yet" in first_screen) == (not record)


def tried():
    """{where: tested, tried or not tried} of the table in docs/installing.md."""
    table = read(root() / "docs" / "installing.md").partition("## What was tried where")[2]
    return dict(
        re.findall(r"^\| ([^|]+) \| (tested|tried|not tried)\b[^|]*\|$", table, flags=re.MULTILINE)
    )


def test_one_table_says_what_was_tried_and_the_other_pages_say_the_same():
    assert tried()["Linux x86-64, Python 3.11, `make`"] == "tested"
    for where in (
        "macOS",
        "Windows with WSL",
        "conda",
        "Binder",
        "Colab",
        "a container, VS Code, Codespaces",
    ):
        assert tried()[where] == "not tried"
    for page in ("README.md", "docs/book/index.md"):
        assert re.search(r"macOS, and Windows with WSL: not tried", read(root() / page)), page
    assert "image and Binder: not tried" in read(root() / "docs" / "publishing.md")


def test_the_workflow_of_a_public_forge_runs_the_tests_and_marks_what_was_never_run():
    workflow = yaml.safe_load(read(root() / ".github" / "workflows" / "test.yml"))
    linux, rest = workflow["jobs"]["linux"], workflow["jobs"]["never_run"]
    assert linux["steps"][-1]["run"] == ".ci/run" and os.access(root() / ".ci" / "run", os.X_OK)
    assert rest["steps"][-1]["run"] == "make test" and rest["continue-on-error"] is True
    assert {each["python"] for each in rest["strategy"]["matrix"]["include"]} == {"3.11", "3.13"}


RTX = ["tensorrt-rtx-cu13-bindings", "tensorrt-rtx-cu13-libs"]
UNUSED = [
    "cuda-bindings",
    "cuda-pathfinder",
    "cuda-toolkit",
    "nvidia-cuda-cccl",
    "nvidia-cusolver",
    "nvidia-nvjitlink",
]
UNUSED += ["nvidia-nvtx", "triton"]


@pytest.mark.parametrize(
    ("settings", "left_out"),
    [
        ((), []),
        (("TENSORRT=no",), RTX),
        (("GPU=no",), UNUSED),
        (("GPU=no", "TENSORRT=no"), sorted(RTX + UNUSED)),
    ],
)
def test_make_installs_the_lock_without_what_one_does_not_want(tmp_path, settings, left_out):
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        (tmp_path / name).write_text(read(root() / name))
    lines = "\n".join(planned(tmp_path, *settings))
    (tmp_path / ".venv").mkdir()
    (command,) = re.findall(r"^awk (?:.*\\\n)*.*$", lines, flags=re.MULTILINE)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    names = [
        re.findall(r"^([a-z0-9][a-z0-9.-]*)==", read(path), flags=re.MULTILINE)
        for path in (tmp_path / "requirements.lock", tmp_path / ".venv" / "requirements.lock")
    ]
    assert [name for name in names[0] if name not in names[1]] == left_out
    assert set(names[1]) < set(names[0]) if left_out else names[0] == names[1]


@pytest.mark.slow
def test_torch_starts_and_computes_without_what_gpu_no_leaves_out(tmp_path):
    """In a folder of links to all that is installed but those packages."""
    gone = {Path(file.locate()) for name in filter(there, UNUSED) for file in files(name)}
    installed = Path(find_spec("torch").origin).parent.parent
    for path in installed.iterdir():
        # libraries look for each other from the folder that they lie in
        if path.name in ("torch", "nvidia"):
            own = {
                "ignore": lambda folder, names: [
                    name for name in names if Path(folder, name) in gone
                ]
            }
            shutil.copytree(path, tmp_path / path.name, copy_function=os.symlink, **own)
        elif not any(each.is_relative_to(path) for each in gone):
            (tmp_path / path.name).symlink_to(path)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import torch; "
        "torch.linalg.svd(torch.rand(9, 9))\n"
    )
    code += "print(torch.__file__, open('/proc/self/maps').read())"
    words = [sys.executable, "-S", "-c", code, tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(tmp_path))
    assert [name for name in ("cusolver", "nvJitLink", "triton") if name in done.stdout] == []


def there(name):
    with contextlib.suppress(PackageNotFoundError):
        return bool(files(name))
    return False
