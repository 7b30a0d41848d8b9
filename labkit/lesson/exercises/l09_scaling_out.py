"""Exercises of lesson 09: a ring all-reduce, ring or tree, shares of unequal size, the memory of ZeRO."""

import math
from itertools import pairwise

import numpy as np

from labkit.lesson.exercises import Exercise, Wrong, expect, expect_close, shorten


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
    """Carries pieces between workers, and keeps account of them."""

    def __init__(self, workers):
        self.workers, self.sent = workers, [0] * workers
        self.steps = set()

    def __call__(self, sender, receiver, piece):
        expect(
            sender in range(self.workers) and receiver in range(self.workers),
            f"send({shorten(sender)}, {shorten(receiver)}, ...): there are the workers 0 to {self.workers - 1}.",
        )
        self.steps.add((receiver - sender) % self.workers)
        self.sent[sender] += np.size(piece)
        return np.array(piece)


def verify_ring_all_reduce(answer):
    random = np.random.default_rng(0)
    for workers, length in ((2, 8), (3, 12), (4, 10), (5, 23), (1, 4)):
        arrays = [random.integers(-9, 10, length).astype(float) for _ in range(workers)]
        before, post = [array.copy() for array in arrays], _Post(workers)
        found, case = answer(arrays, post), f"{workers} workers, {length} numbers each"
        unchanged = all(np.array_equal(old, new) for old, new in zip(before, arrays, strict=True))
        expect(unchanged, f"{case}: your answer changed the arrays that it was given. Work on copies.")
        _expect_sums(found, sum(before), workers, case)
        _expect_ring(post, workers, length, case)


def _expect_sums(found, wanted, workers, case):
    expect(
        isinstance(found, (list, tuple)) and len(found) == workers,
        f"{case}: expected a list of {workers} arrays, found {shorten(found)}.",
    )
    for worker, each in enumerate(found):
        expect(
            np.shape(each) == wanted.shape and np.allclose(each, wanted),
            f"{case}: worker {worker} should end with {shorten(wanted.tolist())}, and has {shorten(each)}.",
        )


def _expect_ring(post, workers, length, case):
    ring = len(post.steps) <= 1 and post.steps <= {1, workers - 1}
    expect(ring, f"{case}: in a ring each worker sends to one neighbour only, always the same.")
    longest = math.ceil(length / workers)
    least, most = 2 * (length - longest), 2 * (workers - 1) * longest
    for worker, count in enumerate(post.sent):
        expect(
            least <= count <= most,
            f"{case}: worker {worker} has sent {count} numbers; 2 n (k - 1) / k would be {least} to {most} here.",
        )


def ring_or_tree(size, workers, latency_s, bytes_per_s):
    levels = math.ceil(math.log2(workers))
    ways = {
        "ring": 2 * (workers - 1) * (latency_s + size / workers / bytes_per_s),
        "tree": 2 * levels * (latency_s + size / bytes_per_s),
    }
    return min(ways.items(), key=lambda way: way[1])


def verify_ring_or_tree(answer):
    cases = {  # worked out by hand
        (8e6, 4, 1e-3, 1e9): ("ring", 18e-3),
        (8e3, 4, 1e-3, 1e9): ("tree", 4.032e-3),
        (8e3, 64, 1e-3, 1e9): ("tree", 12.096e-3),
        (6.4e9, 64, 1e-3, 1e9): ("ring", 12.726),
        (1e6, 5, 2e-3, 1e8): ("ring", 32e-3),
        (1e3, 5, 2e-3, 1e8): ("tree", 12.06e-3),
    }
    for (size, workers, latency, speed), (way, seconds) in cases.items():
        case = f"{size:,.0f} bytes, {workers} workers, {1e3 * latency:g} ms, {speed / 1e6:g} MB/s"
        found = answer(size, workers, latency, speed)
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise Wrong(f'{case}: expected ("ring" or "tree", seconds), found {shorten(found)}.')
        expect(found[0] == way, f"{case}: the {way} is faster here, and your answer says {shorten(found[0])}.")
        expect_close(found[1], seconds, f"{case}, by {way}, in seconds")


def shares(count, workers):
    bounds = [count * worker // workers for worker in range(workers + 1)]
    return [(begin, end, (end - begin) / count) for begin, end in pairwise(bounds)]


def verify_shares(answer):
    for count, workers in ((64, 4), (10, 4), (63, 2), (7, 7), (3, 5), (100, 8)):
        case, found = f"{count} images, {workers} workers", answer(count, workers)
        expect(
            isinstance(found, (list, tuple)) and len(found) == workers and all(len(each) == 3 for each in found),
            f"{case}: expected {workers} triples (begin, end, weight), found {shorten(found)}.",
        )
        taken = [place for begin, end, _ in found for place in range(begin, end)]
        expect(sorted(taken) == list(range(count)), f"{case}: not every image is taken exactly once.")
        sizes = [max(end - begin, 0) for begin, end, _ in found]
        expect(max(sizes) - min(sizes) <= 1, f"{case}: the shares have {sizes} images; they may differ by one at most.")
        losses = np.arange(1.0, count + 1) ** 2
        parts = [weight * losses[begin:end].mean() if end > begin else 0.0 for begin, end, weight in found]
        expect_close(sum(parts), losses.mean(), f"{case}: the sum of weight × mean of a share")


def zero_memory(weights, workers, stage):
    optimizer = 12 / workers if stage >= 1 else 12
    gradient = 2 / workers if stage >= 2 else 2
    weight = 2 / workers if stage >= 3 else 2
    return weights * (optimizer + gradient + weight)


def verify_zero_memory(answer):
    for stage, wanted in enumerate((120e9, 31.40625e9, 16.640625e9, 1.875e9)):
        expect_close(answer(7.5e9, 64, stage), wanted, f"7.5 billion weights, 64 workers, stage {stage}")
    expect_close(answer(1e6, 4, 1), 7e6, "a million weights, 4 workers, stage 1")
    expect_close(answer(1e6, 4, 2), 5.5e6, "a million weights, 4 workers, stage 2")
    expect_close(answer(1e6, 1, 3), 16e6, "a million weights, a single worker, stage 3")


EXERCISES = (
    Exercise(
        id="ring-all-reduce",
        task="Give every worker the sum of all arrays; each sends pieces to its neighbour only.",
        difficulty=3,
        minutes=15,
        hint="Cut each array into k pieces. In step s worker w sends piece (w - s) % k to the right. In the first "
        "k - 1 steps the receiver adds it to its own, in the next k - 1 steps it takes the place of its own.",
        reference=ring_all_reduce,
        verify=verify_ring_all_reduce,
        imports="import numpy as np",
    ),
    Exercise(
        id="ring-or-tree",
        task="Which way of an all-reduce is faster, and how many seconds does it take?",
        difficulty=2,
        minutes=8,
        hint="n bytes take latency + n / bandwidth. Ring: 2 (k - 1) messages of size / k. Tree: 2 log2(k), rounded "
        "up, of the whole size.",
        reference=ring_or_tree,
        verify=verify_ring_or_tree,
        imports="import math",
    ),
    Exercise(
        id="shares",
        task="Cut a batch into shares, and weight their means so that the sum is the mean over all images.",
        difficulty=1,
        minutes=7,
        hint="The mean over all images is the sum over the shares of (images in the share / all images) × its mean.",
        reference=shares,
        verify=verify_shares,
        imports="from itertools import pairwise",
    ),
    Exercise(
        id="zero-memory",
        task="Bytes per GPU in each stage of ZeRO.",
        difficulty=1,
        minutes=5,
        hint="Adam in mixed precision keeps 2 + 2 + 12 bytes per weight. Stage 1 divides the 12 among the workers, "
        "stage 2 the gradient's 2 as well, stage 3 the weight's 2 as well.",
        reference=zero_memory,
        verify=verify_zero_memory,
    ),
)
