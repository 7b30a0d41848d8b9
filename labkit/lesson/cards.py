"""What the teaching words look like: small HTML cards.

Colours follow JupyterLab's theme where there is one and fall back to plain values in saved pages.
"""

import html
import os

COLOURS = {
    **dict.fromkeys(("holds", "right", "passed"), "#2e7d32"),
    **dict.fromkeys(("fails", "off", "wrong"), "#c62828"),
    **dict.fromkeys(("inconclusive", "close", "open", "unsolved"), "#b26a00"),
}
SIGNS = {
    **dict.fromkeys(("holds", "right", "passed"), "✓"),
    **dict.fromkeys(("fails", "off", "wrong"), "✗"),
    **dict.fromkeys(("inconclusive", "close", "open"), "≈"),
    "unsolved": "…",
}
BLUE = "#1565c0"


def shell():
    """The running IPython shell, or None."""
    from IPython import get_ipython

    return get_ipython()


def show(card):
    """Display an HTML card; print its text where there is no notebook."""
    from IPython.display import HTML, display

    if shell():
        display(HTML(card))
    else:
        print(plain(card))


def plain(card):
    """A card without its markup."""
    import re

    spaced = re.sub(r"</(div|p|tr|summary)>|<br>", "\n", card)
    text = html.unescape(re.sub(r"<[^>]+>", " ", spaced))
    return "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())


def box(colour, head, body):
    """A card: a coloured edge, a head and a body (both HTML)."""
    return (
        f'<div style="border-left:4px solid {colour};padding:6px 12px;margin:6px 0;max-width:60em;line-height:1.45">'
        f'<div style="color:{colour};font-weight:600">{head}</div>{body}</div>'
    )


def escape(text):
    return html.escape(str(text))


def number(value, unit=None):
    """A number with four significant digits and its unit; a dash when unknown."""
    if value is None or value != value:
        return "–"
    text = f"{float(value):,.4g}" if abs(float(value)) < 1e3 else f"{float(value):,.0f}"
    return f"{text} {unit}" if unit else text


def badge(verdict, text=None):
    """A verdict with its sign, in its colour; `text` replaces the word."""
    return f'<b style="color:{COLOURS[verdict]};white-space:nowrap">{SIGNS[verdict]} {escape(text or verdict)}</b>'


def started(run, machine):
    """The card at the top of a lesson."""
    facts = [
        f"profile <b>{escape(run.profile)}</b>",
        f"seed {run.seed}",
        f"{escape(machine.cpu)}, {machine.logical_cores} cores",
        escape(machine.gpu or "no GPU"),
        f"torch {escape(machine.torch)}, {machine.torch_threads} threads",
    ]
    return box(BLUE, escape(run.notebook), f"<div>{' · '.join(facts)}</div>")


def interactive():
    """Whether somebody may be there to click."""
    return shell() is not None and os.environ.get("LABKIT_HEADLESS") != "1"


def asked(row, options=None):
    """A prediction as a card."""
    choices = f"<div>Options: {escape(' · '.join(options))}</div>" if options else ""
    source = "taken because nobody answered" if row.source == "default" else f"from the {row.source}"
    return box(BLUE, f"Predict: {escape(row.question)}", f"{choices}<div>{answer_of(row)} ({source})</div>")


def answer_of(row):
    return escape(readable(row.answer, row.unit))


def outcome_of(row):
    """The result with its interval, or why there is none."""
    if not known(row.result) and known(row.reason):
        return escape(row.reason)
    return result_of(row) + allowed(row)


def result_of(row):
    return escape(readable(row.result, row.unit))


def readable(text, unit=None):
    """An option as it is, a number with four digits and its unit, a dash for nothing."""
    if not known(text):
        return "–"
    try:
        return number(float(text), unit)
    except ValueError:
        return text


def revealed(row, word="measured"):
    """A prediction beside its result; `word` says what the result is."""
    who = "You expected" if row.source.startswith("reader") else "The default was"
    found = f"{word}: <b>{result_of(row)}</b>{allowed(row)}" if known(row.result) else escape(row.reason)
    body = f"<div>{who} <b>{answer_of(row)}</b>; {found}.</div>"
    return box(COLOURS[row.verdict], f"{badge(row.verdict)} · {escape(row.question)}", body)


def allowed(row):
    """The interval of a result, where it has one."""
    if not known(row.low) or row.low == row.high:
        return ""
    both = "; your answer lies in it" if row.verdict == "open" and row.source.startswith("reader") else ""
    return f" (the run allows {number(row.low)} to {number(row.high, row.unit)}{both})"


def known(value):
    """Whether a field of a row, from the ledger or from pandas, holds something."""
    return value is not None and value == value


def evidence(row):
    """What a claim rests on: a number, an interval, or the reason there is none."""
    reason = row.reason if known(row.reason) else ""
    if not known(row.value):
        return escape(reason)
    text = number(row.value, row.unit)
    if row.low != row.high:
        text += f" (from {number(row.low)} to {number(row.high, row.unit)})"
    return escape(f"{text}; {reason}" if reason else text)


def claimed(row):
    """A claim with its verdict in this run."""
    return box(
        COLOURS[row.verdict],
        f"{badge(row.verdict, row.verdict + ' in this run')}: {escape(row.sentence)}",
        f"<div>{evidence(row)}</div>",
    )


def checked(exercise, row):
    """An exercise with its verdict; hint and solution stay folded."""
    dots = "●" * exercise.difficulty + "○" * (3 - exercise.difficulty)
    head = f"{badge(row.verdict)} · exercise {escape(exercise.id)} · {dots} · {exercise.minutes} min"
    body = f"<div>{escape(row.message)}</div>" if row.message else "<div>Well done.</div>"
    body += folded("Hint", f"<div>{escape(exercise.hint)}</div>") if row.verdict != "passed" else ""
    body += folded("Solution", f"<pre>{escape(exercise.solution)}</pre>")
    return box(COLOURS[row.verdict], head, body)


def folded(title, body):
    return f"<details><summary>{title}</summary>{body}</details>"


def table(columns, lines):
    """An HTML table; `lines` are lists of HTML cells."""
    style = 'style="text-align:left;padding:2px 12px 2px 0;vertical-align:top"'
    head = "".join(f"<th {style}>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td {style}>{cell}</td>" for cell in line) + "</tr>" for line in lines)
    return f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def recap(predictions, claims, answers):
    """The end of a lesson; three ledger frames of one run."""
    parts = []
    if len(predictions):
        parts += ["<b>What you expected</b>", prediction_table(predictions)]
    if len(claims):
        parts += ["<b>What this run says</b>", claim_table(claims)]
    if len(answers):
        parts += ["<b>What you wrote</b>", answer_table(answers)]
    return box(BLUE, "Recap", "".join(f"<div>{part}</div>" for part in parts))


def prediction_table(frame):
    lines = []
    for row in frame.itertuples():
        verdict = badge(row.verdict) if row.verdict in SIGNS else "not revealed"
        lines.append([verdict, escape(row.question), answer_of(row), outcome_of(row), escape(row.source)])
    return table(["", "question", "expected", "result", "said by"], lines)


def claim_table(frame):
    lines = [[badge(row.verdict), escape(row.sentence), evidence(row)] for row in frame.itertuples()]
    return table(["", "claim", "evidence"], lines)


def answer_table(frame):
    lines = [[badge(row.verdict), escape(row.exercise_id), escape(row.message or "")] for row in frame.itertuples()]
    return table(["", "exercise", ""], lines)
