"""The gates of the judge: each looks for one way to look better than one is, and raises a LabError
that says so.

First the one that looks at the file, then those that look at the answers.
"""

from typing import Any

import numpy as np
import onnx

from labkit.capstone.exam import Exam
from labkit.capstone.order import CLASSES, SHAPE
from labkit.engines.fidelity import ENGINE_DB
from labkit.errors import LabError
from labkit.export.inputs import dims, graph_inputs
from labkit.export.walk import inside
from labkit.measure.stats import bootstrap_paired
from labkit.quantize.integer_grid import sqnr_db

RANDOM = {
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
}
BRANCHES = {"If", "Loop", "Scan", "SequenceMap"}
ROW_ERROR = 0.5  # of the length of a row of answers: one that is farther off is another answer
# share of the pictures that may have another answer than the file as written gives
MAX_DIFFERENT_FROM_FILE = 0.02
# share of the pictures that may have another answer when they are asked alone
MAX_DIFFERENT_ALONE = 0.05
# more than the reference network does, when pictures are changed a little; a linear classifier:
# 0.11
FORGETS = 0.12
KNOWS = 0.5  # of the pictures that the reference network gets wrong
MIN_HARD = 20  # pictures that the reference network gets wrong, to judge by them


def require_plain(model: onnx.ModelProto) -> None:
    """Raise LabError unless the file is a plain network of the form asked for, with all its
    weights inside.
    """
    for tensor in inside(model, onnx.TensorProto):
        if tensor.external_data or tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise LabError(
                f"The file takes weights from another file ({tensor.name}): send one file, "
                "weights inside."
            )
    for node in inside(model, onnx.NodeProto):
        if node.op_type in RANDOM:
            raise LabError(
                f"The file answers at random ({node.op_type}): a different network per call."
            )
        if node.op_type in BRANCHES:
            raise LabError(
                f"The file chooses its way by the picture ({node.op_type}): send a plain network."
            )
    inputs = [_form(value) for value in graph_inputs(model)]
    outputs = [_form(value) for value in model.graph.output]
    if inputs != [(onnx.TensorProto.FLOAT, SHAPE)] or outputs != [
        (onnx.TensorProto.FLOAT, (CLASSES,))
    ]:
        form = (
            f"one float32 input (N, {', '.join(map(str, SHAPE))}) and one output "
            f"(N, {CLASSES}), N free"
        )
        raise LabError(f"The file has another form: expected {form}.")


def _form(value):
    """Return (element type, sides behind a free batch), or None for another form."""
    sides = dims(value)
    if not sides or isinstance(sides[0], int):
        return None
    return value.type.tensor_type.elem_type, sides[1:]


def require_steady(batched: np.ndarray, single: np.ndarray) -> None:
    """Raise LabError unless pictures have the same answers in a batch and alone, (n, 10) each."""
    _require_numbers(batched, single)
    different = _share_of_different_rows(batched, single)
    if different > MAX_DIFFERENT_ALONE:
        raise LabError(
            f"The same picture gets another answer when it is asked again: {different:.0%} of them."
        )


def require_as_written(as_written: np.ndarray, engine_answers: np.ndarray) -> None:
    """Raise LabError unless the engine's answers are those of the file as it is written, (n, 10)
    each.
    """
    _require_numbers(as_written, engine_answers)
    if float(np.ptp(engine_answers, axis=0).max()) == 0:
        raise LabError("It answers the same whatever the picture is.")
    db = sqnr_db(as_written, engine_answers)
    if (
        db < ENGINE_DB
        or _share_of_different_rows(as_written, engine_answers) > MAX_DIFFERENT_FROM_FILE
    ):
        raise LabError(
            f"The engine answers something else than the file means (parity {db:.0f} dB, "
            f"{ENGINE_DB:g} dB are needed)."
        )


def _require_numbers(*answers):
    """Raise LabError where an answer is NaN or infinite: nothing can be compared with it."""
    if not all(np.isfinite(rows).all() for rows in answers):
        raise LabError("Some answers are not numbers.")


def _share_of_different_rows(rows, other_rows):
    """Return the share of the rows, (n, 10) each, that are another answer."""
    distances = np.linalg.norm(rows - other_rows, axis=1)
    return np.mean(distances > ROW_ERROR * np.linalg.norm(rows, axis=1))


def require_unseen(right: np.ndarray, reference_right: np.ndarray, exam: Exam) -> None:
    """Raise LabError for a file that knows the test images rather than clothes.

    This finds a whole memory, not a part of one. A few stored answers pass it, and gain nothing: a
    medal counts the changed copies alone.

    right, reference_right  (2 n,) bool: whether it, and the reference network, answered right
    """
    # Is it right where the reference network is wrong, by more than chance explains?
    hard = ~reference_right
    limit = KNOWS + 1.64 * 0.5 / max(hard.sum(), 1) ** 0.5
    if hard.sum() >= MIN_HARD and right[hard].mean() > limit:
        raise LabError(
            f"It knows {right[hard].mean():.0%} of what the reference network gets wrong, so it is "
            "refused, as a file that holds labels of test images would be."
        )
    # Does it lose more right answers than the reference network from the originals to the changed
    # copies?
    originals, copies = exam.forms(right.astype(float))
    reference_originals, reference_copies = exam.forms(reference_right.astype(float))
    lost: Any = bootstrap_paired(reference_originals - reference_copies, originals - copies)
    if lost.low > FORGETS:
        raise LabError(
            f"It forgets {100 * lost.median:.0f} points more than the reference when pictures "
            "move by a pixel, so it is refused, as a file that stores answers of the test images "
            "would be."
        )
