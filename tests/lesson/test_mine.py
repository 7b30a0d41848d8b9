"""The reader's own network: found from any folder, broken in words, kept as a row, shown in the
report.
"""

import importlib
import importlib.util
import os
import re
import subprocess
import sys

import nbformat
import pytest
import torch

from labkit import ledger, lesson, report
from labkit.classroom import copies, grading
from labkit.errors import LabError
from labkit.files import my_lessons
from labkit.ledger.rows import OwnResult
from labkit.lesson import _run, mine

OWN = """
import torch
from beside import SIZE

network = torch.nn.Linear(SIZE, 2).eval()
inputs, labels = torch.zeros(5, SIZE), torch.zeros(5, dtype=torch.long)
"""


@pytest.fixture
def running(capsys):
    path, finders = list(sys.path), list(sys.meta_path)
    begun = lesson.start("99_test", "quick", 3)
    capsys.readouterr()
    yield begun
    _run._lesson = None
    sys.path[:], sys.meta_path[:] = path, finders
    sys.modules.pop("mine", None)


def write(text):
    my_lessons().mkdir(parents=True, exist_ok=True)
    (my_lessons() / "mine.py").write_text(text, encoding="utf-8")
    mine.make_importable()


def test_start_makes_the_file_once_and_never_again(running):
    path = my_lessons() / "mine.py"
    assert path.is_file()
    path.write_text("network = inputs = labels = ()")
    lesson.start("99_test", "quick", 3)
    assert path.read_text() == "network = inputs = labels = ()"


def test_python_may_forget_what_it_knows_of_files_after_a_lesson_has_begun(running):
    importlib.invalidate_caches()
    assert importlib.import_module("mine").network is not None


def test_a_changed_file_is_read_anew_by_the_next_cell_and_an_unchanged_one_is_not(
    running, monkeypatch
):
    from IPython.core.interactiveshell import InteractiveShell

    kernel = InteractiveShell()
    monkeypatch.setattr(mine, "shell", lambda: kernel)
    mine.make_importable()
    text = "class Own:\n    training = False\n\n\nnetwork, inputs, labels = Own(), [{}], [0]\n"
    path = my_lessons() / "mine.py"
    path.write_text(text.format(1))
    kernel.run_cell("from mine import inputs, network").raise_error()
    first = kernel.user_ns["network"]
    kernel.run_cell("from mine import inputs, network").raise_error()
    assert kernel.user_ns["network"] is first
    path.write_text(text.format(22))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**9))  # where the clock of the disk is coarse
    kernel.run_cell("from mine import inputs, network").raise_error()
    assert kernel.user_ns["inputs"] == [22]
    assert kernel.user_ns["network"] is not first


def test_opening_the_lessons_makes_it_too_and_an_update_leaves_it_alone(tmp_path):
    copies.renew()
    path = my_lessons() / "mine.py"
    assert path.is_file()
    path.write_text("mine")
    copies.renew()
    assert path.read_text() == "mine"


def test_the_stand_in_is_trained(running):
    from mine import inputs, labels, network

    with torch.no_grad():
        right = (network(inputs).argmax(1) == labels).double().mean()
    assert len(inputs) == len(labels) == 1000
    assert right > 0.9  # a random one of ten classes: 0.1
    assert not network.training


def test_a_file_of_the_reader_takes_its_place_with_what_lies_beside_it(running):
    (my_lessons() / "beside.py").write_text("SIZE = 3")
    write(OWN)
    from mine import inputs, network

    assert network.in_features == inputs.shape[1] == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\nnetwork = 1 / 0", "line 2: ZeroDivisionError"),
        ("network = (", "line 1: SyntaxError"),
        (
            "import no_such_package",
            "line 1: ModuleNotFoundError: No module named 'no_such_package'",
        ),
        ("def load():\n    return {}['a']\n\nnetwork = load()", "line 2: KeyError"),
        ("network = labels = ()", "does not set inputs"),
        ("x = 1", "does not set network and inputs and labels"),
        ("network = print\ninputs, labels = [1, 2], [1]", "2 inputs and 1 labels"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_in_words_that_names_the_line(running, text, words):
    write(text)
    with pytest.raises(LabError) as refused:
        import mine as module  # noqa: F401
    assert words in str(refused.value)
    assert "next: " in str(refused.value)


def test_another_mine_py_beside_the_notebook_is_named_and_not_read(
    running, tmp_path, monkeypatch, capsys
):
    (tmp_path / "mine.py").write_text("network = inputs = labels = None", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    write(OWN.replace("from beside import SIZE", "SIZE = 3"))
    said = capsys.readouterr().out
    assert f"{tmp_path / 'mine.py'} is not read" in said and str(my_lessons() / "mine.py") in said
    assert importlib.import_module("mine").network.in_features == 3
    monkeypatch.chdir(my_lessons())
    mine.make_importable()
    assert "is not read" not in capsys.readouterr().out


def test_a_module_put_in_its_place_by_hand_is_no_stand_in(running, tmp_path):
    mine.make_importable()  # the stand-in lies in my-lessons
    assert mine.described().stand_in
    own = tmp_path / "own.py"
    own.write_text("import torch\nnetwork = torch.nn.Linear(2, 2)\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location("mine", own)
    sys.modules["mine"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["mine"])
    assert mine.described() == ("Linear", 6, False)


def test_labels_are_asked_for_only_by_a_lesson_that_takes_them(running):
    write("network, inputs = print, [1, 2]")
    from mine import inputs

    assert inputs == [1, 2]
    with pytest.raises(LabError) as refused:
        from mine import labels  # noqa: F401
    assert "does not set labels" in str(refused.value)
    assert "class numbers, one for each input" in str(refused.value)


def test_a_network_in_training_is_put_into_evaluation_and_it_is_said(running, capsys):
    write("import torch\nnetwork = torch.nn.Dropout()\ninputs = labels = ()")
    from mine import network

    assert not network.training
    assert ".eval()" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_has_the_stand_in_all_the_same(
    running, tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LABKIT_MY_LESSONS", str(tmp_path / "file" / "my-lessons"))
    mine.make_importable()
    from mine import labels

    assert len(labels) == 1000


def test_a_row_of_ones_own_network_stands_in_the_report_and_a_second_call_replaces_it(running):
    (my_lessons() / "beside.py").write_text("SIZE = 3")
    write(OWN)
    lesson.keep_mine("share of the gap won back", 50.0, unit="%")
    lesson.keep_mine("share of the gap won back", 60.0, unit="%")
    [row] = ledger.find(OwnResult)
    assert (row.value, row.network, row.weights, row.stand_in) == (60.0, "Linear", 8, False)
    page = report.write_report().read_text(encoding="utf-8")
    table = page[page.index("<h2>Your network</h2>") :].split("</table>")[0]
    text = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", table))
    assert "share of the gap won back 60 % Linear, 8 weights" in text
    assert "stand-in" not in text


def test_the_table_grows_by_a_row_for_each_lesson_and_marks_the_stand_in(running):
    lesson.keep_mine("right answers", 93.0, unit="%")
    lesson.start("98_other", "quick", 3)
    lesson.keep_mine("the file shrinks", 3.9, unit="x")
    page = report.write_report().read_text(encoding="utf-8")
    table = page[page.index("<h2>Your network</h2>") :].split("</table>")[0]
    assert table.count("(stand-in)") == 2
    assert table.index("98_other") < table.index("99_test")


def test_a_row_of_a_lesson_that_left_nothing_else_does_not_stop_the_report(running):
    lesson.start("97_other", "quick", 3)
    lesson.keep_mine("right answers", 93.0, unit="%")
    assert "97_other" in report.write_report().read_text(encoding="utf-8")


def test_a_report_without_rows_has_no_such_table(running):
    assert "Your network" not in report.write_report().read_text(encoding="utf-8")


PLAIN = """
import sys
sys.modules["labkit"] = None  # blocked: an import of it fails
sys.path.append(sys.argv[1])
from mine import inputs, labels, network
print(len(inputs), network.training)
"""


def test_a_file_of_the_reader_needs_no_labkit(tmp_path):
    (tmp_path / "beside.py").write_text("SIZE = 3")
    (tmp_path / "mine.py").write_text(OWN)
    command = [sys.executable, "-c", PLAIN, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/")
    assert done.stdout.split() == ["5", "False"], done.stderr


@pytest.mark.slow
def test_papermill_finds_it_from_any_folder(tmp_path):
    cells = [
        'from labkit.lesson import start\nstart("99_test", "quick", 0)',
        "from mine import SIZE\nprint(SIZE)",
    ]
    nbformat.write(
        nbformat.v4.new_notebook(
            cells=list(map(nbformat.v4.new_code_cell, cells)),
            metadata={
                "kernelspec": {"name": "python3", "display_name": "p"},
                "language_info": {"name": "python"},
            },
        ),
        tmp_path / "in.ipynb",
    )
    (my_lessons()).mkdir(parents=True)
    (my_lessons() / "beside.py").write_text("SIZE = 37")
    (my_lessons() / "mine.py").write_text(OWN)
    command = [
        sys.executable,
        "-m",
        "papermill",
        "--no-progress-bar",
        str(tmp_path / "in.ipynb"),
        "out.ipynb",
    ]
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        command, cwd=tmp_path / "elsewhere", env=dict(os.environ), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "37" in (tmp_path / "elsewhere" / "out.ipynb").read_text()


@pytest.mark.slow
def test_the_grader_finds_it_too(tmp_path):
    source = (
        "def image_bytes(images, height, width, bytes_per_value):\n"
        "    from mine import labels\n\n"
        "    return images * 3 * height * width * bytes_per_value if len(labels) == "
        "1000 else 0\n\n\n"
        'image_bytes = exercise("image-bytes").check(image_bytes)'
    )
    verdict, message = grading.judge("image-bytes", ["from mine import network"], source)
    assert "mine" not in message
    assert "ModuleNotFound" not in message
    assert verdict in ("passed", "wrong")
