"""How measured values look: a number with its unit, a row as a line or a small table."""

import math
from html import escape

PREFIXES = {-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T"}
# units that take such a prefix; "": the caller adds the unit
PREFIXED = ("", "s", "B", "op/s", "B/s")


class Shown:
    """Gives a measured row a face: `facts()` is a list of (label, text), shown as text and as a
    small table.
    """

    def summary(self):
        """One line for people."""
        return " · ".join(f"{label} {text}" for label, text in self.facts())

    def _repr_html_(self):
        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(label)}</th><td "
            f"style='text-align:left'>{escape(text)}</td></tr>"
            for label, text in self.facts()
        )
        return f"<table>{cells}</table>"


def shown(value: float | None, unit: str = "", *, digits: int = 3) -> str:
    """A number for people, with its unit: "1.23 ms", "44.7 MB", "2.16 x", "12,346 images";
    "unknown" for None and NaN.

    unit    one of `PREFIXED` goes with an SI prefix, any other (and None, for none) with the number
            as it is; the plural is up to the caller. A count takes no prefix below 1: 0.9 per
            second, not 900 m
    digits  significant ones; what stands before the decimal point is never cut, so counts stay
            whole
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
