"""The command line: each command does its work, shows an example, and explains its errors."""

import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from rows_made_up import write_attempt, write_lesson, write_scores
from typer.testing import CliRunner

from labkit import cli, ledger, runner
from labkit.capstone.judge import Score
from labkit.cli.app import FILES
from labkit.doctor import Check
from labkit.errors import LabError
from labkit.ledger.rows import Claim, RaceScore, Scored
from labkit.train import TrainConfig

COMMANDS = {
    *(
        "doctor",
        "run",
        "list",
        "new-lesson",
        "lab",
        "reset",
        "progress",
        "report",
        "bench",
        "search",
        "serve",
        "train",
    ),
    *("export", "quantize", "view", "build"),
    *("submit", "leaderboard", "experiment", "gpu"),
    *(
        "data list",
        "data get",
        "ledger export",
        "ledger record",
        "ledger claims",
        "ledger published",
    ),
    *("ledger pack", "ledger merge", "grade", "release", "minutes"),
}


def call(*words, expect=0):
    result = CliRunner().invoke(cli.app, list(words))
    assert result.exit_code == expect, result.output
    return result.output


@pytest.mark.parametrize("command", sorted(COMMANDS | {"data", "ledger"}))
def test_help_shows_an_example(command):
    assert f"Example: labkit {command}" in " ".join(call(*command.split(), "--help").split())


def test_the_commands_are_these():
    command = typer.main.get_command(cli.app)
    names = set()
    for name in command.list_commands(None):
        below = getattr(command.get_command(None, name), "commands", {})
        names |= {f"{name} {word}" for word in below} or {name}
    assert names == COMMANDS


def test_every_command_stands_in_its_file_and_asking_for_one_imports_no_other():
    code = (
        "import sys, typer; from labkit import cli; "
        "typer.main.get_command(cli.app).get_command(None, {!r}); "
        "print(*sorted(name.split('.')[2] for name in sys.modules "
        "if name.startswith('labkit.cli.')))"
    )
    for file, names in FILES.items():
        done = subprocess.run(
            [sys.executable, "-c", code.format(names[-1])], capture_output=True, text=True
        )
        assert done.stdout.split() == sorted(["app", file]), done.stderr


def test_an_unknown_command_is_answered_with_one_that_is_near():
    result = CliRunner().invoke(cli.app, ["quantise"])
    assert result.exit_code == 2
    assert "Did you mean 'quantize'?" in result.output


def test_list_names_lessons_and_exercises():
    output = call("list")
    assert "01_deployment_fundamentals" in output
    assert "exercise one-queue: difficulty 2 of 3, 9 min" in output


def test_doctor_explains_each_line_and_ends_well_when_nothing_needed_is_missing(monkeypatch):
    checks = [
        Check("torch", True, "2.15", needed=True),
        Check("gpu", False, "none", fix="see the recorded rows"),
    ]
    monkeypatch.setattr("labkit.doctor.examine", lambda: checks)
    output = call("doctor")
    assert "next: see the recorded rows" in output
    assert " ".join(output.split()).endswith(
        "needs is here. Not here: gpu. The lines above say what stands in."
    )


def test_what_the_doctor_says_hangs_below_its_first_word_and_a_command_stays_in_one_piece(
    monkeypatch,
):
    command = "/a/long/path/to/the/python/of/this/environment -m pip install something"
    check = Check("gpu", False, "none that torch has " * 4, fix=command)
    monkeypatch.setattr("labkit.doctor.examine", lambda: [check])
    monkeypatch.setenv("COLUMNS", "60")
    first, second, *_ = output = call("doctor").splitlines()
    assert first.startswith("-   gpu                    none that")
    assert second.startswith(f"{' ' * 27}torch has none")
    assert f"{' ' * 27}next: {command}" in output
    assert all(len(line) <= 60 for line in output if command not in line)


def test_doctor_ends_with_1_when_something_needed_is_missing(monkeypatch):
    monkeypatch.setattr(
        "labkit.doctor.examine", lambda: [Check("torch", False, "not installed", needed=True)]
    )
    assert "Missing and needed: torch" in call("doctor", expect=1)


class Ended:
    def __init__(self, ok):
        self.ok = ok


@pytest.mark.parametrize(("ok", "code"), [(True, 0), (False, 1)])
def test_run_passes_its_options_on_writes_the_report_and_ends_with_the_batch(
    monkeypatch, own_artifacts, ok, code
):
    calls = []
    monkeypatch.setattr(
        runner, "run_batch", lambda *names, **settings: calls.append((names, settings)) or Ended(ok)
    )
    output = call(
        "run", "00", "--profile", "lab", "-p", "seed=1", "-p", "name=x", "--fresh", expect=code
    )
    ((names, settings),) = calls
    assert names == (["00"],)
    assert (settings["profile"], settings["fresh"], settings["strict"]) == ("lab", True, False)
    assert settings["parameters"] == {"seed": 1, "name": "x"}
    assert "report.html" in output
    assert (own_artifacts / "report.html").exists()


def test_run_passes_seeds_and_the_address_of_a_cluster_on(monkeypatch):
    calls = []
    monkeypatch.setattr("labkit.cli.course.report", lambda: None)
    monkeypatch.setattr(
        runner, "run_batch", lambda *names, **settings: calls.append(settings) or Ended(True)
    )
    call("run", "--seeds", "0:3", "--cluster", "tcp://127.0.0.1:8786")
    call("run")
    assert [(settings["seeds"], settings["cluster"]) for settings in calls] == [
        ((0, 1, 2), "tcp://127.0.0.1:8786"),
        ((), None),
    ]


def test_run_lists_what_a_recorded_run_said_otherwise(monkeypatch, tmp_path):
    monkeypatch.setattr("labkit.device.commit", lambda: "abc")
    monkeypatch.setattr("labkit.cli.course.report", lambda: None)
    write_lesson()
    ledger.record("Box", profile="quick", folder=tmp_path)
    ledger.add(replace(ledger.find(Claim, claim_id="c")[0], verdict="fails"))
    result = SimpleNamespace(ok=True, attempts=[SimpleNamespace(run_key="r1")])
    monkeypatch.setattr(runner, "run_batch", lambda *names, **settings: result)
    output = call("run", "00", "--against", str(tmp_path))
    assert "what-limits-speed c: holds -> fails: bf16 is faster\n" in output
    assert "1 of 3 recorded verdicts and answers are other ones here." in output


def test_ledger_export_writes_csv_and_parquet(tmp_path):
    write_lesson()
    assert "claims.parquet" in call("ledger", "export", "--folder", str(tmp_path))
    assert "bf16 is faster" in (tmp_path / "claims.csv").read_text(encoding="utf-8")


def test_report_says_where_it_is():
    write_attempt()
    assert call("report").strip().endswith("report.html")


def test_data_list_says_what_is_here_and_how_to_get_the_rest():
    output = call("data", "list")
    assert "ok fashion-mnist" in output
    assert "tiny-imagenet" in output


def test_the_leaderboard_shows_files_and_recipes():
    write_scores()
    said = call("leaderboard")
    assert said.index("Trained to 80 %") < said.index("The order of lesson 20")
    assert said.count("Ada & Bob") == 2


def test_a_leaderboard_begins_empty():
    assert "No submission has been scored here yet." in call("leaderboard")


def test_a_submission_is_scored_kept_and_ends_with_1_when_it_is_refused(monkeypatch, tmp_path):
    found = [Score("Ada", None, ("It answers at random.",), facts={})]
    monkeypatch.setattr("labkit.capstone.judge.score", lambda submissions, size: found)
    (tmp_path / "net.onnx").write_bytes(b"x")
    output = call(
        "submit", str(tmp_path / "net.onnx"), "--engine", "onnxruntime", "--name", "Ada", expect=1
    )
    assert "Ada: refused. It answers at random." in output
    assert [row.reason for row in ledger.find(Scored)] == ["It answers at random."]


def test_a_packed_ledger_is_merged_once_and_a_damaged_one_is_refused(monkeypatch, tmp_path):
    ledger.add(Scored(run_key="submit-1", name="Ada", device="cpu"))
    parcel = tmp_path / "ada.zip"
    assert str(parcel) in call("ledger", "pack", str(parcel))
    monkeypatch.setenv("LABKIT_ARTIFACTS", str(tmp_path / "mine"))
    assert "ada.zip: 1 rows of 1 runs" in call("ledger", "merge", str(parcel))
    assert "ada.zip: nothing new" in call("ledger", "merge", str(parcel))
    parcel.write_bytes(parcel.read_bytes()[:100])
    with pytest.raises(LabError, match="no parcel"):
        cli.app(["ledger", "merge", str(parcel)], standalone_mode=False)


@pytest.mark.parametrize("words", [[], ["data"], ["ledger"]])
def test_no_help_line_is_cut_short_at_80_columns(words):
    command = typer.main.get_command(cli.app)
    for word in words:
        command = command.get_command(None, word)
    # as it is done with 80 columns
    terminal = typer.Context(command, info_name="labkit", terminal_width=78)
    assert "..." not in command.get_help(terminal).partition("Commands:")[2]


def ended(words, **settings):
    """A command in a process of its own: (exit code, what it said on stderr)."""
    process = subprocess.Popen(
        [sys.executable, "-m", "labkit.cli", *words], stderr=subprocess.PIPE, text=True, **settings
    )
    said = process.communicate(timeout=400)[1]
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    return process.returncode, said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_said_in_words():
    with Path("/dev/full").open("w") as full:
        code, said = ended(["--help"], stdout=full)
    assert code == 2
    assert "No space left" in said
    assert "next: free some disk space" in said


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_a_reader_that_has_enough_ends_the_command_quietly():
    reading, writing = os.pipe()
    os.close(reading)
    code, said = ended(["--help"], stdout=writing)
    os.close(writing)
    assert (code, said) == (1, "")


@pytest.mark.skipif(os.name != "posix", reason="a shell of POSIX")
def test_a_closed_stdout_is_no_error():
    assert ended(["--help"], preexec_fn=lambda: os.close(1)) == (0, "")


def test_artifacts_that_are_a_file_are_said_in_words(tmp_path, monkeypatch):
    (tmp_path / "artifacts").write_text("a file")
    monkeypatch.setenv("LABKIT_ARTIFACTS", str(tmp_path / "artifacts"))
    code, said = ended(["ledger", "export"])
    assert code == 2
    assert "a file stands where a folder is needed" in said


@pytest.fixture
def said(monkeypatch, capfd):
    """said(words) -> (exit code, what a command of this process said on stderr)."""

    def run(words):
        monkeypatch.setattr(sys, "argv", ["labkit", *words])
        monkeypatch.setattr(os, "dup2", lambda *handles: None)  # stdout stays that of the tests
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return caught.value.code, capfd.readouterr().err

    return run


def test_stopping_a_command_is_said_in_words(monkeypatch, said):
    def stopped():
        raise KeyboardInterrupt

    monkeypatch.setattr("labkit.lesson.syllabus.lessons", stopped)
    code, words = said(["list"])
    assert code == 130
    assert "stopped" in words


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["run", "--profile", "fast"], "quick"),
        (["run", "-p", "seed"], "NAME=VALUE"),
        (["run", "-p", "sed=1", "00"], "seed"),
        (["run", "77"], "03_what_limits_speed"),
        (["run", "--seeds", "5:0"], "--seeds 0:5"),
        (["run", "--seeds", "0:2", "-p", "seed=1"], "given twice"),
        (["data", "get", "nothing"], "cifar10"),
    ],
)
def test_an_error_is_explained(said, words, part):
    code, explained = said(words)
    assert code == 2
    assert part in explained
    assert "next:" in explained


def test_an_error_is_explained_without_a_traceback():
    code, explained = ended(["run", "00", "--cluster", "nonsense://x"])
    assert code == 2
    assert "dask scheduler --host 127.0.0.1" in explained
    assert "next:" in explained


def test_each_field_of_a_training_is_an_option_of_train_with_its_own_default_and_help():
    options = {
        each.name: each
        for each in typer.main.get_command(cli.app).get_command(None, "train").params
    }
    for field in fields(TrainConfig):
        assert options[field.name].default == field.default
        assert options[field.name].help
    assert {"--epochs", "--n-epochs"} <= set(options["epochs"].opts)


def test_a_recipe_is_raced_kept_and_ends_with_1_when_it_has_no_score(monkeypatch, tmp_path):
    from labkit.capstone.race import Raced

    asked = []

    def race(recipes, against):
        asked.append((against.name, recipes[0].name, recipes[0].images))
        return [
            Raced("reference", against.reference),
            Raced("Ada", recipes[0], reason="74 % on average."),
        ]

    monkeypatch.setattr("labkit.capstone.race.race", race)
    (tmp_path / "mine.toml").write_text('network = "vgg-small"\nimages = 3000\n')
    output = call("submit", str(tmp_path / "mine.toml"), "--quick", "--name", "Ada", expect=1)
    assert asked == [("quick", "Ada", 3000)]
    assert "Ada: no score. 74 % on average." in output
    assert [(row.race, row.reason) for row in ledger.find(RaceScore)] == [
        ("quick", "74 % on average.")
    ]
