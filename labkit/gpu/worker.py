"""The process that measures: it takes items from its standard input, one a line, and writes rows
into the journal.
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
    """Say which machine this is, then do the items that come, until the input ends.

    path  of the journal
    tiny  True for sizes that a CPU can do
    """
    # not enabled on purpose: fp32 means fp32 here
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
    """Pass the lines of the standard input on; leave at once when it ends, whatever is being
    measured.

    It ends with the process at its other end, also where that was killed. It is read without a
    buffer: the processes that load data are forks of this one, and would wait for ever for the lock
    of a buffer.
    """
    with open(os.dup(0), "rb", buffering=0) as lines:  # noqa: PTH123 (a descriptor, not a path)
        for line in lines:
            orders.put(json.loads(line))
    os._exit(1)


def do(bench):
    """Measure one item; an error that the item itself did not catch becomes a row.

    Then say that it is done.
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
    """Return True unless the GPU refuses everything from now on, as it does after an illegal
    access to memory.
    """
    try:
        bench.clean()
        bench.stopwatch.wait()
    except RuntimeError:
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1], "--tiny" in sys.argv)
