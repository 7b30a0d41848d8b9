"""Measurements for a GPU machine on which only PyTorch is installed: `python -m labkit.gpu`.

The measurements need torch, NumPy and the standard library. An item is one piece of work, such as
training a network in four variants; `items` lists all of them. Two processes share the work. The
worker process (`worker`) measures one item after another. The process that the user starts
(`watch`) imports no torch. It ends the worker if an item takes too long, and starts another worker
for the rest. Every row of a table is written to a file, the journal (`journal`), before the next
one is measured. At the end all rows are turned into one record (`record`), a file that the ledger
reads.
"""

from labkit.gpu.items import ITEMS, chosen  # noqa: F401
from labkit.gpu.watch import MINUTES, measure  # noqa: F401
