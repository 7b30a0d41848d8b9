"""The reader's own copies of the lessons, in `my-lessons/`: git ignores them, so an update never meets a reader's work.

`my-lessons/.base/` holds each lesson as it was copied. A copy whose cells are the same is not changed, whatever its
outputs are.
"""

import difflib
import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

from labkit.files import atomic, notebooks, root, write_text

CONTEXT = 8  # lines around a change: most cells are shown whole


def folder() -> Path:
    """Where the copies lie; `LABKIT_MY_LESSONS` moves them."""
    return Path(os.environ.get("LABKIT_MY_LESSONS") or root() / "my-lessons").absolute()


def renew() -> Any:
    """Copy what is missing, and renew what the course has changed and the reader has not.

    returns  what to tell the reader: a line per lesson that was renewed, kept although the course changed, or taken out
    """
    told = [_renew(original) for original in notebooks()]
    _renew_guide(Path(__file__).parent.parent / "templates" / "AGENTS.md")
    names = {original.name for original in notebooks()}
    for base in sorted((folder() / ".base").glob("*.ipynb")):
        if base.name not in names:
            told.append(_take_out(base))
    return [line for line in told if line]


def reset(original: Path) -> Path | None:
    """Put a fresh copy of a lesson in place; returns where the old one is kept, None where nothing was to be kept."""
    kept = _put_away(folder() / original.name)
    _copy(original)
    return kept


def _renew(original):
    """Bring one copy up to date; returns the line for the reader, None where nothing happened to a copy."""
    copy, base = folder() / original.name, _base(original.name)
    if not copy.exists():
        return _copy(original)
    new, mine = _text(original), _text(copy)
    before = _text(base) if base.exists() else None
    if new == before:
        return None
    if new == mine:  # the last call was cut short
        return _write(original, base)
    if mine == before:
        kept = reset(original)
        return f"{copy.stem}: renewed, the course has changed it.{_where(kept)}"
    changes = folder() / "changes" / f"{copy.stem}.diff"
    write_text(changes, _difference(mine if before is None else before, new))
    again = f"`labkit reset {copy.stem[:2]}` takes the new one and keeps yours."
    return f"{copy.stem}: you have changed it, so it stays. What is new: {_short(changes)}; {again}"


def _renew_guide(original):
    """The page for the tools that help a student; one that the reader has changed stays as it is."""
    copy, base = folder() / original.name, _base(original.name)
    if not copy.exists() or (base.exists() and copy.read_bytes() == base.read_bytes() != original.read_bytes()):
        _copy(original)


def _copy(original):
    """The copy first: a call that is cut short here leaves nothing that looks changed by the reader."""
    _write(original, folder() / original.name)
    _write(original, _base(original.name))
    (folder() / "changes" / f"{original.stem}.diff").unlink(missing_ok=True)


def _write(source, target):
    with atomic(target) as temporary:
        shutil.copyfile(source, temporary)


def _where(kept):
    return f" Yours, with its outputs, is {_short(kept)}." if kept else ""


def _short(path):
    return path.relative_to(folder().parent).as_posix()


def _take_out(base):
    """Put away the copy of a lesson that the course no longer has."""
    copy = folder() / base.name
    kept = _put_away(copy)
    copy.unlink(missing_ok=True)
    base.unlink()
    return f"{base.stem}: no longer in the course.{_where(kept)}" if kept else None


def _put_away(copy):
    """Move a copy into `old/`; returns where it is then, None for one that is as the course made it."""
    base = _base(copy.name)
    if not copy.exists() or (base.exists() and base.read_bytes() == copy.read_bytes()):
        return None
    places = (copy.parent / "old" / f"{copy.stem}-{number}.ipynb" for number in itertools.count(1))
    kept = next(place for place in places if not place.exists())
    kept.parent.mkdir(exist_ok=True)
    return copy.rename(kept)


def _base(name):
    return folder() / ".base" / name


def _text(path):
    """The cells of a notebook without outputs: what a reader changes. A file that is no notebook, as it is."""
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        cells = json.loads(text)["cells"]
        return "\n".join(f"# ---- {cell['cell_type']} cell\n{''.join(cell['source'])}\n" for cell in cells)
    except (ValueError, KeyError, TypeError):
        return text


def _difference(old, new):
    lines = difflib.unified_diff(
        old.splitlines(),
        new.splitlines(),
        "the lesson as it was copied",
        "the lesson in the course now",
        n=CONTEXT,
        lineterm="",
    )
    return "\n".join(lines) + "\n"
