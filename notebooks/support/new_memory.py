"""For the tour of new memory: a new Python process, in which no memory has been freed before."""

import io
import os
import subprocess
import sys
from typing import Any

import numpy as np

# Without malloc's small cache, which may by accident hold the end of the memory; without a GPU,
# which a forked process cannot use.
SWITCHES = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0", "CUDA_VISIBLE_DEVICES": ""}


def in_new_process(script: str, *words: Any, **environment: Any) -> np.ndarray:
    """Return the table of numbers that a new Python process prints.

    script       the program
    words        arguments of the program, its `sys.argv[1:]`
    environment  variables of the process, besides those of this process
    """
    variables = os.environ | SWITCHES | {name: str(value) for name, value in environment.items()}
    command = [sys.executable, "-c", script, *map(str, words)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=variables)
    return np.loadtxt(io.StringIO(run.stdout), ndmin=2)
