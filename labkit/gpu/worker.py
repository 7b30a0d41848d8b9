"""The process that measures: reads items from its standard input, writes rows to the journal."""

import json
import os
import pkgutil
import queue
import sys
import threading
import time
import warnings

import torch

from labkit import device as devices
from labkit.gpu.bench import Bench, reason
from labkit.gpu.items import ITEMS
from labkit.gpu.journal import Journal
from labkit.gpu.machine import describe


def main(path, tiny):
    """Describe this machine in the journal, then measure the arriving items until the input ends.

    path  path of the journal
    tiny  True: sizes that a CPU can compute
    """
    # TF32 is left off on purpose: fp32 means fp32 here
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")
    orders: queue.Queue = queue.Queue()
    threading.Thread(target=listen, args=(orders,), daemon=True).start()
    journal = Journal(path)
    device = devices.pick()
    facts = describe(device)
    journal.append(kind="machine", process=os.getpid(), **facts)
    while True:
        order = orders.get()
        end = time.monotonic() + order["seconds"]
        last = frozenset(order["last"])
        do(Bench(order["item"], journal, device, tiny, end, last, facts))


def listen(orders):
    """Pass the lines of the standard input to the queue `orders`; exit when the input ends.

    The input ends when the process at its other end does, even if that was killed. This process
    then exits at once, also in the middle of a measurement. The input is read without a buffer: the
    processes that load data are forks of this process, and would wait for ever for the lock of a
    buffer.
    """
    with open(os.dup(0), "rb", buffering=0) as lines:  # noqa: PTH123 (a descriptor, not a path)
        for line in lines:
            orders.put(json.loads(line))
    os._exit(1)


def do(bench):
    """Measure one item, and write into the journal that it is done.

    An error that the item did not catch is the reason in that line.
    """
    item = ITEMS[bench.item]
    bench.journal.append(kind="begin", item=bench.item, process=os.getpid())
    problem = None
    try:
        pkgutil.resolve_name(f"labkit.gpu.{item.function}")(bench, **item.settings)
    except Exception as error:  # the other items go on
        problem = reason(error)
    torch.compiler.reset()
    fit = is_fit(bench)
    bench.journal.append(
        kind="done",
        item=bench.item,
        process=os.getpid(),
        fit=fit,
        reason=problem,
        tiny=bench.tiny,
        machine_key=bench.facts["machine_key"],
    )


def is_fit(bench):
    """Return whether the GPU still works; after an illegal memory access every later call fails."""
    try:
        bench.clean()
        bench.stopwatch.wait()
    except RuntimeError:
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1], "--tiny" in sys.argv)
