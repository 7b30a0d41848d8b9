"""An encoder of BERT-base's size: fp32, fp16, compiled or not, batch 1 to 256."""

import functools

import torch

from labkit.gpu.arms import Arm
from labkit.gpu.bench import Bench, measure
from labkit.models.encoder import Encoder

LENGTH = 128  # tokens of a sequence
VOCABULARY = 30_522  # tokens that BERT knows
BATCHES = (1, 16, 64, 256)
FORMATS = {"fp32": torch.float32, "fp16": torch.float16}


def bert(bench: Bench) -> None:
    """Measure four forms at four batch sizes; each is compared with fp32, not compiled, at the same
    batch.

    The compiled forms are two for each precision: one for a single sequence, and one for all larger
    batches.
    """
    encoders = functools.cache(functools.partial(encoder_of, bench))

    @functools.cache
    def compiled_encoders(precision, single):
        return bench.compiled(encoders(precision), dynamic=not single)

    groups = []
    for batch in bench.size(BATCHES, (1, 2)):
        group = {}
        for compiled in (False, True):
            for precision in FORMATS:
                forms = compiled_encoders if compiled else None
                arm = arm_of(batch, precision, compiled)
                group[arm] = functools.partial(call_of, bench, encoders, forms, arm)
        groups.append(group)
    measure(bench, groups, "forward", against=uncompiled_fp32, seconds=0.3, race_seconds=4.0)


def arm_of(batch, precision, compiled):
    """Return the arm of one form at one batch size."""
    return Arm(
        "bert-batches",
        variant="encoder",
        batch=batch,
        precision=precision,
        compiled=compiled,
        network="bert-base size",
    )


def uncompiled_fp32(arm):
    """Return the arm that an arm is compared with."""
    return arm_of(arm.batch, "fp32", compiled=False)


def encoder_of(bench, precision):
    """Return the encoder in a precision: 12 layers, 768 wide, 12 heads, an inner width of 3,072."""
    torch.manual_seed(0)
    if bench.tiny:
        encoder = Encoder(16, 1, heads=2, vocabulary=VOCABULARY, longest=LENGTH)
    else:
        encoder = Encoder(768, 12, heads=12, vocabulary=VOCABULARY, longest=512)
    return encoder.to(bench.device, FORMATS[precision]).eval()


def call_of(bench, encoders, compiled, arm):
    """Return a function that runs an encoder on random sequences of full length.

    compiled  function (precision, a single sequence) -> the compiled form; None: the encoder itself
              is called
    """
    forward = compiled(arm.precision, arm.batch == 1) if compiled else encoders(arm.precision)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(
        1, VOCABULARY, (arm.batch, bench.size(LENGTH, 8)), generator=generator
    ).to(bench.device)

    def run():
        with torch.inference_mode():
            return forward(tokens)

    return run
