"""What the teaching words look like: small HTML cards, from the macros of templates/cards.html."""

import functools
import html
import os
import re

from labkit.ledger.shown import shown

SIGNS = {
    **dict.fromkeys(("holds", "right", "passed"), "✓"),
    **dict.fromkeys(("fails", "off", "wrong"), "✗"),
    **dict.fromkeys(("inconclusive", "close", "open"), "≈"),
    "unsolved": "…",
    "no answer": "·",
}
WORDS = {"no answer": "no answer given"}  # verdicts whose word in the ledger is too short for a card


def _on_any_theme(colour):
    """A colour that can be read on light and on dark pages: mixed with that of the text around it."""
    return f"color-mix(in srgb, {colour} 70%, var(--jp-content-font-color1, currentColor))"


GREEN, RED, AMBER, GREY, BLUE = map(_on_any_theme, ("#2e7d32", "#c62828", "#9a5b00", "#616161", "#1565c0"))
_COLOUR_OF_SIGN = {"✓": GREEN, "✗": RED, "≈": AMBER, "…": AMBER, "·": GREY}
COLOURS = {verdict: _COLOUR_OF_SIGN[sign] for verdict, sign in SIGNS.items()}


def shell():
    """The running IPython shell, or None."""
    from IPython import get_ipython

    return get_ipython()


def interactive():
    """Whether somebody may be there to click."""
    return shell() is not None and os.environ.get("LABKIT_HEADLESS") != "1"


def show(card):
    """Display an HTML card; print its text where there is no notebook."""
    from IPython.display import HTML, display

    if shell():
        display(HTML(card))
    else:
        print(plain(card))


def plain(card):
    """A card without its markup."""
    spaced = re.sub(r"</(div|p|tr|summary)>|<br>", "\n", card.replace("\n", " "))
    text = html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"</?b\b[^>]*>", "", spaced)))
    return "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())


def card(name, *values):
    """HTML of one macro of the template: "started", "asked", "revealed", "claimed", "checked", "recap", ..."""
    return getattr(_macros(), name)(*values)


@functools.cache
def _macros():
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("labkit", "templates"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(number=number, readable=readable, known=known)
    environment.globals.update(signs=SIGNS, words=WORDS, colours=COLOURS, blue=BLUE)
    return environment.get_template("cards.html").module


def box(colour, head, body):
    """A card: a coloured edge, a head and a body (both HTML)."""
    from markupsafe import Markup

    return card("plain_box", colour, Markup(head), Markup(body))


def table(columns, lines):
    """An HTML table; `lines` are lists of HTML cells."""
    from markupsafe import Markup

    return card("table", columns, [[Markup(cell) for cell in line] for line in lines])


def escape(text):
    return html.escape(str(text))


def badge(verdict, text=None):
    """A verdict with its sign, in its colour; `text` replaces the word."""
    return card("badge", verdict, text)


def evidence(row):
    """What a claim rests on: a number, an interval, or the reason there is none."""
    return card("evidence", row)


def number(value, unit=None):
    """A number with three significant digits and its unit: "1 graph", "1/122" for 0.0082 x; a dash when unknown."""
    if not known(value):
        return "–"
    value, unit = float(value), unit or ""
    first, _, rest = unit.partition(" ")
    if first == "x" and 0 < abs(value) < 0.1:
        return f"{'-' if value < 0 else ''}1/{shown(abs(1 / value), None)} {rest}".strip()
    if value == 1 and len(first) > 2:
        unit = f"{first.removesuffix('s')} {rest}"
    return f"{shown(value, None)} {unit}".strip()


def readable(text, unit=None):
    """An option as it is, a number with its unit, a dash for nothing."""
    try:
        return number(text, unit)
    except ValueError:
        return text


def known(value):
    """Whether a field of a row, from the ledger or from pandas, holds something."""
    return value is not None and value == value
