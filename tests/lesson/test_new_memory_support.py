"""A new process of the tour of new memory prints a table of numbers, as its words say."""

import subprocess

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
