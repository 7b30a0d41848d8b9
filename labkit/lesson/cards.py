"""Draw the small HTML cards that a lesson shows, from the macros of templates/cards.html."""

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
    """Return whether a reader may click: in a notebook that no runner executes."""
    return shell() is not None and os.environ.get("LABKIT_HEADLESS") != "1"


def show(name, *values):
    """Display a card in a notebook; elsewhere print its text.

    name    the macro of templates/cards.html, such as "claimed"
    values  its arguments
    """
    from IPython.display import display

    page = card(name, *values)
    if shell():
        display({"text/html": page, "text/plain": plain(page)}, raw=True)
    else:
        print(plain(page))


def card(name, *values):
    """Return the HTML of a card, made by the macro `name`, such as "started" or "claimed"."""
    return getattr(macros(), name)(*values)


def plain(card):
    """Return the text of a card, without its markup."""
    inline = re.sub(r"<style>.*?</style>|</?(b|code)\b[^>]*>", "", card.replace("\n", " "))
    spaced = re.sub(r"</(div|p|tr|summary)>", "\n", inline)
    text = unescape(re.sub(r"<[^>]+>", " ", spaced))
    return "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())


def template(name):
    """Return a template of labkit/templates, which escapes the values that it is given.

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
    """Return an object with the card macros as attributes, and the colours that they use."""
    return template("cards.html").module


def number(value, unit=None):
    """Return a number with three significant digits and its unit, as text; a dash if it is unknown.

    unit  such as "graphs" or "x as fast". For the number 1 the first word loses its plural s: "1
          graph". Below 0.1 x the number is a fraction: "1/122" for 0.0082 x
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

    The ends get 3 to 6 digits: as many as tell them apart from each other, and from the numbers in
    a claim's sentence. Beside "at least 1.1", 1.098 is not shown as 1.1.
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
    """Return an option unchanged, a number with its unit, and a dash for None."""
    try:
        return number(text, unit)
    except ValueError:
        return text


def _code(text):
    """Return a sentence of a lesson as HTML, with the text between backticks as code."""
    from markupsafe import Markup

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))
