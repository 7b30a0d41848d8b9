"""What torch.compile gains in training: a ResNet-50 beside a ConvNeXt of the published size.

Each network is trained plainly and compiled, in turn, in fp32. It trains on random images of
Tiny-ImageNet's shape, whose content changes no time. There is a row for each network, plain and
compiled, at 64 x 64 pixels and batch 16, and on a GPU also at 224 x 224 and batch 128, as
published. Steps are timed, not whole epochs: the time of an epoch of 100,000 images is its number
of steps times the median step.

By default it times for four minutes; on two cores the compilations take five more. `quick`:
convnext-mini and a ResNet-18.

Source  a sentence of the README of the published table "compile-amp": a ResNet-50 gained more from
        compiling
"""

from functools import partial

import numpy as np
import torch

from labkit import device as devices
from labkit import models
from labkit.experiments.convnext_training import CLASSES, IMAGES, lacks_compiler, training_arm
from labkit.ledger.rows import Training
from labkit.measure import in_turn

MINUTES = 4
STUDY = "resnet50-compile"
FORMS = {"vanilla": False, "compile": True}
NETWORKS = ("convnext-homebrew", "resnet50")
QUICK_NETWORKS = ("convnext-mini", "resnet18")
NEEDS_GPU = "the published size, batch 128 at 224 x 224 pixels, needs a GPU, and there is none"


def measure(scale):
    """Yield the `Training`s of each network, plain and compiled, at each size of the images."""
    networks = QUICK_NETWORKS if scale.quick else NETWORKS
    sizes = [(32, 8)] if scale.quick else [(64, 16), (224, 128)]
    for pixels, batch in sizes:
        for network in networks:
            fields = {"study": STUDY, "model": network, "network": network, "batch": batch}
            fields |= {"device": str(scale.device), "threads": devices.threads()}
            fields["dataset"] = f"random images of Tiny-ImageNet's shape at {pixels} x {pixels}"
            # What cannot be measured here is a row with the reason.
            forms = []
            for form in FORMS:
                reason = _reason_against(form, pixels, scale.device)
                if reason:
                    yield Training(variant=_variant(network, form, pixels), reason=reason, **fields)
                else:
                    forms.append(form)
            # The rest is timed in turn; networks and sizes share the seconds.
            if forms:
                seconds = scale.seconds / len(networks) / len(sizes)
                yield from _trainings(
                    network,
                    forms,
                    pixels,
                    batch,
                    seconds=seconds,
                    fields=fields,
                    device=scale.device,
                )


def _variant(network, form, pixels):
    """Return the name of a row: "resnet50, 64 pixels, compile". Each row has a name of its own."""
    return f"{network}, {pixels} pixels, {form}"


def _reason_against(form, pixels, device):
    """Return the reason why a device cannot train in this form at this size; None if it can."""
    if pixels == 224 and device.type == "cpu":
        return NEEDS_GPU
    return lacks_compiler(device) if FORMS[form] else None


def _trainings(network, forms, pixels, batch, *, seconds, fields, device):
    """Yield the `Training`s of one network, one for each form.

    network  name of the network
    forms    names of `FORMS`: trained plainly, trained compiled, or both in turn
    pixels   pixels per side of the images
    batch    images per step
    seconds  seconds for all forms together
    fields   {field: value} of further fields of the rows
    """
    model = models.build(network, classes=CLASSES, like=(3, pixels, pixels))[0].to(device)
    images = torch.randn(batch, 3, pixels, pixels, device=device)
    labels = torch.randint(CLASSES, (batch,), device=device)
    steps = {}
    for form in forms:
        _, step = training_arm(model, compiled=FORMS[form])
        steps[form] = partial(step, images, labels)
    times = in_turn(steps, seconds=seconds, device=device)
    count = IMAGES // batch
    for column, form in enumerate(forms):
        dataset = (
            f"{fields['dataset']}; an epoch of {count} steps from {len(times.seconds)} rounds "
            "that were timed"
        )
        total = count * float(np.median(times.seconds[:, column]))
        variant = _variant(network, form, pixels)
        yield Training(
            variant=variant, images=count * batch, total_s=total, **fields | {"dataset": dataset}
        )
