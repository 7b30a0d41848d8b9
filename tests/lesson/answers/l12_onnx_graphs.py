"""Answers to the exercises of lesson 12: wrong ones that must be rejected, right ones written
differently.
"""

import numpy as np
import onnx
from onnx import numpy_helper

from labkit.lesson.exercises.l12_onnx_graphs import (
    by_shape,
    fold_batch_norm,
    fuse_padding,
    is_constant,
    parity,
)

# --- parity ---


def differences(reference, program, batches):
    """The difference of every output, as a share of its largest number, in the order of the
    batches.
    """
    for batch in batches:
        for expected, output in zip(reference(batch), program(batch), strict=True):
            if output.shape != expected.shape or np.isnan(output).any():
                yield np.inf
            else:
                yield np.abs(output - expected).max() / np.abs(expected).max()


def mean_of_differences(reference, program, batches):
    return float(np.mean(list(differences(reference, program, batches))))


def last_batch_alone(reference, program, batches):
    return parity(reference, program, batches[-1:])


def first_output_alone(reference, program, batches):
    return parity(lambda batch: reference(batch)[:1], lambda batch: program(batch)[:1], batches)


def without_abs(reference, program, batches):
    worst = 0.0
    for batch in batches:
        for expected, output in zip(reference(batch), program(batch), strict=True):
            if output.shape != expected.shape or np.isnan(output).any():
                return np.inf
            worst = max(worst, (output - expected).max() / np.abs(expected).max())
    return worst


def not_as_a_share(reference, program, batches):
    worst = 0.0
    for batch in batches:
        for expected, output in zip(reference(batch), program(batch), strict=True):
            if output.shape != expected.shape or np.isnan(output).any():
                return np.inf
            worst = max(worst, np.abs(output - expected).max())
    return worst


def largest_with_its_sign(reference, program, batches):
    worst = 0.0
    for batch in batches:
        for expected, output in zip(reference(batch), program(batch), strict=True):
            if output.shape != expected.shape or np.isnan(output).any():
                return np.inf
            worst = max(worst, np.abs(output - expected).max() / expected.max())
    return worst


def blind_to_nan(reference, program, batches):
    worst = 0.0
    for batch in batches:
        for expected, output in zip(reference(batch), program(batch), strict=True):
            if output.shape != expected.shape:
                return np.inf
            difference = np.abs(output - expected).max() / np.abs(expected).max()
            if difference > worst:
                worst = difference
    return worst


def blind_to_shapes(reference, program, batches):
    worst = 0.0
    for batch in batches:
        for expected, output in zip(reference(batch), program(batch), strict=True):
            if np.isnan(output).any():
                return np.inf
            worst = max(worst, np.abs(output - expected).max() / np.abs(expected).max())
    return worst


# --- sizes ---


def only_wrong_ones(error_at, batches, tolerance=1e-4):
    verdicts = by_shape(error_at, batches, tolerance)
    return {shape: verdict for shape, verdict in verdicts.items() if verdict != "right"}


def nan_is_right(error_at, batches, tolerance=1e-4):
    def judged(batch):
        return 0.0 if np.isnan(error_at(batch)) else error_at(batch)

    return by_shape(judged, batches, tolerance)


def refused_is_wrong(error_at, batches, tolerance=1e-4):
    verdicts = by_shape(error_at, batches, tolerance)
    return {shape: verdict.replace("refused", "wrong") for shape, verdict in verdicts.items()}


def batch_sizes_as_keys(error_at, batches, tolerance=1e-4):
    return {shape[0]: verdict for shape, verdict in by_shape(error_at, batches, tolerance).items()}


def fixed_tolerance(error_at, batches, tolerance=1e-4):
    return by_shape(error_at, batches)


def value_errors_alone(error_at, batches, tolerance=1e-4):
    verdicts = {}
    for batch in batches:
        try:
            verdicts[batch.shape] = "right" if error_at(batch) <= tolerance else "wrong"
        except ValueError:
            verdicts[batch.shape] = "refused"
        except RuntimeError:
            verdicts[batch.shape] = "wrong"
    return verdicts


def by_comprehension(error_at, batches, tolerance=1e-4):
    def verdict(batch):
        try:
            error = error_at(batch)
        except Exception:
            return "refused"
        return ("wrong", "right")[bool(error <= tolerance)]

    return {batch.shape: verdict(batch) for batch in batches}


# --- constants ---


def textbook_rule(node, stored):
    return node.op_type != "CastLike" and is_constant(node, stored)


def every_cast_like(node, stored):
    return node.op_type == "CastLike" or is_constant(node, stored)


def any_input(node, stored):
    if (
        node.op_type == "CastLike"
        or node.op_type.startswith("Random")
        or node.op_type in ("Bernoulli", "Dropout")
    ):
        return is_constant(node, stored)
    return any(name in stored for name in node.input) or not node.input


def draws_are_constant(node, stored):
    if node.op_type == "CastLike":
        return node.input[0] in stored
    return all(name in stored for name in node.input if name)


def left_out_is_unknown(node, stored):
    return is_constant(node, stored) and "" not in node.input


def without_inputs_is_unknown(node, stored):
    return is_constant(node, stored) and bool(node.input)


def by_sets(node, stored):
    needed = set(node.input[:1] if node.op_type == "CastLike" else node.input) - {""}
    draws = "Random" in node.op_type or node.op_type in {"Bernoulli", "Dropout", "Multinomial"}
    return not draws and needed <= set(stored)


def as_a_number(node, stored):
    return int(is_constant(node, stored))


# --- batch norm ---


def forget_eps(weight, bias, gamma, beta, mean, var, eps):
    return fold_batch_norm(weight, bias, gamma, beta, mean, var, 0.0)


def divide_by_the_variance(weight, bias, gamma, beta, mean, var, eps):
    scale = gamma / (var + eps)
    return weight * scale[:, None, None, None], (bias - mean) * scale + beta


def leave_the_old_bias(weight, bias, gamma, beta, mean, var, eps):
    scale = gamma / np.sqrt(var + eps)
    return weight * scale[:, None, None, None], bias + beta - mean * scale


def scale_the_inputs(weight, bias, gamma, beta, mean, var, eps):
    scale = gamma / np.sqrt(var + eps)
    return weight * scale[None, :, None, None], (bias - mean) * scale + beta


def fold_in_place(weight, bias, gamma, beta, mean, var, eps):
    scale = gamma / np.sqrt(var + eps)
    weight *= scale[:, None, None, None]
    return weight, (bias - mean) * scale + beta


def fold_with_einsum(weight, bias, gamma, beta, mean, var, eps):
    factor = gamma * (var + eps) ** -0.5
    return np.einsum("o,oihw->oihw", factor, weight), beta - factor * (mean - bias)


def fold_channel_by_channel(weight, bias, gamma, beta, mean, var, eps):
    weight, bias = weight.copy(), bias.copy()
    for channel in range(len(weight)):
        factor = gamma[channel] / np.sqrt(var[channel] + eps)
        weight[channel] *= factor
        bias[channel] = (bias[channel] - mean[channel]) * factor + beta[channel]
    return weight, bias


# --- padding ---


def fused(places=(2, 3, 6, 7), *, add=True, check_value=True, check_readers=True, remove=True):
    """An answer that differs from the reference in what is given."""

    def fuse(model):
        graph = model.graph
        stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        writer = {node.output[0]: node for node in graph.node}
        for conv in [node for node in graph.node if node.op_type == "Conv"]:
            pad = writer.get(conv.input[0])
            if pad is None or pad.op_type != "Pad":
                continue
            readers = [node for node in graph.node if pad.output[0] in node.input]
            if (check_readers and len(readers) > 1) or (check_value and stored[pad.input[2]] != 0):
                continue
            own = next(attribute for attribute in conv.attribute if attribute.name == "pads")
            sides = stored[pad.input[1]][list(places)]
            own.ints[:] = (np.array(own.ints) * add + sides).tolist()
            conv.input[0] = pad.input[0]
            if len(readers) > 1:
                readers[1].input[0] = pad.input[0]
            if remove:
                graph.node.remove(pad)
        return model

    return fuse


def first_pad_alone(model):
    """Takes the first Pad for the one before the convolution, whatever stands there."""
    fuse_padding(model)
    return model if any(node.op_type == "Pad" for node in model.graph.node) else model.graph


def fuse_a_copy(model):
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    return fuse_padding(copied)


def fuse_from_the_pads(model):
    """Goes from each Pad to the convolution behind it, and writes a new attribute."""
    graph = model.graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        readers = [other for other in graph.node if node.output[0] in other.input]
        alone = len(readers) == 1 and readers[0].op_type == "Conv"
        if node.op_type != "Pad" or not alone or arrays[node.input[2]].any():
            nodes.append(node)
            continue
        (conv,) = readers
        begins, ends = arrays[node.input[1]].reshape(2, 4)[:, 2:].tolist()
        before = next(attribute for attribute in conv.attribute if attribute.name == "pads")
        sides = [old + new for old, new in zip(before.ints, begins + ends, strict=True)]
        conv.attribute.remove(before)
        conv.attribute.append(onnx.helper.make_attribute("pads", sides))
        conv.input[0] = node.input[0]
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)
    return model


WRONG = {
    "parity": {
        "means": mean_of_differences,
        "the last batch": last_batch_alone,
        "the first output": first_output_alone,
        "without abs": without_abs,
        "not as a share": not_as_a_share,
        "a share of the largest with its sign": largest_with_its_sign,
        "blind to NaN": blind_to_nan,
        "blind to shapes": blind_to_shapes,
    },
    "by-shape": {
        "leaves out the right ones": only_wrong_ones,
        "NaN is right": nan_is_right,
        "refused is wrong": refused_is_wrong,
        "sizes of the batch as keys": batch_sizes_as_keys,
        "a fixed tolerance": fixed_tolerance,
        "catches one kind of error": value_errors_alone,
    },
    "is-constant": {
        "does not know CastLike": textbook_rule,
        "every CastLike": every_cast_like,
        "one stored input is enough": any_input,
        "draws are constant": draws_are_constant,
        "an input left out is not stored": left_out_is_unknown,
        "no inputs, no constant": without_inputs_is_unknown,
    },
    "fold-batch-norm": {
        "changes the weight it was given": fold_in_place,
        "forgets eps": forget_eps,
        "divides by the variance": divide_by_the_variance,
        "does not scale the old bias": leave_the_old_bias,
        "scales the input channels": scale_the_inputs,
    },
    "fuse-padding": {
        "takes the first four numbers": fused((0, 1, 2, 3)),
        "top, bottom, left, right": fused((2, 6, 3, 7)),
        "begins and ends exchanged": fused((6, 7, 2, 3)),
        "forgets the padding of the convolution": fused(add=False),
        "pads with ones as with zeros": fused(check_value=False),
        "takes the padding from another reader": fused(check_readers=False),
        "leaves the Pad in the graph": fused(remove=False),
        "returns the graph": first_pad_alone,
    },
}

RIGHT = {
    "parity": {
        "as a generator": lambda *given: max(differences(*given), default=0.0),
        "as a number of Python": lambda *given: float(parity(*given)),
    },
    "by-shape": {
        "by a comprehension": by_comprehension,
        "in another order": lambda *given: dict(reversed(by_shape(*given).items())),
    },
    "is-constant": {"by sets": by_sets, "as a number": as_a_number},
    "fold-batch-norm": {
        "with einsum": fold_with_einsum,
        "channel by channel": fold_channel_by_channel,
        "as a list": lambda **case: list(fold_with_einsum(**case)),
    },
    "fuse-padding": {"on a copy": fuse_a_copy, "from the Pad nodes": fuse_from_the_pads},
}
