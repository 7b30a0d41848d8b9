"""Turn executed notebooks into readable HTML pages that fetch nothing from the web."""

import os
import re
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context

from labkit.device import usable_cores
from labkit.files import artifacts, write_text
from labkit.lesson import cards
from labkit.notebook import read_notebook


def readable_pages(notebooks):
    """Write each executed notebook as an HTML page beside it, unless that page is up to date.

    notebooks  paths of executed notebooks
    returns    {path of a notebook: path of its page}
    """
    pages = {notebook: notebook.with_suffix(".html") for notebook in notebooks}
    outdated = []
    for notebook, page in pages.items():
        if not page.exists() or _changed_at(page) < _changed_at(notebook):
            outdated.append(notebook)
    if len(outdated) < 2:
        for notebook in outdated:
            _write(notebook)
    else:  # in parallel, for a page takes a second or two
        workers = min(len(outdated), usable_cores())
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            list(pool.map(_write, outdated))
    return pages


def _changed_at(path):
    """Return the time of the last change of a file, in seconds."""
    return path.stat().st_mtime


def _write(path):
    """Write an executed notebook as one HTML page that fetches nothing.

    nbconvert writes the body of the page. Its complete page is not used, because that fetches
    scripts.
    """
    notebook = read_notebook(path)
    # Draw the formulas, hide the cells that are hidden in JupyterLab, and describe the pictures.
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(
                r"\$\$(.+?)\$\$|\$([^$\n]+)\$", _formula, cell.source, flags=re.DOTALL
            )
        # such as the answers of check_yourself
        if cell.metadata.get("jupyter", {}).get("source_hidden"):
            cell.metadata["transient"] = {"remove_source": True}
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.metadata.setdefault("image/png", {}).setdefault(
                    "alt", "The text below says what to see here."
                )
    body, _ = _exporter().from_notebook_node(notebook)
    report = os.path.relpath(artifacts() / "report.html", path.parent)
    page = cards.template("notebook.html").render(title=path.stem, body=body, report=report)
    write_text(path.with_suffix(".html"), page)


@cache
def _exporter():
    from nbconvert import HTMLExporter

    return HTMLExporter(template_name="basic")


def _formula(match):
    """Return a formula as MathML, which browsers draw themselves; if it is no LaTeX, as HTML code.

    match  match of the regular expression in `_write`: "$$formula$$" or "$formula$"
    """
    from latex2mathml.converter import convert

    formula = match[1] or match[2]
    display = "block" if match[1] else "inline"
    try:
        return convert(formula, display=display)
    except Exception:  # it raises half a dozen kinds of its own
        return f"<code>{cards.escape(formula)}</code>"
