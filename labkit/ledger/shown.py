"""How measured values look: a number with its unit, a row as a line or a small table."""

import math
from html import escape

PREFIXES = {-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T"}


class Shown:
    """Gives a measured row a face: `facts()` is a list of (label, text), shown as text and as a small table."""

    def summary(self):
        """One line for people."""
        return " · ".join(f"{label} {text}" for label, text in self.facts())

    def _repr_html_(self):
        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(label)}</th><td style='text-align:left'>{escape(text)}</td></tr>"
            for label, text in self.facts()
        )
        return f"<table>{cells}</table>"


def shown(value, unit="", *, digits=3):
    """A value with its unit and an SI prefix, such as "1.23 ms"; "unknown" for None."""
    if value is None:
        return "unknown"
    if value == 0:
        return f"0 {unit}".strip()
    step = min(max(math.floor(math.log10(abs(value)) / 3), -3), 4)
    number = value / 1000.0**step
    text = f"{number:.0f}" if abs(number) >= 100 else f"{number:.{digits}g}"
    return f"{text} {PREFIXES[step]}{unit}".strip()
