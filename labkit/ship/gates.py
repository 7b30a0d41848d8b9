"""The gates: each looks for one way to look better than one is, and says in words what it found.

A gate is a function that raises `Refused`. First those that look at the file, then those that look at the answers.
"""

import numpy as np
import onnx

from labkit import export
from labkit.engines.fidelity import ENGINE_DB
from labkit.export.walk import graphs, holders
from labkit.measure.stats import bootstrap_paired
from labkit.quantize.numbers import sqnr_db
from labkit.ship._child import Refused
from labkit.ship.order import CLASSES, SHAPE

RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
BRANCHES = {"If", "Loop", "Scan", "SequenceMap"}
ROW_ERROR = 0.5  # of a row's own length: such an answer is another one
FORGETS = 0.12  # more than the reference network does, when pictures are changed a little; a linear classifier: 0.11
KNOWS = 0.5  # of the pictures that the reference network gets wrong
OUTSIDE = 1.5, 0.15  # computed seconds per second of a call, and seconds allowed besides
WAITS = 0.25  # share of the calls, beyond the reference's, that may wait for a core for more than half of their time


def require_plain(path):
    """The graph of a file that has passed `export.checked`, if it holds nothing but a plain network of the form asked
    for; returns its precision."""
    model = export.checked(path)
    kinds = {node.op_type for holder, _ in holders(model) for graph in graphs(holder) for node in graph.node}
    if found := kinds & RANDOM:
        raise Refused(f"The file answers at random ({', '.join(sorted(found))}): a different network per call.")
    if found := kinds & BRANCHES:
        raise Refused(f"The file chooses its way by the picture ({', '.join(sorted(found))}): send a plain network.")
    stored = {tensor.name for tensor in model.graph.initializer}
    given = [_form(value) for value in model.graph.input if value.name not in stored]
    answered = [_form(value) for value in model.graph.output]
    if given != [(onnx.TensorProto.FLOAT, SHAPE)] or answered != [(onnx.TensorProto.FLOAT, (CLASSES,))]:
        wanted = f"one float32 input (N, {', '.join(map(str, SHAPE))}) and one output (N, {CLASSES}), N free"
        raise Refused(f"The file has another form: expected {wanted}.")
    return export.precision_of(model)


def _form(value):
    """(element type, sides behind a free batch), or None for another form."""
    kind, sides = value.type.tensor_type.elem_type, value.type.tensor_type.shape.dim
    if not sides or sides[0].HasField("dim_value"):
        return None
    return kind, tuple(side.dim_value for side in sides[1:])


def require_meaning(meant, found, asked):
    """The engine's answers are those of the file as it is written.

    meant, found  (n, 10) answers of the file, and of the engine
    asked         a structured array of how each was asked: "place" in its batch, "alone", "changed", "late"
    """
    if np.isnan(found).any() or not np.isfinite(found).all():
        raise Refused("Some answers are not numbers.")
    if float(np.ptp(found, axis=0).max()) == 0:
        raise Refused("It answers the same whatever the picture is.")
    wrong = np.linalg.norm(found - meant, axis=1) > ROW_ERROR * np.linalg.norm(meant, axis=1)
    db = sqnr_db(meant, found)
    if db >= ENGINE_DB and wrong.mean() <= 0.02:
        return
    raise Refused(f"{_pattern(wrong, asked)} (parity {db:.0f} dB, {ENGINE_DB:g} dB are needed)")


def _pattern(wrong, asked):
    """In words, when answers are other than the file's."""
    if asked["late"].mean() > 0.1:
        return "It hands answers over before they are computed, and fills them in later: timed without synchronisation"
    thirds = [part.mean() for part in np.array_split(wrong[~asked["alone"]], 3)]
    if max(thirds) - min(thirds) > 0.3:
        return "It changes while it is asked: a different network per call"
    shares = {  # where it is wrong, where not: in words
        "Known pictures are answered from memory, changed ones by the file: work moved out of the timed region":
            (~asked["changed"], asked["changed"]),
        "Single pictures, which are timed, are answered by another network than batches":
            (asked["alone"], ~asked["alone"]),
        "Batches are answered by another network than single pictures": (~asked["alone"], asked["alone"]),
        "A batch is answered in part: its first pictures by the file, its last ones not":
            (asked["place"] >= 8, asked["place"] < 2),
    }  # fmt: skip
    rate = {words: wrong[there].mean() - wrong[elsewhere].mean() for words, (there, elsewhere) in shares.items()}
    words = max(rate, key=rate.get)
    if rate[words] > 0.3:
        return words
    return "The engine answers something else than the file means"


def require_steady(first, again):
    """Pictures asked in a batch and once more alone have the same answers, (n, 10) each: by file and engine."""
    wrong = np.linalg.norm(first - again, axis=1) > ROW_ERROR * np.linalg.norm(first, axis=1)
    if wrong.mean() > 0.05:
        raise Refused(f"The same picture gets another answer when it is asked again: {wrong.mean():.0%} of them.")


def require_unseen(right, reference, exam):
    """It knows clothes, not the file of test images.

    This finds a whole memory, not a part of one. A few stored answers pass it, and gain nothing: a medal counts the
    changed copies alone.

    right, reference  (2 n,) bool: whether it, and the reference network, answered right; `exam` an `order.Exam`
    """
    hard = ~reference
    share, least = right[hard].mean(), KNOWS + 1.64 * 0.5 / max(hard.sum(), 1) ** 0.5
    if hard.sum() >= 20 and share > least:
        raise Refused(
            f"It knows {share:.0%} of what the reference network gets wrong: labels of test images are in it."
        )
    mine, other = (exam.forms(each.astype(float)) for each in (right, reference))
    lost = bootstrap_paired(other[0] - other[1], mine[0] - mine[1])
    if lost.low > FORGETS:
        raise Refused(
            f"It forgets {100 * lost.median:.0f} points more than the reference when pictures move by a pixel: "
            "answers of the test images are stored in it."
        )


def require_inside(computed, timed):
    """It computed while it was asked, and not before or after. Both in seconds, over all timed calls."""
    times, besides = OUTSIDE
    if computed > times * timed + besides:
        raise Refused(f"It computed {computed:.1f} s for {timed:.1f} s of calls: work outside the timed region.")


def require_ready(times, reference):
    """Its calls waited for a core no more often than those of the reference network.

    times, reference  [(seconds, seconds without waiting)] per call, from the same rounds
    Waiting is not counted, so a main thread that gives way to threads of its own would look fast. Only Linux tells how
    long a thread waited; elsewhere nothing is taken off, and there is nothing to find.
    """
    mine, usual = (np.mean([left < spent / 2 for spent, left in each]) for each in (times, reference))
    if mine > usual + WAITS:
        raise Refused(
            f"In {mine:.0%} of its calls it waited for a core for more than half of the time, the reference in "
            f"{usual:.0%}: it gives way to work of its own. Without such work, score it again on a quiet machine."
        )
