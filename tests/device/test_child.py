"""A function in a process of its own: its result, its errors, its limits, and nothing of it that
stays.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from labkit.device import child
from labkit.device.child import ChildEnded, own_folder, run_in_child
from labkit.errors import LabError, LessonError

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
# A process that hides: a session of its own, and the process that started it has ended.
HIDES = (
    f"import subprocess; print(subprocess.Popen({SLEEP!r}, start_new_session=True, stdout=-3, "
    "stderr=-3).pid)"
)


def process_id_and_sum(*numbers):
    return os.getpid(), sum(numbers)


def raise_lesson_error():
    raise LessonError("A word is missing.", expected="recap()", found="nothing", fix="call it")


def divide_by(number):
    return 1 / number


def kill_itself(number):
    os.kill(os.getpid(), number)


def leave(status):
    print("the last words", file=sys.stderr)
    os._exit(status)


def compute_for_ever():
    while True:
        pass


def allocate(gibibytes):
    return len(bytearray(gibibytes * 2**30))


def start_a_process(file, then):
    """Start a process, one that hides, and write their numbers and the folder of this process
    into a file.
    """
    hidden = subprocess.run(
        [sys.executable, "-c", HIDES], capture_output=True, text=True, check=True
    ).stdout
    started = subprocess.Popen(SLEEP, stdout=subprocess.DEVNULL).pid
    own_folder().joinpath("mine").write_text("x")
    write_whole(file, f"{started} {hidden.strip()} {own_folder()}")
    return then()


def write_whole(file, text):
    temporary = file.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(file)


def run_a_child_that_starts_processes(file):
    run_in_child(partial(start_a_process, file, partial(time.sleep, 600)), seconds=600)


def is_alive(process_id):
    return (
        psutil.pid_exists(process_id)
        and psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE
    )


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        time.sleep(0.05)


def test_the_result_comes_from_another_process():
    process_id, total = run_in_child(partial(process_id_and_sum, 2, 3), seconds=60)
    assert total == 5
    assert process_id != os.getpid()


def test_the_functions_own_error_arrives_as_it_was_raised():
    with pytest.raises(LessonError) as caught:
        run_in_child(raise_lesson_error, seconds=60)
    assert (
        str(caught.value)
        == "A word is missing.\n  expected: recap()\n  found: nothing\n  next: call it"
    )


def test_another_exception_becomes_an_error_with_its_type_and_text():
    with pytest.raises(LabError) as caught:
        run_in_child(partial(divide_by, 0), seconds=60)
    assert caught.value.found == "ZeroDivisionError: division by zero"
    assert not isinstance(caught.value, ChildEnded)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_a_crash_is_told_with_its_signal(number):
    with pytest.raises(ChildEnded) as caught:
        run_in_child(partial(kill_itself, number), seconds=60)
    assert caught.value.returncode == -number
    assert f"(signal {int(number)})" in caught.value.found


def test_a_process_that_leaves_is_told_with_its_status_and_its_last_words():
    with pytest.raises(ChildEnded) as caught:
        run_in_child(partial(leave, 3), seconds=60)
    assert caught.value.returncode == 3
    assert caught.value.found == "ended with status 3 the last words"
    with pytest.raises(ChildEnded, match="before its result"):
        run_in_child(partial(sys.exit, 0), seconds=60)


@pytest.mark.slow
def test_a_computation_without_end_is_ended_by_its_limit_of_computing(monkeypatch):
    monkeypatch.setattr(child, "PATIENCE", 600)  # only the limit of computing can end it
    with pytest.raises(ChildEnded) as caught:
        run_in_child(compute_for_ever, seconds=1)
    assert caught.value.returncode == -signal.SIGXCPU


@pytest.mark.slow
@pytest.mark.parametrize("by_the_clock", [True, False])
def test_a_function_that_only_waits_is_ended_by_the_clock(by_the_clock):
    with pytest.raises(ChildEnded, match="did not end") as caught:
        run_in_child(partial(time.sleep, 600), seconds=1, by_the_clock=by_the_clock)
    assert caught.value.returncode is None
    assert caught.value.found == ("nothing after 1 s" if by_the_clock else "nothing after 3 s")


def test_a_limit_of_memory_refuses_what_exceeds_it_and_nothing_else():
    assert run_in_child(partial(allocate, 1), seconds=60, memory=4 * 2**30) == 2**30
    with pytest.raises(LabError) as caught:
        run_in_child(partial(allocate, 8), seconds=60, memory=4 * 2**30)
    assert caught.value.found.startswith("MemoryError")


def test_a_caller_that_wants_no_result_any_more_stops_the_process(tmp_path):
    file = tmp_path / "started"
    function = partial(start_a_process, file, partial(time.sleep, 600))
    with pytest.raises(ChildEnded, match="stopped"):
        run_in_child(function, seconds=600, stopped=file.exists)
    assert_nothing_is_left(file)


ENDS = {
    "it returns": (partial(divide_by, 1), None),
    "it raises": (partial(divide_by, 0), LabError),
    "it calls sys.exit": (partial(sys.exit, 1), ChildEnded),
    "it runs longer than its limit": (partial(time.sleep, 600), ChildEnded),
}


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_what_the_function_started_and_its_folder_end_with_it(tmp_path, end):
    then, error = ENDS[end]
    function = partial(start_a_process, tmp_path / "started", then)
    if error is None:
        assert run_in_child(function, seconds=60) == 1
    else:
        with pytest.raises(error):
            run_in_child(function, seconds=5, by_the_clock=True)
    assert_nothing_is_left(tmp_path / "started")


def kill_its_group():
    os.killpg(0, signal.SIGKILL)


def kill_its_parent():
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def kill_its_parent_and_compute():
    """Compute where no other thread of this process gets a turn."""
    os.kill(os.getppid(), signal.SIGKILL)
    return sum(iter(int, 1))


CRASHES = {
    "by a signal": (partial(kill_itself, signal.SIGKILL), -signal.SIGKILL),
    "in a library": (partial(kill_itself, signal.SIGSEGV), -signal.SIGSEGV),
    "by _exit": (partial(os._exit, 0), 0),
    "with a status": (partial(os._exit, 7), 7),
    "with its group": (kill_its_group, -signal.SIGKILL),
    "after its keeper": (kill_its_parent, -signal.SIGKILL),
    "after its keeper, computing": (kill_its_parent_and_compute, -signal.SIGKILL),
}


@pytest.mark.parametrize("crash", CRASHES)
def test_what_a_process_started_ends_too_when_it_crashes(tmp_path, crash):
    function, returncode = CRASHES[crash]
    file = tmp_path / "started"
    with pytest.raises(ChildEnded) as caught:
        run_in_child(partial(start_a_process, file, function), seconds=60)
    assert caught.value.returncode == returncode
    assert_nothing_is_left(file)


@pytest.mark.kills
def test_the_process_and_all_that_it_started_end_when_its_caller_is_killed(tmp_path):
    file = tmp_path / "started"
    code = f"import sys; sys.path[:] = {sys.path!r}; from pathlib import Path; import test_child\n"
    code += f"test_child.run_a_child_that_starts_processes(Path({str(file)!r}))"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    caller = subprocess.Popen([sys.executable, "-c", code], env=environment)
    wait_for(file.exists)
    [called] = psutil.Process(caller.pid).children()
    caller.kill()
    caller.wait()
    wait_for(lambda: not is_alive(called.pid))
    assert_nothing_is_left(file)


def assert_nothing_is_left(file):
    started, hidden, folder = file.read_text().split()
    wait_for(lambda: not is_alive(int(started)))
    # only Linux hands a child whose parent has ended to its grandparent
    if sys.platform == "linux":
        wait_for(lambda: not is_alive(int(hidden)))
    wait_for(lambda: not Path(folder).exists())


def test_several_calls_at_once_do_not_meet():
    results = {}

    def call(number):
        results[number] = run_in_child(partial(process_id_and_sum, number), seconds=60)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: total for number, (_, total) in results.items()} == {0: 0, 1: 1, 2: 2}
    assert len({process_id for process_id, _ in results.values()}) == 3


def test_a_process_that_was_not_called_has_no_folder_of_its_own():
    with pytest.raises(LabError, match="no folder of its own"):
        own_folder()
