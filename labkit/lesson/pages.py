"""An executed notebook as a readable page that fetches nothing from elsewhere."""

import os
import re
import textwrap
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context

from labkit.device import usable_cores
from labkit.files import artifacts, write_text
from labkit.lesson import cards

LONGEST = 250  # characters of a picture's message: more is tiring to be read aloud
ELSEWHERE = ("#", "**Exercise", "**Try next", "**Later")  # how a text begins that speaks of other things


def beside(sources):
    """{source: the readable page beside it} of executed notebooks; pages older than their notebook are made anew."""
    pages = {source: source.with_suffix(".html") for source in sources}
    old = [source for source, page in pages.items() if not page.exists() or _changed(page) < _changed(source)]
    if len(old) < 2:
        list(map(_write, old))
    else:  # a page takes a second or two
        with ProcessPoolExecutor(min(len(old), usable_cores()), mp_context=get_context("spawn")) as pool:
            list(pool.map(_write, old))
    return pages


def name_pictures(cells):
    """Put the message of each picture, which the text below it begins with, before its words."""
    for place, cell in enumerate(cells):
        said = [output.get("metadata", {}).get("image/png", {}) for output in cell.get("outputs", [])]
        message = _message(cells[place + 1 :])
        for words in filter(None, said):
            if message and not words["alt"].startswith(message):
                words["alt"] = f"{message} {words['alt']}"


def _message(cells):
    """The first sentences of the next text, without questions and what leads on to code below; "" where none is near.

    A heading, an exercise, the end of the lesson or another picture may come first: that text is not about this one.
    """
    below = next((cell for cell in cells if cell.cell_type == "markdown" or _has_picture(cell)), None)
    if below is None or below.cell_type == "code" or below.source.startswith(ELSEWHERE):
        return ""
    plain = re.sub(r"\[([^]]+)\]\([^)]*\)|[*`$]", r"\1", below.source.split("\n\n")[0])
    sentences = [each for each in re.split(r"(?<=[.!?])\s+", plain) if not each.endswith(("?", ":"))]
    return textwrap.shorten(" ".join(sentences), LONGEST, placeholder=" …")


def _has_picture(cell):
    return any("image/png" in output.get("data", {}) for output in cell.get("outputs", []))


def _changed(path):
    return path.stat().st_mtime


def _write(path):
    """Write an executed notebook as one HTML page; nbconvert's own full page would fetch scripts from the web."""
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"\$\$(.+?)\$\$|\$([^$\n]+)\$", _formula, cell.source, flags=re.DOTALL)
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.metadata.setdefault("image/png", {}).setdefault("alt", "The text below says what to see here.")
    body, _ = _exporter().from_notebook_node(notebook)
    report = os.path.relpath(artifacts() / "report.html", path.parent)
    filled = cards.template("notebook.html").render(title=path.stem, body=body, report=report)
    write_text(path.with_suffix(".html"), filled)


@cache
def _exporter():
    from nbconvert import HTMLExporter

    # Its templates clean the code that they have just coloured, which takes a third of the time and changes nothing.
    return HTMLExporter(template_name="basic", filters={"clean_html": lambda page: page})


def _formula(found):
    """A formula as MathML, which browsers draw themselves; what is no LaTeX stays as it is typed."""
    from latex2mathml.converter import convert

    try:
        return convert(found[1] or found[2], display="block" if found[1] else "inline")
    except Exception:  # it raises half a dozen kinds of its own
        return f"<code>{cards.escape(found[1] or found[2])}</code>"
