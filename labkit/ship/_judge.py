"""The process that scores: fresh, with its own clock and the labels. Called as `python -m labkit.ship._judge`.

It reads one job as JSON from its input and writes one list of results as JSON. What a stranger sent runs in children
(`_child`) that were forked before the labels were read. It serves no file itself: they do, after the ONNX gate.
"""

import json
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from labkit.errors import LabError
from labkit.files import sha256
from labkit.measure.noise import waited_s
from labkit.ship import gates
from labkit.ship._child import Child, Refused, making, own, serving
from labkit.ship.order import REFERENCE, SHAPE, Exam, draw_exam
from labkit.ship.submission import copied

LOAD_S, ANSWER_S = 60, 10
BATCHES = (17, 32, 24, 40)  # pictures of the batches, in turn
WARM = 10  # calls before the first that counts


def main():
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    job = json.loads(sys.stdin.readline())
    _import_all()  # before anything is forked: a child then starts at once
    print(json.dumps(judge(job)), file=out, flush=True)


def _import_all():
    import onnxruntime  # noqa: F401
    import torch  # noqa: F401

    from labkit import compress, data, engines, quantize, train  # noqa: F401
    from labkit.engines import fidelity  # noqa: F401


class Entry:
    """One submission while it is scored: its children, its answers, and why it is out."""

    def __init__(self, told, folder):
        self.told, self.folder, self.refused = told, folder, None
        self.facts, self.served, self.meaning = {}, None, None
        self.times, self.in_force = [], []


def judge(job):
    """The results of a job: {"folder", "seed", "images", "rounds", "make_s", "submissions"}."""
    with ExitStack() as stack:
        reference = Entry({"name": REFERENCE, "path": job["reference"], "engine": "onnxruntime"}, _place(job, "r"))
        entries = [Entry(told, _place(job, str(n))) for n, told in enumerate(job["submissions"])]
        for entry in (reference, *entries):
            stack.callback(_end, entry)
            _tried(entry, _begin, entry, job["make_s"])
            if entry is not reference:  # nobody doubts what that one means
                _tried(entry, _read_meaning, entry, job["make_s"])
        if reference.refused:
            raise LabError("The reference network cannot be served.", found=reference.refused[1])
        exam = draw_exam(job["images"], job["seed"])
        _time([reference, *entries], exam, job)  # first: a picture that was asked before could be remembered
        _examine([reference, *entries], exam, job)
        for entry in entries:
            _tried(entry, _weigh, entry, reference, exam)
        return [_result(entry, reference, exam) for entry in entries]


def _place(job, name):
    folder = Path(job["folder"]) / name
    folder.mkdir()
    return folder


def _end(entry):
    for child in (entry.served, entry.meaning):
        if child:
            child.end()


def _tried(entry, step, *arguments):
    """Take a step for a submission that is still in; a reason puts it out."""
    if entry.refused is None:
        try:
            step(*arguments)
        except (LabError, OSError, ValueError) as error:
            what = error.what if isinstance(error, LabError) else f"{type(error).__name__}: {error}"
            found = getattr(error, "found", None)
            entry.refused = step.__name__.strip("_"), f"{what} {found}" if found else what


def _begin(entry, make_s):
    """From what was handed in to a child that is ready to answer."""
    box = entry.folder / "box"
    box.mkdir()
    source, engine, path = None, entry.told["engine"], entry.folder / "model.onnx"
    if entry.told["path"].endswith(".py"):
        source = copied(entry.told["path"], entry.folder / "submission.py")
        maker = Child(making(source), box, readable=[source], cpu_s=2 * make_s)
        try:
            engine = maker.words(make_s)["engine"]
        finally:
            maker.end()
        copied(box / "model.onnx", path)
    else:
        copied(entry.told["path"], path)
    precision = gates.require_plain(path)
    mine = source is not None and engine == "own"
    size = path.stat().st_size + (source.stat().st_size if mine else 0)
    entry.facts = {"engine": engine, "precision": precision, "size_bytes": size, "file": str(path)}
    entry.facts["sha256"] = sha256(path)
    work = own(source, path) if mine else serving(path, _engine(engine, precision), precision)
    entry.served = Child(work, box, readable=[path, *([source] if source else [])])
    entry.in_force = _warm(entry.served, min(make_s, LOAD_S)).get("in force", [])


def _read_meaning(entry, make_s):
    """A second child, which runs the file as it is written."""
    path, box = entry.folder / "model.onnx", entry.folder / "box"
    entry.meaning = Child(serving(path, "meaning", None), box, readable=[path])
    _warm(entry.meaning, min(make_s, LOAD_S))


def _warm(child, seconds):
    said = child.words(seconds)
    for _ in range(WARM):
        child.answer(np.zeros((1, *SHAPE), np.float32), min(seconds, ANSWER_S))
    return said


def _engine(name, precision):
    """The engine's name, if it is one of the course's that runs such files."""
    from labkit import engines

    known = engines.names(runs="onnx")
    if name not in known:
        raise Refused(f"There is no engine {str(name)[:60]!r} here; the course has {', '.join(known)}.")
    if precision not in engines.get(name).PRECISIONS:
        raise Refused(f"The engine {name} does not run {precision}.")
    return name


def _examine(entries, exam, job):
    """Ask all pictures in batches of several sizes; the files as they are written only a part of them.

    The part holds the timed pictures and as many others; no submission knows which.
    """
    timed, chance = entries[0].asked, np.random.default_rng([job["seed"], 1])
    others = chance.permutation(np.setdiff1d(np.arange(len(exam.pictures)), timed))[: len(timed)]
    some = np.sort(np.concatenate([timed, others]))
    sizes, start = [], 0
    while start < len(exam.pictures):
        sizes.append(min(BATCHES[len(sizes) % len(BATCHES)], len(exam.pictures) - start))
        start += sizes[-1]
    parts = np.split(exam.pictures, np.cumsum(sizes)[:-1])
    for entry in entries:
        entry.place = np.concatenate([np.arange(size) for size in sizes])
        _tried(entry, _ask, entry, parts)
        if entry.meaning:
            _tried(entry, _ask_meaning, entry, exam, some)


def _ask(entry, parts):
    found = [entry.served.answer(part, ANSWER_S) for part in parts]
    entry.answers = np.concatenate([answer for answer, _ in found])
    entry.late = np.concatenate([np.full(len(answer), late) for answer, late in found])


def _ask_meaning(entry, exam, some):
    """What the file as it is written answers to some pictures; the other rows stay unknown."""
    entry.some, entry.meant = some, np.full_like(entry.answers, np.nan)
    for part in np.array_split(some, max(len(some) // max(BATCHES), 1)):
        entry.meant[part] = entry.meaning.answer(exam.pictures[part], ANSWER_S)[0]


def _time(entries, exam, job):
    """Rounds of one picture each: every entry in random order, the reference a second time.

    No picture was asked before and none comes twice, nor do both forms of one: there is nothing to remember.
    """
    chance = np.random.default_rng(job["seed"])
    order = chance.permutation(len(exam.pictures))
    one_form = order[np.unique(exam.origin[order], return_index=True)[1]]
    asked = chance.permutation(one_form)[: job["rounds"]]
    for entry in entries:
        entry.asked, entry.single, entry.late_single, entry.again = asked, [], [], []
        entry.computed = entry.served.computed() if entry.served else 0
    for picture in asked:
        for index in chance.permutation(len(entries) + 1):
            entry = entries[index % len(entries)]  # the last index is the reference again
            times = entry.again if index == len(entries) else entry.times
            _tried(entry, _time_one, entry, exam.pictures[picture : picture + 1], times)
    for entry in entries:
        entry.computed = entry.served.computed() - entry.computed if entry.served else 0


def _time_one(entry, picture, times):
    """One timed call, by this process's clock, without the time in which one of the two had no core."""
    idle, begin = _idle(entry), time.perf_counter()
    answer, late = entry.served.answer(picture, ANSWER_S)
    spent = time.perf_counter() - begin
    idle = _idle(entry) - idle
    times.append((spent, max(spent - idle, 0.0)))
    if times is entry.times:
        entry.single.append(answer[0])
        entry.late_single.append(late)


def _idle(entry):
    """Seconds for which this process, or that of the entry, was ready to run and had no core."""
    return entry.served.waited() + (waited_s() or 0.0)


def _weigh(entry, reference, exam):
    """The gates that look at the answers."""
    single, twice, some = np.array(entry.single), entry.asked, entry.some
    meant = entry.meant[np.concatenate([some, twice])]
    found = np.concatenate([entry.answers[some], single])
    asked = {
        "place": np.concatenate([entry.place[some], np.zeros(len(twice), int)]),
        "alone": np.arange(len(found)) >= len(some),
        "changed": exam.changed[np.concatenate([some, twice])],
        "late": np.concatenate([entry.late[some], entry.late_single]),
    }
    alone = np.concatenate([entry.meaning.answer(exam.pictures[k : k + 1], ANSWER_S)[0] for k in twice[:64]])
    gates.require_steady(entry.meant[twice[:64]], alone)
    gates.require_meaning(meant, found, asked)
    gates.require_steady(entry.answers[twice], single)
    gates.require_unseen(*(each.answers.argmax(1) == exam.labels for each in (entry, reference)), exam)
    gates.require_inside(entry.computed, sum(spent for spent, _ in entry.times))
    gates.require_ready(entry.times, reference.times)


def _result(entry, reference, exam: Exam):
    """What the parent is told of a submission: facts, the samples behind the score, and why it is out."""
    result = {**entry.told, **entry.facts, "refused": entry.refused, "in_force": reference.in_force}
    if entry.refused is None or entry.refused[0] == "weigh":
        for who, key in ((entry, "right"), (reference, "reference_right")):
            before, copies = exam.forms(who.answers.argmax(1) == exam.labels)
            result |= {key: copies.tolist(), f"{key}_before": before.tolist()}
        result["times"] = entry.times
        result |= {"reference": reference.times, "again": reference.again}
        result["reference_bytes"] = reference.facts["size_bytes"]
    return result


if __name__ == "__main__":
    main()
