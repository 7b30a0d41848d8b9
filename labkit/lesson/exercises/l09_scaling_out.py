"""Exercises of lesson 09: a ring all-reduce, and the schedule of a pipeline."""

import math

import numpy as np

from labkit.lesson.exercises import Exercise, expect, shorten


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
    """Carries pieces between workers, and keeps account of them; `adds` to each number that it carries."""

    def __init__(self, workers, adds=0.0):
        self.workers, self.sent, self.adds = workers, [0] * workers, adds
        self.steps = set()

    def __call__(self, sender, receiver, piece):
        expect(
            sender in range(self.workers) and receiver in range(self.workers),
            f"send({shorten(sender)}, {shorten(receiver)}, ...): there are the workers 0 to {self.workers - 1}.",
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
        expect(unchanged, f"{case}: your answer changed the arrays that it was given. Work on copies.")
        _expect_sums(found, sum(before), workers, case)
        new = not any(np.shares_memory(mine, given) for mine in found for given in arrays)
        expect(new, f"{case}: expected new arrays, and one of yours is one of those given. Return a copy.")
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
        expect(kept and kind.kind not in "iu", f"{case}: expected numbers in {wanted.dtype}, as given, found {kind}.")
        expect(
            np.shape(each) == wanted.shape and np.allclose(each, wanted, rtol=1e-12, atol=1e-12),
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


def _expect_carried(found, exact, case):
    """What arrives is used: where each way adds 1, the workers hold k - 1 to 2 k - 2 more than the sum, by their place.

    A finished sum has come k - 1 ways, and goes one further to each worker.
    """
    workers = len(found)
    more = np.sort(np.array(found) - exact, axis=0)
    wanted = np.arange(workers - 1, 2 * workers - 1.0)[:, None]
    words = "in this try `send` adds 1 to each number, and your result does not show it in the way of a ring. Use what"
    expect(np.array_equal(more, wanted + 0 * more), f"{case}: {words} it returns: for the sums, and to pass them on.")


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
            ready, f"{case}: every stage waits for another one: {shorten([each[:1] for each in waiting])} come next."
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
            found == least, f"{case}: done after {found} units, and {least} are possible. Which stage waits, and why?"
        )


def _expect_pieces(pieces, most, micro, case):
    found = [tuple(piece) for piece in pieces]
    wanted = sorted((kind, i) for kind in "FB" for i in range(micro))
    expect(sorted(found) == wanted, f"{case}: every F and every B is to be there once, found {shorten(found)}.")
    held = 0
    for place, (kind, i) in enumerate(found):
        expect(
            kind == "F" or ("F", i) in found[:place], f"{case}: micro-batch {i} goes back before it has gone forward."
        )
        held += 1 if kind == "F" else -1
        expect(held <= most, f"{case}: {held} micro-batches went forward and not back, and {most} may.")


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
        id="pipeline-schedule",
        task="Order the forward and backward passes of each stage: as early as possible, with little memory.",
        difficulty=2,
        minutes=10,
        hint="Stage s begins with as many forward passes as it may hold, stages - s. From then on it takes turns: one "
        "backward pass, which frees a place, then the next forward pass. At the end only backward passes are left.",
        reference=pipeline_schedule,
        verify=verify_pipeline_schedule,
    ),
)
