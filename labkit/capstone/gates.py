"""The checks by which the judge finds cheats: each raises a LabError for one kind of cheating.

The first check looks at the submitted file, the others look at its answers.
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
ROW_ERROR = 0.5  # a distance of more than this share of a row's length makes another answer
# most pictures, as a share, whose answer may differ from that of the file as written
MAX_DIFFERENT_FROM_FILE = 0.02
# most pictures, as a share, whose answer may differ when they are asked alone
MAX_DIFFERENT_ALONE = 0.05
# share of the right answers that a file may lose from originals to copies, beyond what the
# reference network loses; a linear classifier loses 0.11
FORGETS = 0.12
KNOWS = 0.5  # share of the pictures that the reference network gets wrong and a file may get right
MIN_HARD = 20  # pictures that the reference network gets wrong, to judge by them


def require_plain(model: onnx.ModelProto) -> None:
    """Raise LabError unless a file is a plain network from (N, 1, 28, 28) to (N, 10).

    It has one input and one output, both float32, for any N. A plain network has all weights
    inside, draws no random numbers, and has no branches or loops.
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
    """Return (element type, (sides without the batch)) of an input or output of a graph.

    Returns None where the batch has a fixed size, or where the graph does not say the sides.
    """
    sides = dims(value)
    if not sides or isinstance(sides[0], int):
        return None
    return value.type.tensor_type.elem_type, sides[1:]


def require_steady(batched: np.ndarray, single: np.ndarray) -> None:
    """Raise LabError unless a picture alone gets the answer that it gets in a batch.

    At most the share `MAX_DIFFERENT_ALONE` of the pictures may get another answer.

    batched, single  (n, 10) answers to the same pictures
    """
    _require_numbers(batched, single)
    different = _share_of_different_rows(batched, single)
    if different > MAX_DIFFERENT_ALONE:
        raise LabError(
            f"The same picture gets another answer when it is asked again: {different:.0%} of them."
        )


def require_as_written(as_written: np.ndarray, engine_answers: np.ndarray) -> None:
    """Raise LabError unless the engine computes what the file says.

    It raises in three cases: the signal-to-noise ratio of the engine's answers is below `ENGINE_DB`
    decibels; more than the share `MAX_DIFFERENT_FROM_FILE` of the pictures get another answer; all
    pictures get the same answer.

    as_written      (n, 10) answers of the file in ONNX Runtime without graph optimizations
    engine_answers  (n, 10) answers of the submission's engine to the same pictures
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
    """Return the fraction of rows in which two arrays of answers differ, 0 to 1.

    A row differs if its distance from the other array's row is more than `ROW_ERROR` of its length.

    rows, other_rows  (n, 10) answers
    """
    distances = np.linalg.norm(rows - other_rows, axis=1)
    return np.mean(distances > ROW_ERROR * np.linalg.norm(rows, axis=1))


def require_unseen(right: np.ndarray, reference_right: np.ndarray, exam: Exam) -> None:
    """Raise LabError for a file that has learned the test images by heart.

    It notices a file that has stored most of the test set. It does not notice a file that has
    stored a few answers. But these gain nothing, because a medal counts only the changed copies.

    right            (2 n,) bool: whether the file answered each picture right
    reference_right  (2 n,) bool: whether the reference network answered each picture right
    exam             the pictures, in the order of both arrays
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
