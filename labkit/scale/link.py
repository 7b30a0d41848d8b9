"""The alpha-beta model: a message of n bytes takes alpha + n / bandwidth seconds.

What     two numbers of a link, fitted to messages of many sizes; from them the time of an all-reduce
When     before you rent the machines: does a gradient of this size hide behind the backward pass?
Cost     some seconds of measuring on two workers of the kind you will use
Not when many senders share a link, or messages are so large that they leave a cache: then alpha and beta change
Source   Hockney 1994 (Parallel Computing 20); collectives: Thakur, Rabenseifner, Gropp 2005 (IJHPCA 19);
         the ring: Patarasuk, Yuan 2009 (JPDC 69)
"""

import math
import time
from dataclasses import dataclass

import numpy as np

from labkit import device as devices
from labkit.errors import MeasureError

TOGETHER_BYTES = 2**20  # of small messages in one try
TRIES = 5  # the fastest of so many is one sample: what else runs on the machine makes messages late, never early


@dataclass(frozen=True)
class Link:
    """What connects two workers.

    latency_s    alpha: seconds of a message without content
    bytes_per_s  bandwidth in one direction
    """

    latency_s: float
    bytes_per_s: float

    def message(self, size):
        """Seconds of one message of `size` bytes."""
        return self.latency_s + size / self.bytes_per_s

    def ring(self, size, workers):
        """Seconds of a ring all-reduce: 2 (k - 1) messages of size / k, one after the other."""
        return 2 * (workers - 1) * self.message(size / workers)

    def tree(self, size, workers):
        """Seconds of a tree all-reduce: the sums go up and come down ceil(log2 k) levels, whole at each."""
        return 2 * math.ceil(math.log2(workers)) * self.message(size)


def fit(sizes, seconds):
    """The `Link` that explains the times of messages: least squares of the relative error.

    sizes    (n,) bytes, at least two different ones
    seconds  (n,) above 0
    Raises   MeasureError where larger messages do not take longer
    """
    from scipy.optimize import nnls

    sizes, seconds = np.asarray(sizes, float), np.asarray(seconds, float)
    largest = sizes.max()  # the two unknowns should be of one order
    design = np.stack([1 / seconds, sizes / largest / seconds], axis=1)
    (latency_s, longest_s), _ = nnls(design, np.ones(len(sizes)))
    if longest_s <= 0:
        raise MeasureError(
            "Larger messages did not take longer: these times have no bandwidth.",
            expected="two sizes or more, whose times grow with the bytes",
            found=f"{len(set(sizes.tolist()))} sizes, {seconds.min():.2g} to {seconds.max():.2g} s",
            fix="measure again on a quieter machine, or send larger messages",
        )
    return Link(float(latency_s), float(largest / longest_s))


def two_levels(size, servers, per_server, *, inside, between):
    """Seconds of an all-reduce on servers of several GPUs, each with one network card.

    inside, between  the `Link` of two GPUs in a server, and of two servers
    Each server adds up its own, piece by piece; the pieces go round a ring of servers, and are passed on inside.
    """
    return inside.ring(size, per_server) + between.ring(size, servers)


def exposed(communication_s, backward_s, *, overlap):
    """Seconds that a step waits for communication, all or none of which may run beside the backward pass."""
    return max(0.0, communication_s - (backward_s if overlap else 0.0))


def exchange(x):
    """In each worker: send x to the next one, and add what the one before sends; the step of which rings are made."""
    import torch
    import torch.distributed as dist

    rank, k = dist.get_rank(), dist.get_world_size()
    coming = torch.empty_like(x)
    pair = [dist.P2POp(dist.isend, x, (rank + 1) % k), dist.P2POp(dist.irecv, coming, (rank - 1) % k)]
    for work in dist.batch_isend_irecv(pair):  # one after the other, NCCL would wait for ever
        work.wait()
    x.copy_(x + coming)


def there_and_back(x):
    """In two workers: x goes to the other one and back, two messages one after the other."""
    import torch.distributed as dist

    other = 1 - dist.get_rank()
    for sender in (0, 1):
        (dist.send if dist.get_rank() == sender else dist.recv)(x, other)


def timed(ways, rounds, device="cpu"):
    """In each worker: seconds of each way for each size, {name: (sizes, rounds)}.

    ways    {name: (a function of a float32 tensor that all workers call, [bytes])}
    device  kind of the tensors; a GPU is each worker's own
    Each round goes over all of them in random order; a sample is the fastest of several tries.
    """
    import torch

    jobs = [(name, way, place, size) for name, (way, sizes) in ways.items() for place, size in enumerate(sizes)]
    tensors = {size: torch.zeros(size // 4, device=device) for *_, size in jobs}
    found = {name: np.zeros((len(sizes), rounds)) for name, (_, sizes) in ways.items()}
    random = np.random.default_rng(0)  # the same order in every worker
    for _, way, _, size in jobs:
        way(tensors[size])
    for turn in range(rounds):
        for job in random.permutation(len(jobs)):
            name, way, place, size = jobs[job]
            found[name][place, turn] = min(_timed(way, tensors[size]) for _ in range(TRIES))
    return found


def _timed(way, x):
    """Seconds of one call; of small messages the mean of several calls, which all workers begin together."""
    import torch.distributed as dist

    calls = min(max(TOGETHER_BYTES // (4 * len(x)), 1), 3)
    dist.barrier()
    devices.synchronize(x.device)
    begun = time.perf_counter()
    for _ in range(calls):
        way(x)
    devices.synchronize(x.device)
    return (time.perf_counter() - begun) / calls
