"""An executed notebook as a readable page that fetches nothing from elsewhere."""

import base64
import io
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
    """A formula as a picture: what draws formulas in JupyterLab is not at hand in a page that fetches nothing."""
    from matplotlib import rc_context
    from matplotlib.mathtext import math_to_image

    text = (found[1] or found[2]).replace("\n", " ")
    known = {r"\begin{cases}": r"\left\{\substack{", r"\end{cases}": r"}\right.", "&": r"\quad"}
    known |= {r"\ge ": r"\geq ", r"\le ": r"\leq "}  # inside \substack, matplotlib knows only the long names
    for latex, mathtext in known.items():
        text = text.replace(latex, mathtext)
    drawn = io.BytesIO()
    try:
        with rc_context({"savefig.transparent": True}):
            depth = math_to_image(f"${text}$", drawn, format="svg")
    except ValueError:  # not of the part of LaTeX that matplotlib knows
        return f"<code>{cards.escape(found[1] or found[2])}</code>"
    kind, style = ("formula", "") if found[1] else ("inline formula", f' style="vertical-align:-{depth:.0f}pt"')
    return f'<img class="{kind}"{style} alt="{cards.escape(found[1] or found[2])}" src="{data_uri(drawn)}">'


def link(path, folder):
    """A link from a page in `folder` to `path`."""
    return Path(os.path.relpath(path, folder)).as_posix()


def data_uri(svg):
    """A drawn SVG as text that an <img> can hold."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.getvalue()).decode()
