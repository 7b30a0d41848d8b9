"""An executed notebook as a readable page that fetches nothing from elsewhere."""

import base64
import os
import re
from pathlib import Path

from labkit.files import artifacts, write_text
from labkit.lesson import cards


def beside(source):
    """The readable page beside an executed notebook, made anew when the notebook is newer."""
    page = source.with_suffix(".html")
    if not page.exists() or page.stat().st_mtime < source.stat().st_mtime:
        write_text(page, _page(source))
    return page


def _page(path):
    """An executed notebook as one HTML page; nbconvert's own full page would fetch scripts from the web."""
    import nbformat
    from nbconvert import HTMLExporter

    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"\$\$(.+?)\$\$|\$([^$\n]+)\$", _formula, cell.source, flags=re.DOTALL)
    body, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    report = link(artifacts() / "report.html", path.parent)
    return cards.template("notebook.html").render(title=path.stem, body=body, report=report)


def _formula(found):
    """A formula as MathML, which browsers draw themselves; what is no LaTeX stays as it is typed."""
    from latex2mathml.converter import convert

    try:
        return convert(found[1] or found[2], display="block" if found[1] else "inline")
    except Exception:  # it raises half a dozen kinds of its own
        return f"<code>{cards.escape(found[1] or found[2])}</code>"


def link(path, folder):
    """A link from a page in `folder` to `path`."""
    return Path(os.path.relpath(path, folder)).as_posix()


def data_uri(svg):
    """A drawn SVG as text that an <img> can hold."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.getvalue()).decode()
