"""Making a trained network itself smaller, one technique a file, each under a card that says when it does not help.

    keep(network, magnitude_masks(network, 0.9))                        # prune once
    fit(network, train, config, device=device, hooks={"prune": GradualPruning(0.9, steps=1000)})
    fit(network, train, config, device=device, hooks={"share": SharedWeights(bits=4)})
    smaller = without_channels(network, images, 0.5)                    # whole channels
    fit(student, train, config, device=device, loss=Distillation(teacher))
    save(path, settled(network), "vgg-medium", shape=(1, 28, 28))       # one file, as small as it says
    load(path).network

What is offered here is imported when it is first asked for.
"""

import importlib

_OFFERED = {
    "magnitude": ("keep", "lamp_scores", "magnitude_masks", "masks_of", "prunable", "sparsity_of", "top_masks"),
    "gradual": ("GradualPruning", "KeptMask", "cubic_sparsity"),
    "movement": ("MovementPruning",),
    "two_to_four": ("require_sparse_tensor_cores", "two_to_four_mask", "two_to_four_masks"),
    "sharing": ("SharedWeights", "kmeans", "share"),
    "huffman": ("canonical_codes", "code_lengths", "decode", "encode", "entropy"),
    "low_rank": ("factorize", "factorize_layer", "rank_of"),
    "channels": ("ScalePenalty", "without_channels"),
    "distillation": ("Distillation", "distillation_loss"),
    "packed": ("Packed", "load", "save", "settled"),
    "sizes": ("file_sizes",),
    "deep": ("DeepRecipe", "Stage", "compress_by_name", "deep_compression"),
}


def __getattr__(name):
    for module, names in _OFFERED.items():
        if name in names:
            return getattr(importlib.import_module(f"labkit.compress.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return [*globals(), *(name for names in _OFFERED.values() for name in names)]
