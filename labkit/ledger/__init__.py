"""Store the measured rows of this machine (`add`, `find`, `load`, `export`) and read recorded ones.

The ledger is one SQLite file under artifacts/. A row is on the disk when `add` returns: SQLite's
write-ahead log (WAL) with synchronous=FULL keeps the row even if the writer is killed. Several
notebooks may write at once; each waits its turn. `recorded` reads the rows that were measured on
other, named hardware.
"""

from labkit.ledger._store import add, export, find, load, now, tables  # noqa: F401
from labkit.on_demand import offered

# imported when it is first asked for: whoever measures needs none of it
_OFFERED = {
    "_record": ("completed", "record"),
    "_recorded": ("on_record", "recorded", "recorded_rows"),
    "slugs": ("slug",),
}


def __getattr__(name):
    """Import the module that defines a name of `_OFFERED`, when the name is first used."""
    return offered(__name__, _OFFERED, name)
