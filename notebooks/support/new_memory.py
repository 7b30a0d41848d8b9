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
# For a process of its own: 30 updates by Adam's loop, in two copies. Before update 16 one of them
# makes and frees a tensor of 32 MB. Each update prints milliseconds, page faults, and the memory
# that the process holds, in MiB.
UPDATES = """
import os, resource, sys, time, torch
def state():
    return 1e3 * time.thread_time(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def resident():
    pages = int(open("/proc/self/statm").read().split()[1]) if sys.platform == "linux" else 0
    return pages * resource.getpagesize() / 2**20
torch.set_num_threads(1)
weight = torch.ones(512, 512, 3, 3, requires_grad=True)
weight.grad = torch.ones_like(weight)
adam = torch.optim.Adam([weight], foreach=False, fused=False)
adam.step()
for useless in (99, 15):
    if os.fork() == 0:
        break
    os.wait()
else:
    os._exit(0)
for number in range(30):
    if number == useless:
        torch.ones(8_000_000)  # the useless line
    (ms, faults), _, (later, more) = state(), adam.step(), state()
    print(later - ms, more - faults, resident(), flush=True)
os._exit(0)
"""


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
