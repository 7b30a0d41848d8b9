"""Measurements for a GPU machine on which nothing is installed but PyTorch: `python -m labkit.gpu`.

The measurements need torch, NumPy and the standard library. A list of items (`items`) says what is
measured. A worker process (`worker`) measures one item after the other. The process of the user
(`watch`) imports no torch; it ends an item that takes too long, and starts another worker for the
rest. Every row is on disk before the next one is measured (`journal`). At the end all rows become
one record (`record`).
"""

from labkit.gpu.items import ITEMS, chosen  # noqa: F401
from labkit.gpu.watch import MINUTES, measure  # noqa: F401
