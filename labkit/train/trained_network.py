"""Build the network that a checkpoint of labkit train holds."""

import re
from pathlib import Path

from labkit import models
from labkit.errors import LabError
from labkit.train.checkpoint import CheckpointError, damage_in_words, load_checkpoint


def restored(checkpoint):
    """Load the network that was tested from a checkpoint: the last weights, or their average.

    (arguments, returns, Raises as they are; "its name" -> "name of the network")
    """
    path = Path(checkpoint)
    stem = re.sub(r"\.[\w-]+$", "", path.stem)  # without .NAME
    names = [name for name in models.names() if stem.endswith(f"-{name}")]
    name = max(names, key=len, default=None)
    contents = load_checkpoint(path) if name else None
    if contents is None:
        problem = f"{path.name} does not say which network it is of."
        if name:
            problem = f"There is no checkpoint {path}."
        raise LabError(
            problem,
            expected="a file DATASET-MODEL.pt or DATASET-MODEL.NAME.pt, with a MODEL of "
            + " or ".join(models.names()),
            found=path.name,
            fix="train one with `labkit train`, or rename it",
        )
    state, facts = contents
    with damage_in_words(
        f"The file {path} is whole, but holds no network of labkit.",
        "train one with `labkit train`",
    ):
        network, shape = _network(path, name, _tested_weights(state, facts))
        side = facts.get("config", {}).get("size")
        shape = (shape[0], side, side) if side else shape
    return network, name, stem.removesuffix(f"-{name}"), shape


def _tested_weights(state, facts):
    """Return the weights of the network whose accuracy was tested: {name: tensor}.

    Checkpoints of earlier editions do not store these weights. For such a checkpoint, the average
    of the weights is taken from the state of the method that made it (`ema` or `schedule_free`).
    The running statistics of batch norm are those of the last weights, because the earlier editions
    used them in their tests.

    state, facts  as `load_checkpoint` returns them
    """
    config = facts.get("config", {})
    if "tested" in state:
        return state["tested"]
    if config.get("ema") is not None:
        average = {name: tensor for name, tensor in state["ema"].items() if name != "n_averaged"}
        return {name.removeprefix("module."): tensor for name, tensor in average.items()}
    tested = dict(state["model"])
    if config.get("optimizer") == "schedule_free":
        for group in state["optimizer"]["param_groups"]:
            for index, name in zip(group["params"], group["param_names"], strict=True):
                tested[name] = state["optimizer"]["state"].get(index, {}).get("x", tested[name])
    return tested


def _network(path, name, weights):
    """Return (network in eval mode with these weights, shape of its input without the batch).

    path     path of the checkpoint, for the error
    name     name of the network
    weights  {name: tensor}
    Raises   CheckpointError where the weights do not fit the network
    """
    first, *_, last = weights.values()  # a convolution (out, in, h, w), and the bias of the head
    network, shape = models.build(name, classes=len(last), like=(first.shape[1], 28, 28))
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(
            f"The checkpoint {path} is not of {name}.",
            expected="its layers",
            found=str(error).splitlines()[-1].strip(),
        ) from None
    return network.eval(), shape
