"""The gates: each looks for one way to look better than one is, and raises a LabError that says what it found.

First the one that looks at the file, then those that look at the answers.
"""

import numpy as np
import onnx

from labkit.engines.fidelity import ENGINE_DB
from labkit.errors import LabError
from labkit.export.inputs import dims, wanted
from labkit.export.walk import inside
from labkit.measure.stats import bootstrap_paired
from labkit.quantize.numbers import sqnr_db
from labkit.ship.order import CLASSES, SHAPE

RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
BRANCHES = {"If", "Loop", "Scan", "SequenceMap"}
ROW_ERROR = 0.5  # of a row's own length: such an answer is another one
FORGETS = 0.12  # more than the reference network does, when pictures are changed a little; a linear classifier: 0.11
KNOWS = 0.5  # of the pictures that the reference network gets wrong


def require_plain(model):
    """The ModelProto holds nothing but a plain network of the form asked for."""
    for node in inside(model, onnx.NodeProto):
        if node.op_type in RANDOM:
            raise LabError(f"The file answers at random ({node.op_type}): a different network per call.")
        if node.op_type in BRANCHES:
            raise LabError(f"The file chooses its way by the picture ({node.op_type}): send a plain network.")
    inputs, outputs = list(map(_form, wanted(model))), list(map(_form, model.graph.output))
    if inputs != [(onnx.TensorProto.FLOAT, SHAPE)] or outputs != [(onnx.TensorProto.FLOAT, (CLASSES,))]:
        form = f"one float32 input (N, {', '.join(map(str, SHAPE))}) and one output (N, {CLASSES}), N free"
        raise LabError(f"The file has another form: expected {form}.")


def _form(value):
    """(element type, sides behind a free batch), or None for another form."""
    sides = dims(value)
    if not sides or isinstance(sides[0], int):
        return None
    return value.type.tensor_type.elem_type, sides[1:]


def require_meaning(reference_answers, found):
    """The engine's answers are those of the file as it is written, (n, 10) each."""
    if not np.isfinite(found).all():
        raise LabError("Some answers are not numbers.")
    if float(np.ptp(found, axis=0).max()) == 0:
        raise LabError("It answers the same whatever the picture is.")
    db = sqnr_db(reference_answers, found)
    if db < ENGINE_DB or _differing(reference_answers, found) > 0.02:
        raise LabError(
            f"The engine answers something else than the file means (parity {db:.0f} dB, {ENGINE_DB:g} dB are needed)."
        )


def require_steady(first, again):
    """Pictures asked in a batch and once more alone have the same answers, (n, 10) each."""
    share = _differing(first, again)
    if share > 0.05:
        raise LabError(f"The same picture gets another answer when it is asked again: {share:.0%} of them.")


def _differing(rows, others):
    """The share of the rows, (n, 10) each, that are another answer."""
    distances = np.linalg.norm(rows - others, axis=1)
    return np.mean(distances > ROW_ERROR * np.linalg.norm(rows, axis=1))


def require_unseen(right, reference, exam):
    """It knows clothes, not the file of test images.

    This finds a whole memory, not a part of one. A few stored answers pass it, and gain nothing: a medal counts the
    changed copies alone.

    right, reference  (2 n,) bool: whether it, and the reference network, answered right; `exam` an `order.Exam`
    """
    hard = ~reference
    least = KNOWS + 1.64 * 0.5 / max(hard.sum(), 1) ** 0.5
    if hard.sum() >= 20 and (share := right[hard].mean()) > least:
        raise LabError(
            f"It knows {share:.0%} of what the reference network gets wrong: labels of test images are in it."
        )
    kept, changed = exam.forms(right.astype(float))
    reference_kept, reference_changed = exam.forms(reference.astype(float))
    lost = bootstrap_paired(reference_kept - reference_changed, kept - changed)
    if lost.low > FORGETS:
        raise LabError(
            f"It forgets {100 * lost.median:.0f} points more than the reference when pictures move by a pixel: "
            "answers of the test images are stored in it."
        )
