"""What an activation costs in inference: GELU, HardSwish, ReLU and FastSwish, compiled or not, at
batch 1 and 64.

A ConvNeXt of the published size (18 million weights, 224 x 224 pixels, random weights: they change
no time) serves random images in fp32. There is a row for each activation, for eager PyTorch and for
torch.compile, at each batch: sixteen in all. FastSwish is the form "function": one operation with a
backward pass of its own.

By default it times for twenty minutes; on two cores the compilations take ten more. `quick`:
convnext-mini at 28 x 28, ReLU and FastSwish, batch 1 and 8.

Source  the published table "activations" of `labkit.ledger.published`
"""

from torch import nn

from labkit import models
from labkit.experiments._timed import timed_batches
from labkit.methods.fastswish import FastSwish

MINUTES = 20
ACTIVATIONS = {"GELU": nn.GELU, "HardSwish": nn.Hardswish, "ReLU": nn.ReLU, "FastSwish": FastSwish}
ENGINES = {"eager": "eager", "compiled": "inductor"}


def measure(scale):
    """Yield a `Latency` for each activation, engine and batch."""
    if scale.quick:
        network = "convnext-mini"
        batches = (1, 8)
        activations = ("ReLU", "FastSwish")
    else:
        network = "convnext-homebrew"
        batches = (1, 64)
        activations = tuple(ACTIVATIONS)
    seconds = scale.seconds / (len(activations) * len(ENGINES) * len(batches))
    inputs = [models.example(network, batch).to(scale.device) for batch in batches]
    pixels = inputs[0].shape[-1]

    # The time is shared equally by all rows.
    for activation in activations:
        model = models.build(network, activation=ACTIVATIONS[activation])[0].to(scale.device).eval()
        for form, engine in ENGINES.items():
            row_fields = {
                "name": f"{activation}, {form}, {pixels} pixels",
                "network": network,
                "device": str(scale.device),
            }
            yield from timed_batches(engine, model, inputs, seconds=seconds, row_fields=row_fields)
