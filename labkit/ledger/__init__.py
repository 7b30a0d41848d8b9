"""The ledger: `add`, `find`, `load` and `export` the measured rows of this machine; `recorded` has
those of others.

One SQLite file under artifacts/. A row is durable when `add` returns: WAL with synchronous=FULL
survives a kill of the writer. Several notebooks may write at once; each waits its turn.
"""

import importlib

from labkit.ledger._store import add, export, find, load, now, tables  # noqa: F401

# imported when it is first asked for: whoever measures needs none of it
_OFFERED = {
    "_record": ("completed", "record"),
    "_recorded": ("on_record", "recorded", "recorded_rows"),
    "slugs": ("slug",),
}


def __getattr__(name):
    for module, names in _OFFERED.items():
        if name in names:
            return getattr(importlib.import_module(f"labkit.ledger.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
