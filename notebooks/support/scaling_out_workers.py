"""Functions that lesson 10's worker processes run besides the lesson's own: trainings in turn.

The race runs in every worker of a team. There are no pictures here, so that workers need not load
the libraries that draw.
"""

import random
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

STEPS = 4  # training steps that are timed together


def race(networks, images, labels, *, sizes, rounds, share):
    """Time training steps of several ways to train, in turn.

    networks  {way: network}; "1 worker" is trained by worker 0 alone, any other by all with DDP
    sizes     numbers of images of a step
    rounds    how often each way and size has its turn; the first round warms up
    share     function: tensor of a batch -> this worker's part
    returns   {(way, images): (rounds - 1,) seconds of `STEPS` steps}
    """
    ways = {}
    for way, network in networks.items():
        ways[way] = network if way == "1 worker" else DistributedDataParallel(network)
    seconds = {(way, count): [] for way in ways for count in sizes}
    rng = random.Random(0)  # the same order in all workers
    for _ in range(rounds):
        for way, count in rng.sample(list(seconds), len(seconds)):
            x, y = images[:count], labels[:count]
            if way != "1 worker":
                x, y = share(x), share(y)
            dist.barrier()  # all wait for all
            begin = time.perf_counter()
            if way != "1 worker" or dist.get_rank() == 0:
                for _ in range(STEPS):
                    train_step(ways[way], x, y)
            seconds[way, count].append(time.perf_counter() - begin)
    return {job: np.array(times[1:]) for job, times in seconds.items()}


def train_step(network, x, y):
    """Take one step of plain gradient descent, which costs every way the same."""
    network.zero_grad()
    F.cross_entropy(network(x), y).backward()
    with torch.no_grad():
        for weight in network.parameters():
            weight -= 0.01 * weight.grad
