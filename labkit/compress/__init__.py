"""Makes a trained network smaller: one technique per file, with a card on when to use it.

apply_masks(network, magnitude_masks(network, 0.9))  # prune once
fit(network, train, config, device=device, hooks={"prune": GradualPruning(0.9, steps=1000)})
smaller = without_channels(network, images, 0.5)  # remove whole channels
fit(student, train, config, device=device, hooks={"loss": Loss(Distillation(teacher))})
save("network.onnx.gz", "network.onnx")  # zeros and shared values in few bits

Each function is imported when it is first used. The judge of lesson 20 reads coded files in
processes without torch, because the import of torch takes longer than the exam.
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
