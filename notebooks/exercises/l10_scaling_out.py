"""Exercises of lesson 10: ring, accumulation, synchronised batch norm, a DDP script, a
pipeline's schedule.
"""

import math
import os
import re
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from labkit.lesson.exercises import Exercise, Script, Wrong, expect, shorten
from labkit.lesson.support import load_support

# --- the ring ---


def ring_all_reduce(arrays, send):
    k = len(arrays)
    pieces = [list(np.array_split(np.array(array), k)) for array in arrays]
    for step in range(2 * (k - 1)):
        coming = {}
        for worker in range(k):
            place, right = (worker - step) % k, (worker + 1) % k
            coming[right] = place, send(worker, right, pieces[worker][place])
        for worker, (place, piece) in coming.items():
            pieces[worker][place] = pieces[worker][place] + piece if step < k - 1 else piece
    return [np.concatenate(each) for each in pieces]


class _Post:
    """Carries pieces between workers, and keeps account of them; `adds` to each number that it
    carries.
    """

    def __init__(self, workers, adds=0.0):
        self.workers, self.sent, self.adds = workers, [0] * workers, adds
        self.steps = set()

    def __call__(self, sender, receiver, piece):
        expect(
            sender in range(self.workers) and receiver in range(self.workers),
            f"send({shorten(sender)}, {shorten(receiver)}, ...): there are the workers 0 to "
            f"{self.workers - 1}.",
        )
        self.steps.add((receiver - sender) % self.workers)
        self.sent[sender] += np.size(piece)
        return np.array(piece) + self.adds


def verify_ring_all_reduce(answer):
    random = np.random.default_rng(0)
    for workers, length in ((2, 8), (3, 12), (4, 10), (5, 23), (1, 4)):
        # fractions that add up exactly in float64, in any order, and not in float32
        arrays = [random.integers(-9 * 2**36, 9 * 2**36, length) / 2.0**36 for _ in range(workers)]
        before, post = [array.copy() for array in arrays], _Post(workers)
        found, case = answer(arrays, post), f"{workers} workers, {length} numbers each"
        unchanged = all(np.array_equal(old, new) for old, new in zip(before, arrays, strict=True))
        expect(
            unchanged, f"{case}: your answer changed the arrays that it was given. Work on copies."
        )
        _expect_sums(found, sum(before), workers, case)
        new = not any(np.shares_memory(mine, given) for mine in found for given in arrays)
        expect(
            new,
            f"{case}: expected new arrays, and one of yours is one of those given. Return a copy.",
        )
        _expect_ring(post, workers, length, case)
        _expect_carried(answer(arrays, _Post(workers, adds=1.0)), sum(before), case)


def _expect_sums(found, wanted, workers, case):
    expect(
        isinstance(found, (list, tuple)) and len(found) == workers,
        f"{case}: expected a list of {workers} arrays, found {shorten(found)}.",
    )
    for worker, each in enumerate(found):
        kind = np.asarray(each).dtype
        kept = kind.kind != "f" or kind.itemsize >= 8
        expect(
            kept and kind.kind not in "iu",
            f"{case}: expected numbers in {wanted.dtype}, as given, found {kind}.",
        )
        expect(
            np.shape(each) == wanted.shape and np.allclose(each, wanted, rtol=1e-12, atol=1e-12),
            f"{case}: worker {worker} should end with {shorten(wanted.tolist())}, and has "
            f"{shorten(each)}.",
        )


def _expect_ring(post, workers, length, case):
    ring = len(post.steps) <= 1 and post.steps <= {1, workers - 1}
    expect(ring, f"{case}: in a ring each worker sends to one neighbour only, always the same.")
    longest = math.ceil(length / workers)
    least, most = 2 * (length - longest), 2 * (workers - 1) * longest
    for worker, count in enumerate(post.sent):
        expect(
            least <= count <= most,
            f"{case}: worker {worker} has sent {count} numbers; 2 n (k - 1) / k would be {least} "
            f"to {most} here.",
        )


def _expect_carried(found, exact, case):
    """What arrives is used: where each way adds 1, the workers hold k - 1 to 2 k - 2 more than the
    sum, by their place.

    A finished sum has come k - 1 ways, and goes one further to each worker.
    """
    workers = len(found)
    more = np.sort(np.array(found) - exact, axis=0)
    wanted = np.arange(workers - 1, 2 * workers - 1.0)[:, None]
    words = (
        "in this try `send` adds 1 to each number, and your result does not show it in the way of "
        "a ring. Use what"
    )
    expect(
        np.array_equal(more, wanted + 0 * more),
        f"{case}: {words} it returns: for the sums, and to pass them on.",
    )


# --- the control: one worker, part after part ---


def in_parts(network, images, labels, parts, loss=F.cross_entropy):
    network.zero_grad()
    for x, y in zip(images.tensor_split(parts), labels.tensor_split(parts), strict=True):
        share = len(y) / len(labels)
        (share * loss(network(x), y)).backward()
    return torch.cat([weight.grad.flatten() for weight in network.parameters()])


def _batch(count):
    generator = torch.Generator().manual_seed(count)
    images = torch.randn(count, 6, dtype=torch.double, generator=generator)
    return images, torch.randint(3, (count,), generator=generator)


def _network(norm=nn.BatchNorm1d):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Linear(6, 8), norm(8), nn.Tanh(), nn.Linear(8, 3)
    return nn.Sequential(*layers).double().train()


def _gradient_in_parts(network, images, labels, parts, loss=F.cross_entropy):
    """The mean of the parts' gradients, each weighted by its images, written another way than
    the reference.
    """
    total = 0
    for rows in torch.arange(len(images)).tensor_split(parts):
        own = loss(network(images[rows]), labels[rows])
        slopes = torch.autograd.grad(own, list(network.parameters()))
        total = total + len(rows) / len(images) * torch.cat([slope.flatten() for slope in slopes])
    return total


def verify_in_parts(answer):
    for count, parts, norm in (
        (24, 3, nn.Identity),
        (24, 2, nn.BatchNorm1d),
        (63, 4, nn.BatchNorm1d),
    ):
        case = f"{count} images in {parts} parts"
        images, labels = _batch(count)
        expected = _gradient_in_parts(_network(norm), images, labels, parts)
        network = _network(norm)
        for weight in network.parameters():
            weight.grad = torch.ones_like(weight)  # left from an earlier step
        before = [weight.detach().clone() for weight in network.parameters()]
        sizes = []
        network.register_forward_pre_hook(
            lambda _, inputs, sizes=sizes: sizes.append(len(inputs[0]))
        )
        gradient = answer(network, images, labels, parts)

        same = all(map(torch.equal, before, network.parameters()))
        expect(same, f"{case}: your answer changed the weights. It takes no step.")
        expect(
            torch.is_tensor(gradient) and gradient.shape == expected.shape,
            f"{case}: expected a torch tensor, one vector of {len(expected)} numbers, found "
            f"{shorten(gradient)}.",
        )
        parts_sizes = [len(part) for part in images.tensor_split(parts)]
        expect(
            sizes == parts_sizes,
            f"{case}: the network should see batches of {parts_sizes}, and it saw {sizes} images.",
        )
        _expect_gradient(gradient, expected, case)
    _expect_other_loss(answer)


def _expect_other_loss(answer):
    """Raise `Wrong` unless the answer uses the loss that it is given."""
    images, _ = _batch(10)
    targets = images[:, :3]
    expected = _gradient_in_parts(_network(), images, targets, 3, F.mse_loss)
    gradient = answer(_network(), images, targets, 3, F.mse_loss)
    same = torch.allclose(gradient, expected, rtol=1e-9, atol=1e-12)
    expect(
        same,
        "With loss=F.mse_loss the gradient is not that of this loss. Call the "
        "`loss` that is given.",
    )


def _expect_gradient(gradient, expected, case):
    """Raise `Wrong`, with what the error looks like, unless the gradient is the expected one."""
    if torch.allclose(gradient, expected, rtol=1e-9, atol=1e-12):
        return
    reason = "Is each image worth 1/n, whatever part it is in?"
    if torch.allclose(gradient, expected + 1, rtol=1e-9, atol=1e-12):
        reason = "It holds a gradient from before: backward adds."
    off = ((gradient - expected).norm() / expected.norm()).item()
    raise Wrong(f"{case}: the gradient is off by {100 * off:.3g} % of its length. {reason}")


# --- synchronised batch norm ---


def synced_norm(x, mean_over_workers):
    mean = mean_over_workers(x.mean((0, 2, 3), keepdim=True))
    variance = mean_over_workers((x - mean).square().mean((0, 2, 3), keepdim=True))
    return (x - mean) / (variance + 1e-5).sqrt()


class _Workers:
    """Threads that stand for worker processes: each has a share, and may ask for the mean of
    what all have.
    """

    def __init__(self, count):
        self.count = count
        self.barrier = threading.Barrier(count, timeout=20)
        self.sent = [None] * count
        self.largest = 0  # numbers in a message

    def mean_for(self, rank):
        """Return the function `mean_over_workers` of one worker; its result has a gradient."""

        def mean_over_workers(tensor):
            self.sent[rank] = tensor
            self.largest = max(self.largest, tensor.numel())
            self.barrier.wait()
            mean = torch.stack(self.sent).mean(0)
            self.barrier.wait()
            return mean

        return mean_over_workers

    def run(self, answer, shares):
        """Return what the answer gives in each worker; raises what it raised in one."""

        def work(rank):
            try:
                return answer(shares[rank], self.mean_for(rank))
            except BaseException:
                self.barrier.abort()  # the others would wait
                raise

        with ThreadPoolExecutor(self.count) as pool:
            results = [pool.submit(work, rank) for rank in range(self.count)]
        problems = [result.exception() for result in results if result.exception()]
        for problem in sorted(
            problems, key=lambda problem: isinstance(problem, threading.BrokenBarrierError)
        ):
            raise problem
        return [result.result() for result in results]


def verify_synced_norm(answer):
    for workers in (2, 3):
        generator = torch.Generator().manual_seed(workers)
        shares = []
        for rank in range(workers):  # shares whose means and spreads lie apart
            share = torch.randn(4, 5, 3, 2, dtype=torch.double, generator=generator)
            shares.append(((1 + rank) * share + 3 * rank).requires_grad_())
        team = _Workers(workers)
        before = [share.detach().clone() for share in shares]
        outputs = team.run(answer, shares)
        unchanged = all(map(torch.equal, before, shares))
        expect(unchanged, "Your answer changes x in place. The layer before still needs it.")
        _expect_normalised(outputs, shares, f"{workers} workers")
        expect(
            team.largest <= 2 * 5,
            f"a message has {team.largest} numbers, and x has 5 channels: send a mean for each "
            "channel, not pixels.",
        )


def _expect_normalised(outputs, shares, case):
    for output in outputs:
        expect(
            torch.is_tensor(output) and output.shape == shares[0].shape,
            f"{case}: expected a torch tensor of the shape {tuple(shares[0].shape)}, found "
            f"{shorten(output)}.",
        )
    expected = F.batch_norm(torch.cat(shares), None, None, training=True)
    output = torch.cat(outputs)
    if not torch.allclose(output, expected, rtol=1e-7, atol=1e-9):
        mean, deviation = output.mean().item(), output.std(correction=0).item()
        raise Wrong(
            f"{case}: expected what batch norm gives for all images together. Yours has a mean of "
            f"{mean:.3g} and a "
            f"deviation of {deviation:.3g} over all images, and differs by "
            f"{(output - expected).abs().max():.3g}. "
            "Does the variance count distances from the mean of all?"
        )
    weights = torch.linspace(-1, 1, output.numel(), dtype=torch.double).view_as(output)
    slopes = torch.autograd.grad((output * weights).sum(), shares)
    expected_slopes = torch.autograd.grad((expected * weights).sum(), shares)
    close = torch.allclose(torch.cat(slopes), torch.cat(expected_slopes), rtol=1e-6, atol=1e-9)
    expect(
        close,
        f"{case}: the values are right, and the gradient is not: it must pass "
        "through mean and variance.",
    )


# --- a script for torchrun ---

DDP_BEFORE = """import runpy
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

path, batch, epochs, result = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
task = runpy.run_path(path)  # sets network, inputs, labels, and loss(outputs, labels)
gpus = torch.cuda.device_count()
dist.init_process_group("nccl" if gpus > 1 else "gloo")
rank, workers = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", rank % gpus) if gpus > 1 else torch.device("cpu")
data = TensorDataset(task["inputs"].to(device), task["labels"].to(device))
network, loss = task["network"].to(device).train(), task["loss"]
"""
DDP_ANSWER = """\
sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, batch_size=batch // workers, sampler=sampler)
parallel = DistributedDataParallel(network, find_unused_parameters=True)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05, momentum=0.9)
for epoch in range(epochs):
    sampler.set_epoch(epoch)
    begin = time.perf_counter()
    for images, labels in loader:
        optimizer.zero_grad()
        loss(parallel(images), labels).backward()
        optimizer.step()
    if rank == 0:
        print(f"epoch {epoch}: {time.perf_counter() - begin:.3f} s")
"""
DDP_AFTER = """\
if rank == 0:
    torch.save(network.state_dict(), result)
dist.destroy_process_group()
"""
DDP_SCRIPT = Script(DDP_BEFORE + DDP_ANSWER + DDP_AFTER)

TASK = """
import torch
from torch import nn

torch.manual_seed(0)
generator = torch.Generator().manual_seed(1)
inputs = torch.randn(64, 6, generator=generator)
labels = torch.randint(3, (64,), generator=generator)
network = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
loss = nn.functional.cross_entropy
"""
BATCH, EPOCHS = 16, 3
LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def _trained_by_one_worker(*, batch=BATCH, epochs=EPOCHS, shuffled_anew=True):
    """The weights of the script's training in this process, one vector; the orders are those of
    DistributedSampler.
    """
    task = {}
    with torch.random.fork_rng(devices=[]):
        exec(TASK, task)
    network = task["network"]
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(epochs):
        generator = torch.Generator().manual_seed(epoch if shuffled_anew else 0)
        for rows in torch.randperm(64, generator=generator).split(batch):
            loss = F.cross_entropy(network(task["inputs"][rows]), task["labels"][rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return torch.cat([weight.detach().flatten() for weight in network.parameters()])


def verify_ddp_script(script):
    with tempfile.TemporaryDirectory() as folder:
        task, result = Path(folder) / "task.py", Path(folder) / "weights.pt"
        task.write_text(TASK, encoding="utf-8")
        arguments = str(task), str(BATCH), str(EPOCHS), str(result)
        loopback = load_support("worker_teams").loopback()
        with mock.patch.dict(os.environ, loopback):
            printed = script.run(*arguments, launcher=LAUNCHER, seconds=150)
        expect(
            result.is_file(),
            "Your script wrote no weights: its last lines, which were given, do that.",
        )
        state = torch.load(result, weights_only=True)
    epochs = re.findall(r"epoch (\d+): [\d.]+ s", printed)
    expect(
        epochs == [str(epoch) for epoch in range(EPOCHS)],
        f"Two workers, {EPOCHS} epochs: expected one line for each epoch, epoch 0: 1.234 s and so "
        "on, from worker 0 "
        f"alone, found {shorten(printed)}.",
    )
    _expect_weights(torch.cat([weight.flatten() for weight in state.values()]).cpu())


def _expect_weights(weights):
    """Raise `Wrong`, with a likely cause, unless two workers ended where one does."""
    if torch.allclose(weights, _trained_by_one_worker(), atol=1e-5):
        return
    others = {
        "that sees the images of every epoch in the same order. Tell the sampler "
        "which epoch it is.": {"shuffled_anew": False},
        f"with batches of {2 * BATCH}. `batch` is for all workers together: each "
        "loads its part of it.": {"batch": 2 * BATCH},
        f"after {EPOCHS - 1} of {EPOCHS} epochs.": {"epochs": EPOCHS - 1},
    }
    for training, settings in others.items():
        if torch.allclose(weights, _trained_by_one_worker(**settings), atol=1e-5):
            raise Wrong(f"Your two workers end where one worker does {training}")
    off = (weights - _trained_by_one_worker()).abs().max().item()
    raise Wrong(
        f"Two workers end with other weights than one: they differ by up to {off:.2g}. Has each "
        "worker its own share "
        "of the images, are the gradients averaged, and do learning rate and momentum have the "
        "values asked for?"
    )


# --- a pipeline ---


def pipeline_schedule(stages, micro):
    lists = []
    for stage in range(stages):
        ahead = min(micro, stages - stage)
        order = [("F", i) for i in range(ahead)]
        for i in range(micro):
            order.append(("B", i))
            if ahead + i < micro:
                order.append(("F", ahead + i))
        lists.append(order)
    return lists


_TAKES = {"F": 1, "B": 2}


def _finished(lists, case):
    """When the last piece ends, each beginning as soon as its stage and its input are ready."""
    ends, stages = {}, len(lists)
    waiting, free = [list(each) for each in lists], [0] * stages
    while any(waiting):
        ready = []
        for stage in range(stages):
            if waiting[stage]:
                kind, i = waiting[stage][0]
                needs = (
                    ("F", stage - 1, i)
                    if kind == "F"
                    else ("B", stage + 1, i)
                    if stage < stages - 1
                    else ("F", stage, i)
                )
                if needs in ends or (kind == "F" and stage == 0):
                    ready.append((stage, max(free[stage], ends.get(needs, 0))))
        expect(
            ready,
            f"{case}: every stage waits for another one: "
            f"{shorten([each[:1] for each in waiting])} come next.",
        )
        for stage, begin in ready:
            kind, i = waiting[stage].pop(0)
            free[stage] = ends[kind, stage, i] = begin + _TAKES[kind]
    return max(free)


def verify_pipeline_schedule(answer):
    for stages, micro in ((2, 3), (3, 5), (4, 7), (4, 2), (1, 3), (3, 1)):
        case, lists = f"{stages} stages, {micro} micro-batches", answer(stages, micro)
        expect(
            isinstance(lists, (list, tuple)) and len(lists) == stages,
            f"{case}: expected a list of {stages} lists, found {shorten(lists)}.",
        )
        for stage, pieces in enumerate(lists):
            _expect_pieces(pieces, stages - stage, micro, f"{case}, stage {stage}")
        least, found = 3 * (micro + stages - 1), _finished(lists, case)
        expect(
            found == least,
            f"{case}: done after {found} units, and {least} are possible. Which "
            "stage waits, and why?",
        )


def _expect_pieces(pieces, most, micro, case):
    found = [tuple(piece) for piece in pieces]
    wanted = sorted((kind, i) for kind in "FB" for i in range(micro))
    expect(
        sorted(found) == wanted,
        f"{case}: every F and every B is to be there once, found {shorten(found)}.",
    )
    held = 0
    for place, (kind, i) in enumerate(found):
        expect(
            kind == "F" or ("F", i) in found[:place],
            f"{case}: micro-batch {i} goes back before it has gone forward.",
        )
        held += 1 if kind == "F" else -1
        expect(
            held <= most, f"{case}: {held} micro-batches went forward and not back, and {most} may."
        )


EXERCISES = (
    Exercise(
        id="ring-all-reduce",
        task="Give every worker the sum of all arrays; each sends pieces to its neighbour only.",
        difficulty=2,
        minutes=10,
        hint="Cut each array into k pieces. In step s worker w sends piece (w - s) % k to the "
        "right. In the first "
        "k - 1 steps the receiver adds it to its own, in the next k - 1 steps it takes the place "
        "of its own.",
        reference=ring_all_reduce,
        verify=verify_ring_all_reduce,
        imports="import numpy as np",
    ),
    Exercise(
        id="in-parts",
        task="Compute the gradient of a batch part after part, on one worker.",
        difficulty=2,
        importance=3,
        minutes=6,
        hint="backward adds to .grad, so clear it first. `loss` is a part's mean: times the "
        "part's share of all, "
        "it lets each image count 1/n.",
        reference=in_parts,
        verify=verify_in_parts,
        imports="import torch\nfrom torch.nn import functional as F",
    ),
    Exercise(
        id="synced-norm",
        task="Normalise this worker's images by the mean and the variance of the "
        "images of all workers.",
        difficulty=2,
        minutes=8,
        hint="Two messages, one after the other: the mean, then the mean of the squared distances "
        "from that mean.",
        reference=synced_norm,
        verify=verify_synced_norm,
    ),
    Exercise(
        id="ddp-script",
        task="Write the training of a script that torchrun starts: sampler, loader, DDP, "
        "optimizer, loop.",
        difficulty=3,
        importance=3,
        minutes=15,
        hint="Five objects, then two loops. The sampler deals the images out, and the loader "
        "takes it as sampler=. "
        "Call the DDP object, not the network. At the start of each epoch: "
        "sampler.set_epoch(epoch).",
        reference=DDP_SCRIPT,
        verify=verify_ddp_script,
    ),
    Exercise(
        id="pipeline-schedule",
        task="Order the forward and backward passes of each stage: as early as possible, with "
        "little memory.",
        difficulty=2,
        minutes=10,
        hint="Stage s begins with as many forward passes as it may hold, stages - s. From then on "
        "it takes turns: one "
        "backward pass, which frees a place, then the next forward pass. At the end only backward "
        "passes are left.",
        reference=pipeline_schedule,
        verify=verify_pipeline_schedule,
    ),
)
