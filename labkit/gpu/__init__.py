"""Measurements for a GPU machine where nothing is installed but PyTorch: `python -m labkit.gpu`.

They take torch, NumPy and the standard library. A worker process (`worker`) measures one item after
the other; this process (`watch`) imports no torch, ends an item that takes too long, and starts
another worker for the rest. Every row is on disk before the next one is measured (`journal`); in
the end all rows become one record (`record`).
"""

from labkit.gpu.items import ITEMS, chosen  # noqa: F401
from labkit.gpu.watch import MINUTES, measure  # noqa: F401
