"""Answers to the exercises of lesson 09: wrong ones that must be rejected, right ones written differently."""

import numpy as np

from labkit.lesson.exercises.l09_onnx_graphs import fold_batch_norm, repair_graph


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


def use_all_weights(operator, weights, output):
    return int(np.prod(weights) * np.prod(output))


def forget_the_pixels(operator, weights, output):
    return int(np.prod(weights)) * output[0]


def treat_all_alike(operator, weights, output):
    return int(np.prod(output) * np.prod(weights[1:]))


def change_the_name_only(model):
    for node in model.graph.node:
        if node.op_type == "Swish":
            node.op_type, node.domain = "Sigmoid", ""
            del node.attribute[:]
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


WRONG = {
    "fold-batch-norm": {
        "forgets eps": forget_eps,
        "divides by the variance": divide_by_the_variance,
        "does not scale the old bias": leave_the_old_bias,
        "scales the input channels": scale_the_inputs,
    },
    "multiply-adds": {
        "uses all weights for every output": use_all_weights,
        "forgets that weights are used at every pixel": forget_the_pixels,
        "takes every weight for one of a convolution": treat_all_alike,
    },
    "repair-graph": {
        "only changes the name": change_the_name_only,
        "ignores beta": ignore_beta,
        "gives all inner tensors one name": use_one_name_for_all,
        "appends the new nodes at the end": append_at_the_end,
    },
}

RIGHT = {
    "fold-batch-norm": {},
    "multiply-adds": {},
    "repair-graph": {},
}
