"""Times an encoder of BERT-base's size: fp32 and fp16, compiled or not, batch 1 to 256."""

import functools

import torch

from labkit.gpu.arms import Arm
from labkit.gpu.bench import Bench
from labkit.gpu.measuring import measure
from labkit.models.encoder import Encoder

LENGTH = 128  # tokens of a sequence
VOCABULARY = 30_522  # tokens that BERT knows
BATCHES = (1, 16, 64, 256)
FORMATS = {"fp32": torch.float32, "fp16": torch.float16}


def bert(bench: Bench) -> None:
    """Measure the encoder in fp32 and fp16, each as it is and compiled, at several batch sizes.

    The baseline is fp32, not compiled, at the same batch size. In each precision the encoder is
    compiled twice: once for a single sequence, and once for all larger batches.
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
    """Return the `Arm` of the encoder for a batch size, a precision, and compiled or not."""
    return Arm(
        "bert-batches",
        variant="encoder",
        batch=batch,
        precision=precision,
        compiled=compiled,
        network="bert-base size",
    )


def uncompiled_fp32(arm):
    """Return the baseline of an arm: fp32, not compiled, at the same batch size."""
    return arm_of(arm.batch, "fp32", compiled=False)


def encoder_of(bench, precision):
    """Return the encoder in a precision: 12 layers, 768 wide, 12 heads, an inner width of 3,072.

    With tiny sizes it has one layer, 16 wide. The random weights are always the same.
    """
    torch.manual_seed(0)
    if bench.tiny:
        encoder = Encoder(16, 1, heads=2, vocabulary=VOCABULARY, longest=LENGTH)
    else:
        encoder = Encoder(768, 12, heads=12, vocabulary=VOCABULARY, longest=512)
    return encoder.to(bench.device, FORMATS[precision]).eval()


def call_of(bench, encoders, compiled, arm):
    """Return a function () that runs an encoder on random sequences of full length.

    encoders  function (precision) -> the encoder
    compiled  function (precision, True for a single sequence) -> the compiled encoder; None: the
              arm is not compiled, and the encoder itself is called
    arm       the `Arm`
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
