"""A new process of the tour of new memory prints a table of numbers, as its words say."""

import subprocess
import sys

import numpy as np
import pytest

from labkit.lesson.support import load_support

support = load_support("new_memory")


def test_what_a_new_process_prints_is_a_table():
    table = support.in_new_process("import sys\nprint(1, 2)\nprint(sys.argv[1], 4)", 3)
    assert table.tolist() == [[1, 2], [3, 4]]


def test_a_new_process_gets_its_variables_and_no_gpu():
    script = """
import os
print(os.environ["LIMIT"], len(os.environ["CUDA_VISIBLE_DEVICES"]), os.environ["GLIBC_TUNABLES"][-1])
"""
    assert support.in_new_process(script, LIMIT=32).tolist() == [[32, 0, 0]]


def test_a_script_that_fails_is_an_error():
    with pytest.raises(subprocess.CalledProcessError):
        support.in_new_process("raise SystemExit(1)")


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="it counts Linux' page faults in a forked process"
)
def test_both_copies_make_thirty_updates_with_their_page_faults():
    without, with_it = np.split(support.in_new_process(support.UPDATES), 2)
    assert without.shape == with_it.shape == (30, 3)
    assert (without[:, 0] > 0).all()
    assert (with_it[:, 0] > 0).all()
