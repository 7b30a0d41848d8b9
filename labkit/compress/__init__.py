"""Make a trained network smaller: prune it, train a smaller one by distillation, or code its file.

    # set the 90 % smallest weights to 0, at once
    apply_masks(network, magnitude_masks(network, 0.9))
    # set more and more weights to 0 while the network trains
    fit(network, train, config, device=device, hooks={"prune": GradualPruning(0.9, steps=1000)})
    # remove whole channels
    smaller = without_channels(network, images, 0.5)
    # train a small network to answer like a large one
    fit(student, train, config, device=device, hooks={"loss": Loss(Distillation(teacher))})
    # store zeros and repeated values in few bits
    save("network.onnx.gz", "network.onnx")

Each file holds one technique. Its docstring says when to use the technique, what it costs and when
not to use it.

Each function is imported when it is first used. So a process that only reads coded files does not
import torch, which takes seconds. The program that grades lesson 20 is such a process.
"""

from labkit.on_demand import offered

_OFFERED = {
    "channels": ("without_channels",),
    "coded": ("load", "save"),
    "distillation": ("Distillation", "distillation_loss"),
    "gradual": ("GradualPruning",),
    "magnitude": ("apply_masks", "magnitude_masks", "prunable", "sparsity_of"),
}


def __getattr__(name):
    return offered(__name__, _OFFERED, name)
