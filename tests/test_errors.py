"""Errors that say what to do."""

import errno
import pickle

import pytest

from labkit import errors


def test_an_error_names_what_was_expected_found_and_what_to_do_next():
    error = errors.LabError("It broke.", expected="a whole", found="two halves", fix="make run")
    assert str(error) == "It broke.\n  expected: a whole\n  found: two halves\n  next: make run"


def test_parts_that_are_not_known_are_left_out_but_a_zero_is_not():
    assert str(errors.LabError("It broke.")) == "It broke."
    assert str(errors.LabError("It broke.", found=0)) == "It broke.\n  found: 0"


@pytest.mark.parametrize("kind", [kind for kind in vars(errors).values() if isinstance(kind, type)])
def test_every_error_is_one_a_reader_can_act_on(kind):
    assert issubclass(kind, errors.LabError)
    assert kind.__doc__


def test_an_error_survives_the_way_between_processes():
    error = pickle.loads(
        pickle.dumps(errors.DataError("It broke.", expected="a", found="b", fix="c"))
    )
    assert (type(error), error.what, error.expected, error.fix) == (
        errors.DataError,
        "It broke.",
        "a",
        "c",
    )


def test_an_error_of_the_operating_system_names_the_file_and_what_to_do():
    words = str(
        errors.as_lab_error(OSError(errno.ENOSPC, "No space left on device", "ledger.sqlite"))
    )
    assert "No space left on device: 'ledger.sqlite'" in words
    assert "next: free some disk space" in words
    words = str(errors.as_lab_error(OSError(errno.ENOLCK, "No locks available", ".batch.lock")))
    assert "cannot lock files: LABKIT_ARTIFACTS=FOLDER on a local disk" in words
    assert "next:" in str(errors.as_lab_error(OSError("something odd")))
    assert "next:" in str(errors.as_lab_error(OSError()))


def test_the_refused_write_behind_a_library_s_error_is_found():
    words = {
        "Error while serializing: I/O error: No space left on device (os error 28)": errno.ENOSPC,
        "[('a', 'b', '[Errno 27] File too large')]": errno.EFBIG,
        "[enforce fail at inline_container.cc:671] . unexpected pos 576 vs 534": errno.ENOSPC,
    }
    assert {text: errors.disk_error(RuntimeError(text)).errno for text in words} == words
    behind = RuntimeError("a writer gave up")
    behind.__context__ = OSError(errno.EROFS, "read-only")
    assert errors.disk_error(behind).errno == errno.EROFS


def test_the_first_line_of_an_error_names_its_kind_even_without_a_message():
    assert errors.first_line(ValueError("too small\nby 3")) == "ValueError: too small"
    assert errors.first_line(ValueError("\n too small")) == "ValueError: too small"
    assert errors.first_line(TimeoutError()) == "TimeoutError"


def test_an_error_that_is_no_refused_write_stays_what_it_is():
    for error in (
        RuntimeError("shapes differ"),
        ValueError("28"),
        FileNotFoundError(errno.ENOENT, "gone"),
    ):
        assert errors.disk_error(error) is None
