"""One self-contained HTML page of what was run here: answers, status, claims, tables, and the deployment picture.

Nothing in it is fetched from elsewhere: the styles and pictures are inside, the executed notebooks lie beside it.
"""

import filecmp
import io
import re
from collections import defaultdict
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from labkit import device, ledger
from labkit.files import artifacts, write_text
from labkit.ledger.claims import by_seed
from labkit.ledger.rows import Answer, Attempt, Claim, LessonAnswer, Machine, Prediction, Run
from labkit.ledger.shown import shown
from labkit.lesson import cards, pages
from labkit.lesson.progress import progress

# The tables of measured rows and their columns; a column without any value is left out. Long ones are folded.
MEASURED = {
    "Deployments": ("deployments", "model engine precision device threads batch accuracy latency_p50_ms latency_p95_ms "
                    "throughput_per_s size_bytes memory_bytes energy_per_item_j cost_per_million_usd"),
    "Trainings": ("trainings", "study variant model dataset device threads batch images data_s forward_s backward_s "
                  "optimizer_s total_s accuracy memory_bytes"),
    "Ratios": ("ratios", "name arm baseline device threads batch median low high floor pairs verdict"),
    "Latencies": ("latencies", "name device threads batch p50_ms low_ms high_ms p95_ms p99_ms throughput_per_s"),
    "Memory": ("memories", "name device batch peak_bytes tensor_bytes saved_bytes"),
    "Energy": ("energies", "name device threads batch joules_per_item seconds items source"),
    "Ceilings": ("ceilings", "name device threads bytes_per_s ops_per_s"),
}  # fmt: skip
UNITS = (  # (how a column's name ends, the factor to its unit, the unit)
    ("ops_per_s", 1, "op/s"), ("bytes_per_s", 1, "B/s"), ("_per_s", 1, None), ("_bytes", 1, "B"), ("_ms", 1e-3, "s"),
    ("_s", 1, "s"), ("_j", 1, "J"), ("accuracy", 100, "%"),
)  # fmt: skip
NOISY = "noisy: other work ran at the same time, or the times spread widely"


def write_report(path=None):
    """Write artifacts/report.html (or `path`) from the ledger and the recorded results; returns its path."""
    path = Path(path or artifacts() / "report.html")
    found = ledger.find(Attempt)
    attempts = {(row.reported_by or "", row.notebook, -1 if row.seed is None else row.seed): row for row in found}
    filters = {"badge": _badge, "evidence": _evidence, "readable": cards.readable, "shown": shown, "when": _when}
    page = cards.template("report.html", **filters).render(
        card=cards.card,
        progress=progress(),
        machine=device.describe(),
        commit=device.commit(),
        written=datetime.now(UTC).isoformat(sep=" ", timespec="minutes").replace("+00:00", " UTC"),
        attempts=_with_pages([attempts[name] for name in sorted(attempts)], path.parent),
        answers=_newest(LessonAnswer, apart=_whose),
        claims=_newest(Claim, apart=_whose),
        tallies=_tallies(),
        predictions=_newest(Prediction, apart=_how),
        exercises=_newest(Answer, apart=_how),
        measured=[_section(title, *about) for title, about in MEASURED.items()],
        pictures=_pictures(),
        book=_book(path.parent),
    )
    write_text(path, page)
    return path


def _newest(kind, *, apart=lambda run: ""):
    """[(notebook, what sets its run apart, rows)] in the order of the lessons: of each, the newest run with such rows.

    apart  words for a `Run`: of runs that differ in them, the newest of each is shown. With `_how`, no answer of a
           reader is hidden by a later run without one
    """
    rows, newest = defaultdict(list), {}
    for row in ledger.find(kind):
        rows[row.run_key].append(row)
    for run in sorted(ledger.find(Run), key=lambda run: run.started_utc):
        if rows[run.run_key]:
            newest[run.notebook, apart(run)] = rows[run.run_key]
    return [(*about, newest[about]) for about in sorted(newest)]


def _whose(run):
    return f", as reported by {run.reported_by}" if run.reported_by else ""


def _how(run):
    return ("by the runner" if run.batch_key else "by hand") + _whose(run)


def _tallies():
    """{(notebook, claim id): "holds in 5 of 5: seeds 0 to 4 on 2 machines"} where there are several seeds."""
    runs = sorted(ledger.find(Run), key=lambda run: (run.reported_by is None, run.started_utc))
    profiles = {run.notebook: run.profile for run in runs}
    tallies = {profile: by_seed(profile) for profile in set(profiles.values())}
    found = {about: tallies[profiles[about[0]]].get(about) for tally in tallies.values() for about in tally}
    several = {about: tally for about, tally in found.items() if tally and len(tally.verdicts) > 1}
    return {about: f"{tally.outcome()}: {tally.extent()}" for about, tally in several.items()}


def _places(table):
    """{place: its rows of a table}: this machine first, then others that a cluster had, then the recorded ones."""
    machines = {row.machine_key: row.title for row in ledger.find(Machine)}
    here, own = device.describe().title, {"this machine": []}
    known = {key: "this machine" if hardware == here else hardware for key, hardware in machines.items()}

    def place_of(run):
        return known.get(run.machine_key, "this machine") + _whose(run)

    for _, place, rows in _newest(ledger.tables()[table], apart=place_of):
        own.setdefault(place, []).extend(rows)
    return {**own, **ledger.recorded_rows(table)}


def _section(title, table, columns):
    """One table as the template needs it: its rows by hardware."""
    grids = [_grid(place, rows, columns.split()) for place, rows in _places(table).items() if rows]
    return {"title": title, "grids": grids}


def _grid(place, rows, columns):
    """Rows as cells of text, with numbered remarks.

    Columns without a value are left out, and what is the same in all rows is said once, above them.
    """
    values = {name: [getattr(row, name) for row in rows] for name in columns}
    values = {name: found for name, found in values.items() if any(value is not None for value in found)}
    same = {name for name, found in values.items() if len(found) > 1 and len(set(found)) == 1}
    listed = {name: found for name, found in values.items() if name not in same}
    heads = [(_head(name), any(isinstance(value, int | float) for value in found)) for name, found in listed.items()]
    remarks, lines = [], []
    for number, row in enumerate(rows):
        own = _remarks(asdict(row))
        remarks += [remark for remark in own if remark not in remarks]
        notes = ", ".join(str(remarks.index(remark) + 1) for remark in own)
        lines.append(([_cell(name, found[number]) for name, found in listed.items()], notes))
    shared = " · ".join(f"{_head(name)} {_cell(name, found[0])}" for name, found in values.items() if name in same)
    return {"place": place, "heads": heads, "lines": lines, "remarks": remarks, "shared": shared}


def _remarks(row):
    """Why numbers of a row are missing or doubtful."""
    noise = [row.get("noise") or NOISY] if row.get("noisy") else []
    reasons = "; ".join(filter(None, (row.get("reason"), row.get("tail_reason"))))
    return noise + (list(dict.fromkeys(reasons.split("; "))) if reasons else [])


def _unit(name):
    return next(((factor, unit) for ending, factor, unit in UNITS if name.endswith(ending)), (1, None))


def _cell(name, value):
    """A value as text, in the unit that its column's name says."""
    if value is None or isinstance(value, str):
        return value or "–"
    factor, unit = _unit(name)
    return shown(value * factor, unit, digits=4 if unit in ("%", None) else 3)


def _head(name):
    """A column's name for people, without the unit that its cells have."""
    return re.sub(r"_(bytes|ms|s|j)$", "", name.replace("_per_s", "_per_second")).replace("_", " ")


def _with_pages(attempts, folder):
    """Attempts with links to their executed notebooks and to readable pages: the book's, where those show these runs.

    The copy of the report inside the book (see docs/book/build.py) has the book's pages only. A reported notebook is
    linked as a file, and has no page: it may hold anything.
    """
    ours = [attempt for attempt in attempts if not attempt.reported_by]
    own = {attempt: folder / f"lessons/{attempt.notebook}.html" for attempt in ours}
    own = {attempt: page for attempt, page in own.items() if page.is_file()}
    sources = {attempt: artifacts() / attempt.output for attempt in attempts if attempt.output and attempt not in own}
    sources = {attempt: source for attempt, source in sources.items() if source.is_file()}
    shown = {attempt: _in_book(attempt.notebook, sources[attempt]) for attempt in ours if attempt in sources}
    beside = pages.beside([sources[attempt] for attempt, page in shown.items() if not page])
    rows = []
    for attempt in attempts:
        source = sources.get(attempt)
        page = own.get(attempt) or shown.get(attempt) or beside.get(source)
        links = {"page": page, "notebook_file": source}
        rows.append(asdict(attempt) | {name: path and pages.link(path, folder) for name, path in links.items()})
    return rows


def _in_book(name, source):
    """The book's page of a lesson, if it shows this executed notebook, or None."""
    book = artifacts() / "book"
    page, copy = book / f"lessons/{name}.html", book / f"_sources/lessons/{name}.ipynb"
    there = page.is_file() and copy.is_file()
    return page if there and filecmp.cmp(source, copy, shallow=False) else None


def _book(folder):
    """A link from `folder` to the first page of the course as a book, or None where there is none."""
    first = next((place for place in (folder, artifacts() / "book") if (place / "index.html").is_file()), None)
    return pages.link(first / "index.html", folder) if first else None


def _pictures():
    """[(whose, the accuracy/latency/size picture as a data URI)]: this machine first, then each recorded hardware.

    One picture each, so that rows of different machines never share a front.
    """
    places = _places("deployments").items()
    shown_rows = [(place, [row for row in rows if row.accuracy and row.latency_p50_ms]) for place, rows in places]
    return [(place, _picture(rows)) for place, rows in shown_rows if rows]


def _picture(rows):
    """The picture of deployments as a data URI."""
    from labkit.plots import pareto

    buffer = io.BytesIO()
    pareto(rows).savefig(buffer, format="svg", bbox_inches="tight")
    return pages.data_uri(buffer)


def _badge(word):
    """A verdict or status as the cards of the lessons show it."""
    return cards.card("badge", "fails" if word == "failed" else word, word)


def _evidence(row):
    """The evidence of a claim, or the reason there is none, as the cards of the lessons show it."""
    return cards.card("evidence", row)


def _when(text):
    """An ISO time for people: to the minute, in UTC."""
    return text.replace("T", " ")[:16] + " UTC" if text else "–"
