"""One self-contained HTML page of what was run here: status, claims, tables, and the deployment picture.

Nothing in it is fetched from elsewhere: the styles and pictures are inside, the executed notebooks lie beside it.
"""

import base64
import io
import os
from datetime import UTC, datetime
from pathlib import Path

from labkit import device, ledger
from labkit.files import artifacts, write_text
from labkit.lesson import cards

STATUS = {"passed": "holds", "failed": "fails"}  # which colour an attempt takes; others are open


def write_report(path=None):
    """Write artifacts/report.html (or `path`) from the ledger and the recorded results; returns its path."""
    import jinja2

    path = Path(path or artifacts() / "report.html")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("labkit", "templates"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(number=cards.number, readable=cards.readable, badge=badge, when=when)
    environment.filters["evidence"] = cards.evidence
    attempts = newest_attempts()
    runs = newest_runs(attempts)
    page = environment.get_template("report.html").render(
        machine=device.describe(),
        commit=device.commit(),
        written=datetime.now(UTC).isoformat(sep=" ", timespec="minutes").replace("+00:00", " UTC"),
        attempts=[with_page(row, path.parent) for row in records(attempts)],
        claims=grouped(of_runs("claims", runs), runs),
        predictions=grouped(of_runs("predictions", runs), runs),
        answers=grouped(of_runs("answers", runs), runs),
        ceilings=with_notes(records(side_by_side("ceilings", runs))),
        deployments=with_notes(records(side_by_side("deployments", runs))),
        pictures=deployment_pictures(side_by_side("deployments", runs)),
    )
    write_text(path, page)
    return path


def newest_attempts():
    """The newest attempt at each notebook by the runner, in the order of the lessons."""
    return ledger.load("attempts").drop_duplicates("notebook", keep="last").sort_values("notebook")


def newest_runs(attempts):
    """{run key: notebook} of the newest run of each lesson, by the runner or by hand."""
    runs = ledger.load("runs").drop_duplicates("notebook", keep="last")
    return dict(sorted(zip(runs["run_key"], runs["notebook"], strict=True), key=lambda item: item[1]))


def of_runs(table, runs):
    frame = ledger.load(table)
    return frame[frame["run_key"].isin(runs)]


def grouped(frame, runs):
    """[(notebook, its rows)] in the order of the lessons; lessons without rows are left out."""
    groups = [(notebook, records(frame[frame["run_key"] == key])) for key, notebook in runs.items()]
    return [(notebook, rows) for notebook, rows in groups if rows]


def side_by_side(table, runs):
    """Own rows, then recorded ones, told apart by the column `hardware`: None is this machine."""
    import pandas as pd

    own = of_runs(table, runs).assign(hardware=None, recorded_on=None)
    there = ledger.recorded(table)
    return pd.concat([frame for frame in (own, there) if len(frame)], ignore_index=True) if len(there) else own


def records(frame):
    """Rows as dicts with None for what is missing."""
    frame = frame.astype(object)
    return frame.where(frame.notna(), None).to_dict("records")


def with_notes(rows):
    """Rows with their remarks as numbers, and the list of remarks those numbers stand for."""
    remarks = []
    for row in rows:
        own = ["noisy: other work ran at the same time, or the times spread widely"] if row["noisy"] else []
        own += row["reason"].split("; ") if row["reason"] else []
        remarks += [remark for remark in own if remark not in remarks]
        row["notes"] = [remarks.index(remark) + 1 for remark in own]
    return {"rows": rows, "remarks": remarks}


def with_page(attempt, folder):
    """An attempt with a link to a readable page of its executed notebook, made anew when the notebook is newer."""
    source = artifacts() / attempt["output"] if attempt["output"] else None
    if source is None or not source.exists():
        return attempt | {"page": None, "notebook_file": None}
    page = source.with_suffix(".html")
    if not page.exists() or page.stat().st_mtime < source.stat().st_mtime:
        write_text(page, notebook_page(source))
    return attempt | {"page": relative(page, folder), "notebook_file": relative(source, folder)}


def notebook_page(path):
    """An executed notebook as one HTML page; nbconvert's own full page would fetch scripts from the web."""
    import jinja2
    from nbconvert import HTMLExporter

    body, _ = HTMLExporter(template_name="basic").from_filename(str(path))
    environment = jinja2.Environment(loader=jinja2.PackageLoader("labkit", "templates"), autoescape=True)
    return environment.get_template("notebook.html").render(title=path.stem, body=body)


def relative(path, folder):
    """A link from a page in `folder` to `path`."""
    return Path(os.path.relpath(path, folder)).as_posix()


def deployment_pictures(frame):
    """[(whose, the accuracy/latency/size picture as a data URI)]: this machine first, then each recorded hardware.

    One picture each, so that rows of different machines never share a front.
    """
    frame = frame[frame["accuracy"].notna() & frame["latency_p50_ms"].notna()]
    frame = frame.assign(
        whose=frame["hardware"].where(frame["hardware"].notna(), "this machine"),
        name=frame["model"] + ", batch " + frame["batch"].astype(str),
        size_mb=frame["size_bytes"].astype(float) / 1e6,
    )
    return [(whose, deployment_picture(rows)) for whose, rows in frame.groupby("whose", sort=False)]


def deployment_picture(rows):
    from labkit.plots import pareto

    return data_uri(pareto(rows, x="latency_p50_ms", y="accuracy", size="size_mb", label="name"))


def data_uri(figure):
    """A matplotlib figure as text that an <img> can hold."""
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight")
    plt.close(figure)
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()


def badge(word):
    """A verdict or status as coloured HTML."""
    return cards.card("badge", STATUS.get(word, word), word)


def when(text):
    """An ISO time for people: to the minute, in UTC."""
    return text.replace("T", " ")[:16] + " UTC" if text else "–"
