"""The journal: a file with one JSON object per line, to which measured rows are appended.

`append` returns only when its line is on disk, so that an interruption loses no row.
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

NAME = "gpu-rows.jsonl"


def now() -> str:
    """Return the present time in UTC as a text, in ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


class Journal:
    """A file of JSON objects, one per line, to which several processes append.

    path  path of the file; its folder is made
    """

    def __init__(self, path: Path):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def append(self, **line):
        """Write a line and wait until it is on disk.

        A process that is killed while it writes leaves an incomplete line. The next line then
        begins after a line break.
        """
        text = (json.dumps(line, allow_nan=False) + "\n").encode()
        with self.path.open("ab+") as file:
            if file.tell() and self._last_byte(file) != b"\n":
                text = b"\n" + text
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def lines(self):
        """Return all lines as dictionaries, oldest first; incomplete lines are left out."""
        lines, _ = self.lines_from(0)
        return lines

    def lines_from(self, offset):
        """Read the lines that begin at byte `offset` or after it.

        Returns (list of the complete lines as dictionaries, offset of the byte behind them). A next
        call with this offset returns the lines that have been written since.
        """
        if not self.path.exists():
            return [], offset
        with self.path.open("rb") as file:
            file.seek(offset)
            text = file.read()
        complete = text[: text.rfind(b"\n") + 1]
        lines = list(filter(None, map(_parsed, complete.splitlines())))
        return lines, offset + len(complete)

    @staticmethod
    def _last_byte(file):
        file.seek(-1, os.SEEK_END)
        return file.read(1)


def _parsed(line):
    """Return a line as a dictionary; None for an incomplete line."""
    try:
        parsed = json.loads(line)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None
