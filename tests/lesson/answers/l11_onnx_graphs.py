"""Answers to the exercises of lesson 11: wrong ones that must be rejected, right ones written differently."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

from labkit.lesson.exercises.l11_onnx_graphs import fold_batch_norm, repair_graph


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


def change_the_name_only(model):
    for node in model.graph.node:
        if node.op_type == "Swish":
            node.op_type, node.domain = "Sigmoid", ""
            del node.attribute[:]
    return model


def keep_swish_of_a_newer_opset(model):
    """Opset 24 has a `Swish` of its own: the answers are right, but the nodes are still there."""
    for node in model.graph.node:
        if node.op_type == "Swish":
            node.domain = ""
            for attribute in node.attribute:
                attribute.name = "alpha"
    model.opset_import[0].version = 24
    return model


def ignore_beta(model):
    for node in model.graph.node:
        del node.attribute[:]
    return repair_graph(model)


def use_one_name_for_all(model):
    repaired = repair_graph(model)
    for node in repaired.graph.node:
        for names in (node.input, node.output):
            names[:] = ["gate" if name.endswith(("_gate", "_scaled")) else name for name in names]
    return repaired


def append_at_the_end(model):
    repaired = repair_graph(model)
    nodes = list(repaired.graph.node)
    ours = [node for node in nodes if node.op_type in ("Mul", "Sigmoid")]
    del repaired.graph.node[:]
    repaired.graph.node.extend([node for node in nodes if node not in ours] + ours)
    return repaired


def fold_with_einsum(weight, bias, gamma, beta, mean, var, eps):
    factor = gamma * (var + eps) ** -0.5
    return np.einsum("o,oihw->oihw", factor, weight), beta + factor * (bias - mean)


def fold_channel_by_channel(weight, bias, gamma, beta, mean, var, eps):
    folded, shift = np.empty_like(weight), np.empty_like(bias)
    for channel in range(len(gamma)):
        factor = gamma[channel] / (var[channel] + eps) ** 0.5
        folded[channel] = factor * weight[channel]
        shift[channel] = factor * (bias[channel] - mean[channel]) + beta[channel]
    return folded, shift


def fold_in_place(weight, bias, gamma, beta, mean, var, eps):
    factor = gamma / np.sqrt(var + eps)
    weight *= factor[:, None, None, None]
    return weight, (bias - mean) * factor + beta


def repair_with_constants(model):
    repaired = []
    for number, node in enumerate(model.graph.node):
        if node.op_type != "Swish":
            repaired.append(node)
            continue
        beta = ([a.f for a in node.attribute if a.name == "beta"] or [1.0])[0]
        names = [f"s{number}{part}" for part in "abc"]
        value = helper.make_tensor(f"{names[0]}_value", onnx.TensorProto.FLOAT, [], [beta])
        repaired.append(helper.make_node("Constant", [], [names[0]], value=value))
        repaired.append(helper.make_node("Mul", [names[0], node.input[0]], [names[1]]))
        repaired.append(helper.make_node("Sigmoid", [names[1]], [names[2]]))
        repaired.append(helper.make_node("Mul", [names[2], node.input[0]], [node.output[0]]))
    model.graph.ClearField("node")
    model.graph.node.extend(repaired)
    return model


def repair_a_copy(model):
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    return repair_graph(copied)


WRONG = {
    "fold-batch-norm": {
        "changes the weight it was given": fold_in_place,
        "forgets eps": forget_eps,
        "divides by the variance": divide_by_the_variance,
        "does not scale the old bias": leave_the_old_bias,
        "scales the input channels": scale_the_inputs,
    },
    "repair-graph": {
        "only changes the name": change_the_name_only,
        "leaves Swish, of a newer opset": keep_swish_of_a_newer_opset,
        "ignores beta": ignore_beta,
        "gives all inner tensors one name": use_one_name_for_all,
        "appends the new nodes at the end": append_at_the_end,
    },
}


def repaired_and(change):
    def answer(model):
        found = repair_graph(model)
        change(found)
        return found

    return answer


def rename_nodes(model):
    for number, node in enumerate(model.graph.node):
        node.name = f"renamed {number}"


def identity_at_the_end(model):
    model.graph.node[-1].output[0] = "before"
    model.graph.node.append(helper.make_node("Identity", ["before"], ["output"]))


def drop_attributes(model):
    for node in model.graph.node:
        del node.attribute[:]


def halve_weights(model):
    for each in model.graph.initializer:
        short = numpy_helper.to_array(each).astype(np.float16).astype(np.float32)
        each.CopyFrom(numpy_helper.from_array(short, each.name))


def rename_the_output(model):
    model.graph.output[0].name = model.graph.node[-1].output[0] = "other"


def lower_the_opset(model):
    model.opset_import[0].version = 17


def any_attribute(model):
    for node in model.graph.node:
        for attribute in list(node.attribute)[:1] if node.op_type == "Swish" else ():
            attribute.name = "beta"
    return repair_graph(model)


def other_beta(change):
    """The repaired graph, each beta changed."""

    def answer(model):
        for node in model.graph.node:
            if node.op_type == "Swish":
                beta = next((a.f for a in node.attribute if a.name == "beta"), None)
                del node.attribute[:]
                node.attribute.append(helper.make_attribute("beta", float(change(beta))))
        return repair_graph(model)

    return answer


def names_by_the_input(model):
    """Names the new tensors after what a Swish reads: two that read the same give the same names."""
    found, old = repair_graph(model), {}
    for node in found.graph.node:
        if node.op_type == "Mul" and node.output[0].endswith("_scaled"):
            old[node.output[0]] = f"{node.input[0]}_scaled"
    for node in found.graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                names[place] = old.get(name, name)
    return found


WRONG["repair-graph"] |= {
    "names by the input": names_by_the_input,
    "takes 1 for a beta of 0": other_beta(lambda beta: beta or 1.0),
    "rounds beta": other_beta(lambda beta: 1.0 if beta is None else round(beta, 1)),
    "takes 0 for a beta that is not stated": other_beta(lambda beta: beta or 0.0),
    "takes the first attribute": any_attribute,
    **{
        change.__name__.replace("_", " "): repaired_and(change)
        for change in (
            rename_nodes, identity_at_the_end, drop_attributes, halve_weights, rename_the_output, lower_the_opset,
        )
    },
}  # fmt: skip

RIGHT = {
    "fold-batch-norm": {
        "with einsum": fold_with_einsum,
        "channel by channel": fold_channel_by_channel,
        "as a list": lambda **case: list(fold_with_einsum(**case)),
    },
    "repair-graph": {
        "with constants in the graph": repair_with_constants,
        "on a copy": repair_a_copy,
    },
}
