"""A trained network from what `labkit train` left."""

from pathlib import Path

import torch

from labkit import models
from labkit.errors import LabError
from labkit.train.checkpoint import CheckpointError, load_checkpoint


def restored(checkpoint):
    """(network in eval mode, its name, the data set's name) of a checkpoint `DATASET-MODEL.json`.

    checkpoint  path of the sidecar
    Raises      CheckpointError when it is damaged, or its name or its weights fit no network of the course
    """
    path = Path(checkpoint)
    model = max((name for name in models.names() if path.stem.endswith(f"-{name}")), key=len, default=None)
    if model is None:
        raise LabError(
            f"{path.name} does not say which network it is of.",
            expected="a checkpoint named DATASET-MODEL.json, with a MODEL of " + " or ".join(models.names()),
            found=path.name,
            fix="train it with `labkit train`, or rename it",
        )
    found = load_checkpoint(path)
    if found is None:
        raise LabError(f"There is no checkpoint {path}.", expected="a file", fix="train one with `labkit train`")
    weights = found[0]["model"]
    torch.manual_seed(0)
    network, _ = models.build(model, classes=len(list(weights.values())[-1]))  # the last is the bias of the head
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(
            f"The checkpoint {path} is not of {model}.",
            expected="its layers",
            found=str(error).splitlines()[-1].strip(),
        ) from None
    return network.eval(), model, path.stem.removesuffix(f"-{model}")
