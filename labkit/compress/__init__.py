"""Making a trained network itself smaller, one technique a file, each under a card that says when it does not help.

apply_masks(network, magnitude_masks(network, 0.9))                 # prune once
fit(network, train, config, device=device, hooks={"prune": GradualPruning(0.9, steps=1000)})
fit(network, train, config, device=device, hooks={"share": SharedWeights(bits=4)})
smaller = without_channels(network, images, 0.5)                    # whole channels
fit(student, train, config, device=device, hooks={"loss": Loss(Distillation(teacher))})
save(path, folded(network), "vgg-medium", shape=(1, 28, 28))        # one file, as small as its weights allow
load(path).network
"""
# ruff: noqa: F401 (what is offered here)

from labkit.compress.channels import without_channels
from labkit.compress.deep import DeepRecipe, compress_by_name, deep_compression
from labkit.compress.distillation import Distillation, distillation_loss
from labkit.compress.gradual import GradualPruning
from labkit.compress.magnitude import apply_masks, magnitude_masks, prunable, sparsity_of
from labkit.compress.packed import folded, load, save
from labkit.compress.sharing import SharedWeights, share
