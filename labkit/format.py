"""Write measured values for people: a number with its unit, a row as a line or a small table."""

import math
from html import escape

PREFIXES = {-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T"}
# units that take such a prefix; "": the caller adds the unit
PREFIXED = ("", "s", "B", "op/s", "B/s")


class Shown:
    """Base class of rows that are shown to people, as a line of text or as a small HTML table.

    A subclass defines `facts()`, which returns a list of (label, text).
    """

    def summary(self):
        """Return all facts of the row as one line of text."""
        return " · ".join(f"{label} {text}" for label, text in self.facts())

    def _repr_html_(self):
        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(label)}</th><td "
            f"style='text-align:left'>{escape(text)}</td></tr>"
            for label, text in self.facts()
        )
        return f"<table>{cells}</table>"


def shown(value: float | None, unit: str = "", *, digits: int = 3) -> str:
    """Return a number with its unit as text: "1.23 ms", "44.7 MB", "2.16 x", "12,346 images".

    value   the number; None and NaN become "unknown"
    unit    a unit of `PREFIXED`, such as "s" or "B", gets an SI prefix: the value is given in this
            unit without a prefix. Any other unit is written as it is; write its plural yourself.
            None: no unit and no prefix. Only seconds get prefixes for values below 1, such as "m"
    digits  significant digits. Digits before the decimal point are never cut, so counts stay whole
    """
    if value is None or value != value:
        return "unknown"
    prefix = ""
    if unit in PREFIXED and value and math.isfinite(value):
        # after rounding: 999.9 ms is 1 s
        exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
        # nobody says kiloseconds
        least, most = (min(PREFIXES), 0) if unit == "s" else (0, max(PREFIXES))
        step = min(max(exponent // 3, least), most)
        value, prefix = value / 1000.0**step, PREFIXES[step]
    number = f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"
    return f"{number} {prefix}{unit or ''}".strip()
