"""Many workers, one training: exact gradients, what a message costs, and a run that outlives a worker.

    python benchmarks/scale.py [--quick]

- `gradient_*`: gradients of 64 images in 2 and 4 worker processes, by hand (a ring), by DDP and by FSDP2, against one
  worker with all images; relative difference of their lengths, in float32. With batch norm, against ghost batch norm.
- `message_*`: the alpha-beta model is fitted to messages between two workers. It predicts the time at three sizes that
  were left out, and a ring and a tree all-reduce there. Error of the medians over the rounds; a comment gives its
  bootstrap interval.
- `kill_*`: a worker is killed in mid-training, and the elastic agent goes on from the checkpoint.
- `zero_*`: bytes per GPU against the table of the paper (arXiv:1910.02054).

Quick: under a minute, fewer rounds. Full: about three minutes, and the lesson in its quick profile.
"""

import argparse
import copy
import os
import signal
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from figures import Figures
from torch.nn.functional import cross_entropy

from labkit.data import load
from labkit.files import atomic
from labkit.ledger import published
from labkit.measure.stats import bootstrap_rounds
from labkit.methods.ghost_batch_norm import with_ghost_batch_norm
from labkit.models.cnn import tiny
from labkit.scale import data_parallel, elastic
from labkit.scale.link import exchange, fit, there_and_back, timed
from labkit.scale.memory import zero_bytes
from labkit.scale.processes import Team, missing
from labkit.train.sweep import halved, update_batch_norm
from labkit.train.workers import start_workers

SIZES = [2**power for power in range(14, 23)]  # 16 KiB to 4 MiB
LEFT_OUT = [3 * 2**power for power in (15, 17, 19)]
STEPS, DIES_IN = 12, 7


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, under a minute")
    quick, figures = parser.parse_args().quick, Figures()
    start_workers()
    print(f"# {missing() or f'torch {torch.__version__}, gloo over the loopback interface'}")
    network, images, labels = problem()
    for size in (2, 4):
        with Team(size) as team:
            gradients(figures, team, network, images, labels)
            if size == 2:
                messages(figures, team, rounds=11 if quick else 61)
    kill(figures, network, images, labels)
    zero(figures)
    if not quick:
        figures.lesson("09", at_most=45)
    figures.exit()


def problem():
    """A small network with batch norm, and 64 images."""
    train = halved(load("fashion-mnist", "train", limit=512))
    torch.manual_seed(0)
    network = tiny()
    update_batch_norm(network, train, "cpu")
    return network, *next(iter(train.batches(64, seed=0)))


def difference(found, wanted):
    return float((found - wanted).norm() / wanted.norm())


def gradients(figures, team, network, images, labels):
    """Each way of `data_parallel` against one worker; with batch norm, by hand and by DDP against ghosts."""
    frozen, k = copy.deepcopy(network).eval(), team.size
    alone = data_parallel.alone(frozen, images, labels)
    for name, way in data_parallel.WAYS.items():
        found = team.run(way, frozen, images, labels)
        worst = max(difference(each, alone) for each in found)
        figures.add(f"gradient_{k}_{name.replace(' ', '_')}", worst, at_most=1e-6)
    ghosts = with_ghost_batch_norm(copy.deepcopy(network), len(images) // k).train()
    wanted = data_parallel.alone(ghosts, images, labels)
    for name in ("by hand", "DDP"):
        found = team.run(data_parallel.WAYS[name], copy.deepcopy(network).train(), images, labels)
        worst = max(difference(each, wanted) for each in found)
        figures.add(f"gradient_{k}_batch_norm_{name.replace(' ', '_')}_vs_ghosts", worst, at_most=1e-6)


def messages(figures, team, rounds):
    """What the model predicts at sizes it was not fitted to, against what is measured."""
    ways = {"exchange": exchange, "there": there_and_back}
    ways = {name: (way, SIZES) for name, way in ways.items()} | {"left_out": (exchange, LEFT_OUT)}
    ways |= {"ring": (data_parallel.ring_all_reduce, LEFT_OUT), "tree": (data_parallel.tree_all_reduce, LEFT_OUT)}
    found = team.run(timed, ways, rounds)[0]
    for place, size in enumerate(LEFT_OUT):

        def message(seconds, asked, place=place, size=size):
            return abs(fit(SIZES, seconds).message(size) / asked[place] - 1)

        def ring(seconds, asked, place=place, size=size):
            return abs(fit(SIZES, seconds).ring(size, team.size) / asked[place] - 1)

        def tree(seconds, asked, place=place, size=size):
            return abs(fit(SIZES, seconds / 2).tree(size, team.size) / asked[place] - 1)

        for name, error, known, asked in (
            ("message", message, "exchange", "left_out"),
            ("ring", ring, "exchange", "ring"),
            ("tree", tree, "there", "tree"),
        ):
            off = bootstrap_rounds(error, found[known], found[asked])
            print(f"# {name}, {size // 1024} KiB: off by {off}")
            figures.add(f"message_error_{name}_{size // 1024}KiB", off.median, at_most=0.25)


def training(network, images, labels, folder, dies_in):
    """In each worker: SGD with momentum; worker 1 is killed in step `dies_in` of the first attempt."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.02, momentum=0.9)
    path, first = Path(folder) / "newest.pt", 0
    if path.exists():
        state = torch.load(path, weights_only=True)
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    for step in range(first, STEPS):
        if (step, dist.get_rank(), elastic.attempt()) == (dies_in, 1, 0):
            os.kill(os.getpid(), signal.SIGKILL)
        slope = data_parallel.by_hand(network, images, labels)
        for weight, part in zip(network.parameters(), cut(slope, network), strict=True):
            weight.grad = part.view_as(weight)
        optimizer.step()
        if dist.get_rank() == 0:
            with atomic(path) as temporary:
                state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
                torch.save(state, temporary)
    return first, torch.cat([weight.detach().flatten() for weight in network.parameters()])


def cut(vector, network):
    return vector.split([weight.numel() for weight in network.parameters()])


def kill(figures, network, images, labels):
    """The weights after a kill against those of an undisturbed run, and the steps that were done twice."""
    frozen, ends = copy.deepcopy(network).eval(), {}
    for dies_in in (None, DIES_IN):
        with tempfile.TemporaryDirectory() as folder:
            ends[dies_in] = elastic.run(training, frozen, images, labels, folder, dies_in)[0]
    lost = float((ends[DIES_IN][1] - ends[None][1]).abs().max())
    with torch.no_grad():
        before, after = (float(cross_entropy(at(frozen, w)(images), labels)) for w in (None, ends[None][1]))
    print(f"# loss {before:.3f} before, {after:.3f} after {STEPS} steps")
    figures.add("kill_weights_differ_by", lost, at_most=0)
    figures.add("kill_steps_lost", DIES_IN - ends[DIES_IN][0], at_most=0)


def at(network, weights):
    """The network with other weights."""
    network = copy.deepcopy(network)
    if weights is not None:
        torch.nn.utils.vector_to_parameters(weights, network.parameters())
    return network


def zero(figures):
    """The formula against the paper's four numbers."""
    table = published.table("zero").set_index("stage").memory_bytes
    worst = max(abs(zero_bytes(7.5e9, 64, stage) / float(table[stage]) - 1) for stage in table.index)
    figures.add("zero_table_off", worst, at_most=0.02)


if __name__ == "__main__":
    main()
