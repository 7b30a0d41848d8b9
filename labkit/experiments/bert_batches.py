"""How the speed of a BERT-base depends on engine, precision and batch: PyTorch, compiled, ONNX
Runtime, batch 1 to 256.

An encoder of BERT-base's size (12 layers, width 768, 12 heads, a vocabulary of 30,522, random
weights: they change no time) reads sequences of up to 128 tokens, in eager PyTorch, torch.compile
and ONNX Runtime, each in fp32 and fp16. On a CPU fp16 is emulated or missing: such a row is slow,
or has a reason and no time.

By default it times for sixty minutes. A batch whose calls take too long for its share of the time
has a reason and no time, and so have the larger batches: `--minutes 240` gives each batch more.
`quick`: encoder-small with 16 tokens, fp32 only, batch 1 and 4.

Source  the published table "transformer-inference" of `labkit.ledger.published`
"""

import torch

from labkit import models
from labkit.experiments._timed import timed_batches
from labkit.models.encoder import Encoder, random_tokens

MINUTES = 60
BATCHES = (1, 8, 32, 64, 128, 256)
SIZE = {"width": 768, "layers": 12, "heads": 12, "vocabulary": 30_522, "longest": 512}
ENGINES = {"PyTorch": "eager", "torch.compile": "inductor", "ONNX Runtime": "onnxruntime"}


def measure(scale):
    """Yield a `Latency` for each engine, precision and batch."""
    if scale.quick:
        network = "encoder-small"
        model = models.build(network)[0]
        precisions = ("fp32",)
        length = 16  # tokens
        batches = (1, 4)
    else:
        network = "bert-base"
        model = Encoder(**SIZE)
        precisions = ("fp32", "fp16")
        length = 128
        batches = BATCHES
    model = model.to(scale.device).eval()
    generator = torch.Generator().manual_seed(0)
    inputs = [
        random_tokens(batch, length, generator=generator).to(scale.device) for batch in batches
    ]
    seconds = scale.seconds / (len(ENGINES) * len(precisions) * len(batches))

    # The time is shared equally by all settings.
    for title, engine in ENGINES.items():
        for precision in precisions:
            row_fields = {
                "name": f"{title}, {precision}, {length} tokens",
                "network": network,
                "device": str(scale.device),
            }
            yield from timed_batches(
                engine, model, inputs, precision=precision, seconds=seconds, row_fields=row_fields
            )
