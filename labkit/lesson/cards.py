"""Draw the cards of a lesson: small pieces of HTML, made by the macros of templates/cards.html."""

import functools
import os
import re
from html import escape, unescape

from labkit.format import shown


def shell():
    """Return the running IPython shell, or None."""
    from IPython import get_ipython

    return get_ipython()


def interactive():
    """Return whether a reader can click here: in a notebook, and not in a run of the runner."""
    return shell() is not None and os.environ.get("LABKIT_HEADLESS") != "1"


def show(name, *values):
    """Display a card in a notebook; elsewhere print its text.

    name    name of a macro of templates/cards.html, such as "claimed"
    values  arguments of the macro
    """
    from IPython.display import display

    page = card(name, *values)
    if shell():
        display({"text/html": page, "text/plain": plain(page)}, raw=True)
    else:
        print(plain(page))


def card(name, *values):
    """Return the HTML of a card.

    name    name of a macro of templates/cards.html, such as "claimed"
    values  arguments of the macro
    """
    return getattr(macros(), name)(*values)


def plain(card):
    """Return the text of a card, without its markup."""
    inline = re.sub(r"<style>.*?</style>|</?(b|code)\b[^>]*>", "", card.replace("\n", " "))
    spaced = re.sub(r"</(div|p|tr|summary)>", "\n", inline)
    text = unescape(re.sub(r"<[^>]+>", " ", spaced))
    return "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())


def template(name):
    """Return a jinja2 template of labkit/templates; it escapes the values that are filled in.

    A value that is marked as HTML is not escaped.
    """
    return _environment().get_template(name)


@functools.cache
def _environment():
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("labkit", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, readable=readable, span=span, code=_code, shown=shown)
    return environment


def macros():
    """Return the jinja2 module of templates/cards.html.

    Its attributes are the macros that make cards, and the colours that they use.
    """
    return template("cards.html").module


def number(value, unit=None):
    """Return a number as text, with three significant digits and its unit; "–" if it is unknown.

    The number 1 gets the singular: "1 graph". A number below 0.1 with the unit "x" becomes a
    fraction: "1/122" for 0.0082.

    unit  such as "graphs" or "x as fast"
    """
    if value is None or value != value:
        return "–"
    value = float(value) + 0.0  # -0.0 becomes 0.0
    first_word, _, further_words = (unit or "").partition(" ")
    if first_word == "x" and 0 < value < 0.1:
        return f"1/{shown(1 / value, None)} {further_words}".strip()
    if value == 1 and len(first_word) > 2:
        first_word = first_word.removesuffix("s")
    return f"{shown(value, None)} {first_word} {further_words}".strip()


def span(row):
    """Return both ends of a row's interval as text, such as "1.031 to 1.034".

    The ends are rounded to 3 to 6 digits. More digits are used if the rounded ends would be equal,
    or if rounding would make an end equal to a number in the row's sentence: in a claim "at least
    1.1", an end of 1.098 is not rounded to 1.10.
    """
    ends = float(row.low) + 0.0, float(row.high) + 0.0  # -0.0 becomes 0.0
    bounds = set(map(float, re.findall(r"\d+(?:\.\d+)?", getattr(row, "sentence", ""))))
    for digits in range(3, 7):
        low, high = (shown(end, None, digits=digits) for end in ends)
        rounded = {float(f"{end:.{digits}g}") for end in ends}
        if low != high and not (rounded - set(ends)) & bounds:
            break
    only_one_has_decimals = ("." in low) != ("." in high)
    if only_one_has_decimals and "0" not in (low, high) and "e" not in low + high:  # 0.998 to 1.000
        decimals = max(len(end.partition(".")[2]) for end in (low, high))
        low, high = (f"{end:,.{decimals}f}" for end in ends)
    return f"{low} to {high}"


def readable(text, unit=None):
    """Return an option unchanged, and a number with its unit as `number` does; "–" for None."""
    try:
        return number(text, unit)
    except ValueError:
        return text


def _code(text):
    """Return a text as HTML, in which words between backticks are shown as code."""
    from markupsafe import Markup

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))
