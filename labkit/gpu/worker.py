"""The worker process: it reads names of items from its standard input, and measures them.

It writes the rows to the journal.
"""

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
    """Write the properties of this machine to the journal, then measure each item that arrives.

    The process ends with its standard input.

    path  path of the journal
    tiny  True: sizes that a CPU can compute
    """
    # TF32 stays as torch has it: off for matrix products, on for convolutions
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
    """Put the lines of the standard input into the queue `orders`. End this process with the input.

    A line is JSON: {"item": name, "seconds": time limit, "last": arms to measure last}. The input
    ends when the process that started this one ends, even if it was killed. Then this process ends
    at once, also in the middle of a measurement.

    The input is read without a buffer. The processes that load data are forks of this one, and with
    a buffer they might wait for ever for its lock.
    """
    with open(os.dup(0), "rb", buffering=0) as lines:  # noqa: PTH123 (a descriptor, not a path)
        for line in lines:
            orders.put(json.loads(line))
    os._exit(1)


def do(bench):
    """Measure one item, and write to the journal that it is done.

    If the item raises an error, that line has the reason.

    bench  the `Bench` of the item
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
    """Return True if the GPU still works.

    After an illegal memory access, for example, every later call of this process fails.
    """
    try:
        bench.clean()
        bench.stopwatch.wait()
    except RuntimeError:
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1], "--tiny" in sys.argv)
