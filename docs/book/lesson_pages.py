"""The additions of this book to Sphinx, so that any browser shows a lesson, without the network and
without JavaScript.

A formula becomes MathML, which browsers draw themselves. Above each lesson stands which run it
shows. A picture that brings no words of its own is named after its section. netron's drawing, a
page of its own in artifacts/graphs, comes into the book as a frame.
"""

import base64
import hashlib
import re
import shutil
from html import escape
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert

from labkit.notebook import read_notebook

# How an executed notebook names netron's drawing: see labkit.lesson.netron_view.
_DRAWING = re.compile(r'<a href="(?:\.\./)*(graphs/\w+\.html)">(.*?)</a>')


def setup(app):
    # {page: (text, code, text, code, ...) on its run}
    app.add_config_value("lesson_notes", {}, "env")
    app.add_config_value("drawings", "", "env")  # the folder that holds graphs/
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_inline, None), block_renderers=(_block, None)
    )
    app.connect("doctree-read", _adapt)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(translator, node):
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(translator, node):
    drawn = convert(node.astext(), display="block")
    translator.body.append(
        f'<div class="math" tabindex="0" role="group" aria-label="formula">{drawn}</div>'
    )
    raise nodes.SkipNode


def _adapt(app, doctree):
    _say_which_run(doctree, app.config.lesson_notes.get(app.env.docname))
    words = _words_of_pictures(Path(app.env.doc2path(app.env.docname)))
    for image in doctree.findall(nodes.image):
        unnamed = f"Picture in the section “{_section(image)}”; the text below it says what to see"
        image["alt"] = words.get(Path(image["uri"]).stem) or unnamed
    for raw in list(doctree.findall(nodes.raw)):
        found = _DRAWING.search(raw.astext())
        if found:
            raw.parent.replace(raw, nodes.raw("", _frame(app, found), format="html"))


def _words_of_pictures(page):
    """{name of the file that MyST-NB writes: what the picture says in words} of an executed
    notebook.
    """
    found = {}
    cells = read_notebook(page).cells if page.suffix == ".ipynb" else []
    for output in (output for cell in cells for output in cell.get("outputs", [])):
        if "image/png" in output.get("data", {}):
            name = hashlib.sha256(base64.b64decode(output.data["image/png"])).hexdigest()
            found[name] = output.metadata.get("image/png", {}).get("alt")
    return found


def _say_which_run(doctree, note):
    if note:
        title = next(doctree.findall(nodes.title))
        words = [
            nodes.literal("", part) if place % 2 else nodes.Text(part)
            for place, part in enumerate(note)
        ]
        title.parent.insert(
            title.parent.index(title) + 1, nodes.paragraph("", "", *words, classes=["of-run"])
        )


def _section(node):
    while node is not None and not isinstance(node, nodes.section):
        node = node.parent
    return node.next_node(nodes.title).astext() if node else ""


def _frame(app, found):
    """netron's drawing in a frame that may run its scripts and reach nothing; its file comes
    into the book.
    """
    place, title = found.groups()
    target = Path(app.outdir) / place
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(app.config.drawings) / place, target)
    up = "../" * app.env.docname.count("/")
    return (
        f'<iframe class="drawing" src="{up}{place}" title="{escape(title)}" loading="lazy" '
        'sandbox="allow-scripts allow-downloads"></iframe><p class="stand-in">netron draws this '
        "with JavaScript; the "
        f'table above says what the file holds. <a href="{up}{place}">The drawing on a page of '
        "its own</a></p>"
    )
