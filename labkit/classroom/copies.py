"""The student's own copies of the lessons, in `my-lessons/`.

Git ignores the folder, so an update of the course cannot change a student's work.
`my-lessons/.copied.json` holds the digest that each lesson had when it was copied. A copy with
another digest was edited by the student. It is overwritten only when the student asks for it
(`reset`), and then saved to `my-lessons/old/`. Outputs do not count: a copy that was only run is
renewed.
"""

import itertools
import json
import shutil
from pathlib import Path

from labkit import files
from labkit.errors import LabError
from labkit.files import draft, my_lessons, notebooks, write_text
from labkit.lesson.mine import network_file
from labkit.notebook import cells_digest, has_outputs

# for the AI tools that help a student
GUIDE = Path(__file__).parent.parent / "templates" / "AGENTS.md"


def renew() -> list[str]:
    """Copy the missing lessons, and renew outdated copies that the student has not edited.

    Returns a list of messages, one for each of these lessons: a lesson that was renewed; a lesson
    that the course has changed, whose copy stays because the student has edited it; a lesson that
    the course no longer has, whose copy was saved to `old/`.
    """
    originals = notebooks()
    messages = [_renew(original) for original in originals]
    network_file()
    _renew(GUIDE)  # says nothing: it is no lesson
    names = {original.name for original in originals}
    for name in sorted(_digests()):
        if name.endswith(".ipynb") and name not in names:
            messages.append(_take_out(my_lessons() / name))
    return [message for message in messages if message]


def reset(original: Path) -> Path | None:
    """Replace the copy of a lesson by a fresh one, and save the student's old copy to `old/`.

    original  path of the lesson in the course
    returns   path of the saved copy; None where the student had neither edited nor run the copy
    """
    copy = my_lessons() / original.name
    # the fresh copy is written before the old one is replaced: a full disk then destroys nothing
    with draft(copy) as fresh:
        shutil.copyfile(original, fresh)
        old_copy = _put_away(copy)
    _remember(original)
    return old_copy


def _renew(original):
    """Copy one file of the course if its copy is missing, or renew the copy if it is outdated.

    Returns a message for the student where the course has changed the file. Otherwise returns None.
    """
    copy = my_lessons() / original.name
    if not copy.exists():
        files.copy(original, copy)
        _remember(original)
        return None

    course_digest = _digest(original)
    copied_digest = _digests().get(original.name)
    copy_digest = _digest(copy)
    if course_digest == copied_digest:
        return None
    if course_digest == copy_digest:  # an earlier call was stopped between the copy and its digest
        _remember(original)
        return None
    if copy_digest == copied_digest:
        return (
            f"{copy.stem}: renewed, the course has changed it.{_where_old_copy_is(reset(original))}"
        )
    return (
        f"{copy.stem}: the course has changed this lesson. You have changed your "
        "copy, so it stays; "
        f"`labkit reset {copy.stem[:2]}` gives the new one and keeps yours."
    )


def _take_out(copy):
    """Remove the copy of a lesson that the course no longer has; save an edited copy to `old/`.

    Returns a message for the student that names the saved copy, or None where none was saved.
    """
    old_copy = _put_away(copy)
    copy.unlink(missing_ok=True)
    _write_digests({name: digest for name, digest in _digests().items() if name != copy.name})
    return (
        f"{copy.stem}: no longer in the course.{_where_old_copy_is(old_copy)}" if old_copy else None
    )


def _put_away(copy):
    """Save a copy to `old/`, if the student has edited or run it.

    Returns the path in `old/`, or None where nothing was saved.
    """
    if not copy.exists() or _is_as_copied(copy):
        return None
    for number in itertools.count(1):
        old_copy = copy.parent / "old" / f"{copy.stem}-{number}.ipynb"
        if not old_copy.exists():
            break
    files.copy(copy, old_copy)
    return old_copy


def _is_as_copied(copy):
    """Return whether a copy has neither edits nor outputs."""
    if _digest(copy) != _digests().get(copy.name):
        return False
    return copy.suffix != ".ipynb" or not has_outputs(copy)


def _where_old_copy_is(old_copy):
    """Return a sentence that names the path of the student's saved copy.

    Returns "" where `old_copy` is None.
    """
    if old_copy is None:
        return ""
    return f" Yours, with its outputs, is {old_copy.relative_to(my_lessons().parent).as_posix()}."


def _digest(path):
    """Return the digest of a notebook's cells, or of the whole file where it is no notebook."""
    if path.suffix == ".ipynb":
        try:
            return cells_digest(path)
        except LabError:  # the student has broken the file: it counts as edited
            pass
    return files.sha256(path)


def _digests():
    """Return {file name: digest of the original when it was copied}."""
    path = my_lessons() / ".copied.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _remember(original):
    """Store the digest of an original that has just been copied."""
    _write_digests(_digests() | {original.name: _digest(original)})


def _write_digests(digests):
    write_text(my_lessons() / ".copied.json", json.dumps(digests, indent=1))
