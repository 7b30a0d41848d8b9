"""Making a trained network itself smaller, one technique a file, each under a card that says when
it does not help.

apply_masks(network, magnitude_masks(network, 0.9))                 # prune once
fit(network, train, config, device=device, hooks={"prune": GradualPruning(0.9, steps=1000)})
smaller = without_channels(network, images, 0.5)                    # whole channels
fit(student, train, config, device=device, hooks={"loss": Loss(Distillation(teacher))})
save("network.onnx.gz", "network.onnx")                             # zeros and shared values in few
                                                                    bits
"""
# ruff: noqa: F401 (what is offered here)

from labkit.compress.channels import without_channels
from labkit.compress.coded import load, save
from labkit.compress.distillation import Distillation, distillation_loss
from labkit.compress.gradual import GradualPruning
from labkit.compress.magnitude import apply_masks, magnitude_masks, prunable, sparsity_of
