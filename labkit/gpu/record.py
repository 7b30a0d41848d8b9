"""Turn the rows of a journal into a record, the file that `labkit.ledger.recorded` reads.

A record is a list of pages, one for each experiment. A page says what was measured on which
machine, and holds the rows: {table of the ledger: list of rows}.
"""

import json
import re
from pathlib import Path

from labkit import device as devices
from labkit.files import write_text
from labkit.gpu.items import ITEMS
from labkit.gpu.journal import Journal

EDITION = 4  # of the course
ALSO_STORED = (  # fields of the journal's rows that each row of a record has, whatever its table
    *(
        "experiment",
        "network",
        "device",
        "batch",
        "measured_utc",
        "reason",
        "image_size",
        "precision",
    ),
    *("compiled", "quantity", "torch", "card", "tactics", "build_s", "engine_bytes", "version"),
)
STUDIES = {
    ("convnext-training", 64): "convnext-training-64",
    ("convnext-training", 224): "compile-amp",
}
TRAININGS = ("convnext-training", "training-phases")  # published as seconds of an epoch
# the fields that two rows of the same measurement have in common
IDENTITY = ("experiment", "variant", "quantity", "batch", "image_size", "precision", "compiled")


def write_record(
    journal: Journal, folder: Path, facts: dict, *, hardware: str | None, tiny: bool
) -> Path:
    """Write the rows of one machine as a record. Returns the path of the file.

    The path is FOLDER/NAME-OF-THE-HARDWARE/gpu.json.

    journal   the `Journal`; its rows of other machines are left out
    facts     properties of the machine, {field: value}, as its worker process wrote them
    hardware  name of the machine for people; None: the names of its GPU and its CPU
    tiny      True: the sizes were tiny and the numbers mean nothing; the file is then called
              gpu-tiny.json
    """
    hardware = hardware or ", ".join(filter(None, [facts.get("gpu"), facts.get("cpu")]))
    pages = pages_of(journal.lines(), facts, hardware=hardware, tiny=tiny)
    name = re.sub(r"[^a-z0-9_]+", "-", hardware.lower()).strip("-") or "machine"
    path = folder / name / ("gpu-tiny.json" if tiny else "gpu.json")
    write_text(path, json.dumps(pages, indent=0) + "\n")
    return path


def pages_of(lines: list, facts: dict, *, hardware: str, tiny: bool) -> list[dict]:
    """Return the pages of a record: one dictionary for each experiment of one machine.

    lines     all lines of a journal, oldest first
    facts     properties of the machine, {field: value}, as its worker process wrote them
    hardware  name of the machine for people
    tiny      True: the sizes were tiny
    """
    rows = rows_of(lines, facts["machine_key"])
    machine = {name: fact for name, fact in facts.items() if fact is not None}
    pages = []
    instructions = (
        facts.get("instructions") or (facts.get("cpu_isa") or "").rpartition(" ")[2] or None
    )
    for experiment in dict.fromkeys(row["experiment"] for row in rows):
        own_rows = [row for row in rows if row["experiment"] == experiment]
        networks = {row["network"] for row in own_rows}
        pages.append(
            {
                "hardware": hardware,
                "instructions": instructions,
                "date": max(row["measured_utc"] for row in own_rows)[:10],
                "profile": "quick" if tiny else "lab",
                "commit": devices.commit(),
                "edition": EDITION,
                "experiment": experiment,
                "network": own_rows[0]["network"] if len(networks) == 1 else None,
                "versions": {
                    name: facts.get(name) for name in ("torch", "cuda", "cudnn", "gpu_driver")
                },
                "tables": {"machines": [machine], **tables_of(own_rows)},
            }
        )
    return pages


def rows_of(lines, machine_key):
    """Return the rows of one machine, the best row for each measurement.

    Rows belong to the same measurement if they agree in the fields of `IDENTITY`. Of such rows the
    one with the highest `rank` is taken; if several have it, the newest. A row with the quantity
    "all" says that an arm was not measured. It is left out if the arm has a row with a value.

    lines        all lines of a journal, oldest first
    machine_key  key of the machine
    """
    best = {}
    ours = False  # whether the lines that follow are of this machine
    for line in lines:
        if line["kind"] == "machine":
            ours = line["machine_key"] == machine_key
        if line["kind"] == "row" and ours:
            key = tuple(line[name] for name in IDENTITY)
            if key not in best or rank(line) >= rank(best[key]):
                best[key] = line
    measured = {arm_of(row) for row in best.values() if has_value(row)}
    return [row for row in best.values() if row["quantity"] != "all" or arm_of(row) not in measured]


def arm_of(row):
    """Return the values, a tuple, that identify the arm to which a row belongs."""
    return tuple(row[name] for name in IDENTITY if name != "quantity")


def has_value(row):
    """Return True if a row has a value, False if it has a reason why there is none."""
    return row["value"] is not None


def rank(row):
    """Return a sort key of a row: the larger, the better.

    A row with a value is better than one without. Among rows with a value, an arm that was timed in
    turn with others is better than one that was timed alone.
    """
    return has_value(row), bool(row.get("in_turn"))


def tables_of(rows):
    """Convert rows of the journal, all of one experiment, to rows of the ledger.

    Returns {table of the ledger: list of its rows}. A ratio without an interval, or without a
    comparison of the two outputs, is left out.
    """
    tables = {}
    for row in rows:
        if row["unit"] == "x" and (row["tolerance"] is None or row["low"] is None):
            # no `Ratio` without a comparison of the outputs and an interval
            continue
        table, fields = as_ledger(row)
        fields |= {name: row.get(name) for name in ALSO_STORED}
        tables.setdefault(table, []).append(
            {name: value for name, value in fields.items() if value is not None}
        )
    return tables


def as_ledger(row):
    """Convert a row of the journal to the ledger. Returns (name of the table, fields of its row).

    The fields are only those that this table has and other tables do not.
    """
    not_trained = row["experiment"] in TRAININGS and not has_value(row)
    if row["quantity"] == "epoch" or not_trained:
        return "trainings", training(row)
    if row["unit"] == "x":
        return "ratios", ratio(row)
    if row["unit"] == "bytes" or row["quantity"] == "memory":
        return "memories", {"name": name_of(row), "peak_bytes": row["value"]}
    if row["unit"] == "GB/s":
        return "latencies", {
            "name": name_of(row),
            "bytes_per_s": 1e9 * row["value"],
            "sample_count": row["samples"],
        }
    return "latencies", latency(row)


def ratio(row):
    """Convert a row of the journal to the fields of a `Ratio` of the ledger."""
    unchanged = (
        "baseline",
        "low",
        "high",
        "floor",
        "verdict",
        "baseline_ms",
        "arm_ms",
        "tolerance",
    )
    return {
        "name": name_of(row),
        "arm": label(row["variant"], row["compiled"]),
        "median": row["value"],
        "pairs": row["samples"],
        **{name: row[name] for name in unchanged},
    }


def training(row):
    """Convert a row of the journal, of an epoch, to the fields of a `Training` of the ledger."""
    unchanged = ("images", "data_s", "forward_s", "backward_s", "optimizer_s")
    return {
        "study": STUDIES.get((row["experiment"], row["image_size"]), row["experiment"]),
        "variant": row["variant"],
        "model": row["network"] or row["experiment"],
        "dataset": row.get("how") or "not measured",
        "total_s": row["value"],
        "low_s": row.get("low"),
        "high_s": row.get("high"),
        "memory_bytes": row.get("peak_bytes"),
        **{name: row.get(name) for name in unchanged},
    }


def latency(row):
    """Convert a row of the journal to the fields of a `Latency` of the ledger."""
    ms = row["value"]
    return {
        "name": name_of(row),
        "p50_ms": ms,
        "low_ms": row.get("low"),
        "high_ms": row.get("high"),
        "throughput_per_s": 1e3 * row["batch"] / ms if ms else None,
        "peak_bytes": row.get("peak_bytes"),
        "sample_count": row.get("samples"),
    }


def label(variant: str, compiled: bool) -> str:
    """Return the name of an arm, such as "ReLU, compiled", for people and for rows of ratios."""
    return f"{variant}, compiled" if compiled and "compile" not in variant else variant


def name_of(row):
    """Return a name for a row of the ledger.

    It has the arm's label, its precision, image size and quantity. It does not have the batch size.
    """
    side = f"{row['image_size']} px" if row["image_size"] else None
    precision = row["precision"] if row["precision"] != "fp32" else None
    return ", ".join(
        filter(None, [label(row["variant"], row["compiled"]), precision, side, row["quantity"]])
    )


def as_text(row):
    """Return a line of text about a row of the journal, for people."""
    name = f"{row['item']:14} {name_of(row)}, batch {row['batch']}"
    if row["value"] is None:
        return f"{name}: not measured. {row['reason']}"
    ends = f" [{row['low']:.4g}, {row['high']:.4g}]" if row.get("low") is not None else ""
    peak = f", at most {row['peak_bytes'] / 1e9:.3g} GB" if row.get("peak_bytes") else ""
    return f"{name}: {row['value']:.4g} {row['unit']}{ends}{peak}"


def missing(item: str, lines: list, reason: str) -> list[dict]:
    """Return rows without a value for the arms that an item planned and did not measure.

    Each row has the reason. If the item has not planned any arms yet, one row stands for all of
    them.

    item    name of the item
    lines   lines of the journal that the item wrote
    reason  why the arms were not measured
    """
    planned = []
    rows = []
    for line in lines:
        if line["kind"] == "plan":
            planned += line["arms"]
        elif line["kind"] == "row":
            rows.append(line)
    if not planned:
        planned = [_whole_item(item)]
        rows = []

    written = []  # arms that have a row
    for row in rows:
        written.append({name: row[name] for name in planned[0]})
    common = {
        "kind": "row",
        "item": item,
        "quantity": "all",
        "value": None,
        "unit": None,
        "reason": reason,
    }
    return [{**common, **arm} for arm in planned if arm not in written]


def _whole_item(item):
    """Return the fields of an arm that stands for all arms of an item."""
    return {
        "experiment": ITEMS[item].experiment,
        "variant": f"all of {item}",
        "batch": 1,
        "image_size": None,
        "precision": "fp32",
        "compiled": False,
        "network": None,
    }
