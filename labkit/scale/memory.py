"""ZeRO: who keeps what, when k workers train one network.

What     weights, gradients and optimizer state are cut into k parts, each kept by one worker, and fetched when needed
When     a network with its optimizer does not fit one GPU, though its activations do
Cost     stages 1 and 2 send as much as plain data parallelism; stage 3 (FSDP) half as much again
Not when the network fits: each layer then waits for weights that could have been there
Source   Rajbhandari, Rasley, Ruwase, He 2019, arXiv:1910.02054
"""

from labkit.errors import LabError

STAGES = ("all kept by all", "1: optimizer sharded", "2: and gradients", "3: and weights")
OPTIMIZER = 12  # bytes per weight of Adam in mixed precision: the weight, and two moments of its gradient, in fp32


def zero_bytes(weights, workers, stage, *, weight=2, gradient=2, optimizer=OPTIMIZER):
    """Bytes per GPU of a network in training, without activations.

    weights   how many there are
    stage     0 (plain data parallelism) to 3
    weight, gradient, optimizer  bytes per weight of each kind; the defaults are those of Adam in mixed precision
    """
    if stage not in range(len(STAGES)) or workers < 1:
        raise LabError(
            "ZeRO has no such setting.", expected="stage 0 to 3, 1 worker or more", found=f"{stage=}, {workers=}"
        )
    kinds = (optimizer, gradient, weight)  # in the order in which the stages shard them
    return weights * sum(each / workers if place < stage else each for place, each in enumerate(kinds))
