"""The ledger: `add`, `find`, `load` and `export` the measured rows of this machine; `recorded` has
those of others.

One SQLite file under artifacts/. A row is durable when `add` returns: WAL with synchronous=FULL
survives a kill of the writer. Several notebooks may write at once; each waits its turn.
"""

from labkit.ledger._record import completed, record  # noqa: F401
from labkit.ledger._recorded import on_record, recorded, recorded_rows  # noqa: F401
from labkit.ledger._store import add, export, find, load, now, tables  # noqa: F401
from labkit.ledger.slugs import slug  # noqa: F401
