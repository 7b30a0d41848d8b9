"""Exercises of lesson 02: compare by hand, also in series; a null arm; is a change real; is it the
same work.

The checks run on a machine that is made of numbers: its clock moves only when work is done on it.
"""

import contextlib
import random
import time

import numpy as np
import torch

from labkit.lesson.exercises import Exercise, Wrong, expect, shorten, untouched

LAUNCH_S = 1e-5  # to put a call into the queue
COLD_CALLS = 3  # of each function; they take 20 times as long
REFILLS, REFILL = 2, 3  # so many calls after one of another function take so many times as long
ROUNDS, SERIES = 30, 4
TRUE_S = (2e-3, 3e-3, 5e-3)
SURE = 0.9  # of the decisions that must be right, over many made-up runs


class Machine:
    """A made-up machine whose device works through a queue, and whose functions are cold at first.

    drift   relative slow-down per second
    refill  factor by which the first two calls after one of another function take longer
    """

    def __init__(self, *, drift=0.0, refill=1):
        self.drift, self.refill = drift, refill
        # the function that was called last, and how often in succession
        self.last, self.repeats = None, 0
        self.time, self.idle_at = 0.0, 0.0
        self.log = []  # the names of all calls, and None where the clock was read

    def now(self):
        self.log.append(None)
        return self.time

    def wait(self):
        self.time = max(self.time, self.idle_at)

    def function(self, name, seconds):
        cold_calls = COLD_CALLS

        def work():
            nonlocal cold_calls
            self.log.append(name)
            self.repeats = self.repeats + 1 if name == self.last else 1
            self.last = name
            cost = seconds * (1 + self.drift * max(self.time, self.idle_at))
            if self.repeats <= REFILLS:
                cost *= self.refill
            if cold_calls:
                cold_calls -= 1
                cost *= 20
            self.time += LAUNCH_S
            self.idle_at = max(self.time, self.idle_at) + cost

        return work

    def timed(self):
        """The names of the calls that were made between two readings of the clock, one reading
        after the other.
        """
        groups, names = [], []
        for name in self.log:
            if name is None:
                groups.append(names)
                names = []
            else:
                names.append(name)
        return [names for names in groups[1:] if names]

    def series(self):
        """The names of the calls between readings 1 and 2 of the clock, 3 and 4, and so on."""
        readings = [number for number, name in enumerate(self.log) if name is None]
        return [
            self.log[start + 1 : end]
            for start, end in zip(readings[::2], readings[1::2], strict=False)
        ]


def compare(calls, wait, rounds=40, now=time.perf_counter):
    import numpy as np

    for call in 5 * list(calls):  # warm (lie 2)
        call()
    seconds = np.empty((rounds, len(calls)))
    for number in range(rounds):
        # in turn, in random order (lie 4)
        for place in random.sample(range(len(calls)), len(calls)):
            wait()  # idle before (lie 1)
            begin = now()
            calls[place]()
            wait()  # and done (lie 1)
            seconds[number, place] = now() - begin
    return seconds  # all of them: mean or median is for the question to say (lie 3)


def verify_compare(answer):
    seconds = _compared(answer, Machine(), "On a device with a queue")
    for column, true_s in enumerate(TRUE_S):
        _expect_seconds(seconds[:, column], column, true_s)

    # Calls far apart meet another machine: here it becomes slower and slower.
    machine = Machine(drift=2.0)
    seconds = _compared(answer, machine, "On a machine that gets slower")
    ratios = np.median(seconds[:, 0] / seconds[:, 2])
    expect(
        abs(ratios / 0.4 - 1) < 0.05,
        "On a machine that gets slower and slower, the first function takes 0.40 times as long as "
        "the third; the "
        f"median of your rounds says {ratios:.2f}. Are the calls of a round made "
        "one right after the other?",
    )
    _expect_turns(machine)


@contextlib.contextmanager
def _own_random_numbers():
    """Draw from fixed random numbers inside, and put back those of Python and NumPy."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 (a reader may draw from it)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


def _compared(answer, machine, where, **settings):
    """Return the (rounds, calls) seconds of an answer, checked for its form."""
    calls = [machine.function(name, true_s) for name, true_s in zip("abc", TRUE_S, strict=True)]
    before = list(calls)
    with _own_random_numbers():
        found = answer(calls, machine.wait, rounds=ROUNDS, now=machine.now, **settings)
    expect(calls == before, "Your function changes the list of calls. The caller still needs that.")
    try:
        seconds = np.asarray(found, float)
    except (TypeError, ValueError):
        raise Wrong(f"Expected a NumPy array of seconds, found {shorten(found)}.") from None
    expect(
        seconds.shape == (ROUNDS, 3),
        f"{where}, 3 functions and {ROUNDS} rounds: expected seconds of shape ({ROUNDS}, 3), a "
        "row for each round and "
        f"a column for each function; found shape {seconds.shape}.",
    )
    read = sum(name is None for name in machine.log)
    expect(
        read >= 2 * seconds.size,
        f"The clock `now` was read {read} times: twice for each call, please.",
    )
    return seconds


def _expect_seconds(column, number, true_s):
    """The seconds of one function must be those of a warm call, from idle to done."""
    where = f"Function {number} takes {1e3 * true_s:.0f} ms for a warm call"
    median = float(np.median(column))
    if abs(median - LAUNCH_S) < LAUNCH_S / 2:
        raise Wrong(
            f"{where}; yours says {1e3 * median:.2f} ms: that is how long it takes "
            "to put it into the queue."
        )
    first, last = column[0], column[-1]
    if first > 5 * true_s and abs(last / true_s - 1) < 0.05:
        raise Wrong(
            f"{where}; your first round says {1e3 * first:.0f} ms. Are the first calls of each "
            "function cold?"
        )
    worst = column[np.argmax(np.abs(column / true_s - 1))]
    expect(
        abs(worst / true_s - 1) <= 0.02,
        f"{where}; one of your rounds says {worst:.3g} s. Is the device idle when the clock "
        "starts, is exactly one "
        "call made and done when it stops, and is the column that of the function?",
    )


def _expect_turns(machine):
    """Each round makes every call once, in an order that changes."""
    _expect_orders(machine.timed())


def _expect_orders(timed):
    """Each three of the timed [name, ...] are one round, and their order changes."""
    rounds = [
        tuple(name for names in timed[start : start + 3] for name in names)
        for start in range(0, len(timed), 3)
    ]
    rounds = rounds[-ROUNDS:]
    expect(
        all(sorted(order) == ["a", "b", "c"] for order in rounds),
        "In a round every function is timed once, by itself. One of yours timed "
        f"{shorten(''.join(rounds[0]))}.",
    )
    firsts = [order[0] for order in rounds]
    most = max("abc", key=firsts.count)
    expect(
        firsts.count(most) < 0.8 * ROUNDS,
        f"Function {'abc'.index(most)} came first in {firsts.count(most)} of {ROUNDS} rounds: "
        "what follows a call may "
        "be slower for it. Draw the order anew in each round.",
    )


def compare_series(calls, wait, rounds=40, series=10, now=time.perf_counter):
    import numpy as np

    seconds = np.empty((rounds, len(calls)))
    for number in range(rounds):
        for place in random.sample(range(len(calls)), len(calls)):
            # they bring back what another function has driven out of the cache (lie 7)
            for _ in range(series):
                calls[place]()
            wait()
            begin = now()
            for _ in range(series):
                calls[place]()
            wait()
            seconds[number, place] = (now() - begin) / series
    return seconds


def verify_compare_series(answer):
    machine = Machine(refill=REFILL)
    seconds = _compared(answer, machine, f"In series of {SERIES}", series=SERIES)
    timed = machine.series()[-3 * ROUNDS :]
    odd = next((names for names in timed if len(names) != SERIES or len(set(names)) != 1), None)
    expect(
        odd is None,
        f"With series={SERIES}, {SERIES} calls of one function belong between two "
        "readings of the clock; "
        f"one of yours holds the calls {shorten(odd)}.",
    )
    _expect_orders([names[:1] for names in timed])
    for column, true_s in enumerate(TRUE_S):
        median = float(np.median(seconds[:, column]))
        where = (
            f"A call of function {column} that follows others of itself takes {1e3 * true_s:.0f} ms"
        )
        expect(
            abs(median / (SERIES * true_s) - 1) > 0.05,
            f"{where}; yours says {1e3 * median:.0f} ms, the time of {SERIES} of them.",
        )
        expect(
            median < 1.05 * true_s,
            f"{where}; yours says {1e3 * median:.1f} ms. Are {SERIES} calls of the same function "
            "made right before the "
            "clock starts, and is the device idle then?",
        )
        _expect_seconds(seconds[:, column], column, true_s)


def null_arm(old, new, compare):
    seconds = compare([old, old, new])
    return seconds[:, 0] / seconds[:, 2], seconds[:, 0] / seconds[:, 1]


def verify_null_arm(answer):
    def old():
        return "old"

    def new():
        return "new"

    measured = []

    def compare(calls, *settings, **named):
        names = [call() for call in calls]
        measured.append(names)
        speed = {"old": 6e-3, "new": 2e-3}
        # Each round has a speed of its own, and each place of the list has 1 % more than the one
        # before.
        rounds = np.array([1.0, 2.0, 4.0, 3.0]) * len(measured) ** 2
        return rounds[:, None] * [speed[name] * 1.01**place for place, name in enumerate(names)]

    found = answer(old, new, compare)
    expect(
        measured,
        "Your function has measured nothing: call compare([...]) with a list of functions.",
    )
    expect(
        isinstance(found, (tuple, list)) and len(found) == 2,
        "Expected two arrays: ratios of the change, ratios of the same code. Found "
        f"{shorten(found)}.",
    )
    expect(
        len(measured) == 1,
        f"compare was called {len(measured)} times: between two calls of it the machine may "
        "change. Hand it all "
        "functions in one list.",
    )
    expect(
        sorted(measured[0]) == ["new", "old", "old"],
        f"compare was given {measured[0]}. The null arm is the old code once more, beside the old "
        "and the new.",
    )
    ratios, null_ratios = (np.asarray(values, float) for values in found)
    expect(
        ratios.shape == null_ratios.shape == (4,),
        "Expected one ratio for each round: seconds of a round divided.",
    )
    expect(
        np.allclose(ratios, 3, rtol=0.05),
        "The old code takes 6 ms and the new one 2 ms: the new one is 3 times as fast in every "
        "round; yours says "
        f"{shorten(ratios.round(2).tolist())}.",
    )
    expect(
        np.allclose(null_ratios, 1, rtol=0.03),
        f"The same code against itself, in the same round: about 1; yours says "
        f"{shorten(null_ratios.round(2).tolist())}.",
    )
    expect(
        not np.allclose(null_ratios, 1, rtol=1e-6),
        "A time divided by itself is always 1: divide the two old ones.",
    )


def is_real(ratios, null_ratios):
    import numpy as np

    def interval(values):
        ordered, n = np.sort(values), len(values)
        rank = max(1, round(n / 2 - n**0.5))
        return ordered[rank - 1], ordered[-rank]

    low, high = interval(ratios)
    null_low, null_high = interval(null_ratios)
    band = max(null_high, 1 / null_low)  # 1 + the noise floor
    if low > band:
        return "faster"
    if high < 1 / band:
        return "slower"
    return "not distinguishable"


def runs(
    true_ratio,
    *,
    null=1.0,
    noise=0.02,
    null_noise=None,
    spikes=0.05,
    pairs=60,
    null_pairs=None,
    seed=0,
):
    """(ratios, null ratios) of one made-up comparison with spikes in both."""
    random = np.random.default_rng(seed)

    def series(center, noise, pairs):
        values = center * np.exp(noise * random.standard_normal(pairs))
        hit = random.random(pairs) < spikes
        return np.where(hit, values * random.choice([0.2, 5.0], pairs), values)

    return series(true_ratio, noise, pairs), series(null, null_noise or noise, null_pairs or pairs)


def verify_is_real(answer):
    answer = untouched(answer)
    words = ("faster", "slower", "not distinguishable")
    cases = {
        "a change that is 10 % faster": (1.10, "faster", {}),
        "a change that is 10 % slower": (0.90, "slower", {}),
        "no change at all": (1.00, "not distinguishable", {}),
        "no change, on a noisy machine with few pairs": (
            1.00,
            "not distinguishable",
            {"noise": 0.2, "pairs": 15},
        ),
        "4 % faster, where the same code against itself is 9 % faster": (
            1.04,
            words[2],
            {"null": 1.09},
        ),
        "4 % faster, where the same code against itself is 9 % slower": (
            1.04,
            words[2],
            {"null": 0.91},
        ),
        "4 % slower, where the same code against itself is 9 % slower": (
            0.96,
            words[2],
            {"null": 0.91},
        ),
        "22 % slower, where the band goes down to 1 / 1.25": (
            0.78,
            "slower",
            {"null": 1.25, "noise": 0.002},
        ),
        "18 % slower, where the band goes down to 1 / 1.25": (
            0.82,
            words[2],
            {"null": 1.25, "noise": 0.002},
        ),
        "22 % faster, where the band goes from 0.8 to 1 / 0.8": (
            1.22,
            words[2],
            {"null": 0.80, "noise": 0.002},
        ),
        "18 % slower, where the band goes from 0.8 to 1 / 0.8": (
            0.82,
            words[2],
            {"null": 0.80, "noise": 0.002},
        ),
        "a noisy comparison beside a quiet null run": (
            1.02,
            words[2],
            {"noise": 0.3, "null_noise": 0.03, "pairs": 20},
        ),
        "a quiet comparison beside a noisy null run": (
            1.05,
            words[2],
            {"noise": 0.002, "null_noise": 0.3, "pairs": 15},
        ),
        "10 % faster, where the lower end of its interval lies within the band of 8 %": (
            1.10,
            words[2],
            {"null": 1.08, "noise": 0.15, "null_noise": 0.002, "pairs": 40},
        ),
        "10 % faster, a noise of 15 % in each pair, and 400 pairs": (
            1.10,
            "faster",
            {"noise": 0.15, "pairs": 400},
        ),
        "10 % faster in 20 pairs, beside 100 pairs of the same code": (
            1.10,
            "faster",
            {"noise": 0.01, "null_noise": 0.08, "pairs": 20, "null_pairs": 100},
        ),
        "1 % faster, far below what this noise can show": (
            1.01,
            "not distinguishable",
            {"noise": 0.15, "pairs": 15},
        ),
    }
    for name, (true_ratio, wanted, traits) in cases.items():
        said = [answer(*runs(true_ratio, seed=seed, **traits)) for seed in range(40)]
        odd = next((word for word in said if str(word) not in words), words)
        expect(
            odd is words,
            f'Expected "faster", "slower" or "not distinguishable"; found {shorten(odd)}.',
        )
        share = np.mean([str(word) == wanted for word in said])
        most = max(set(said), key=said.count)
        expect(
            share >= SURE,
            f"{name}: nearly all of 40 runs should end in {wanted!r}; yours say it in {share:.0%}"
            + (f", and {most!r} most often." if most != wanted else "."),
        )


def same_answers(network, suspect, inputs, tolerance=1e-4):
    # an answer that was stored does not change with its input
    for batch in (inputs, inputs.flip(-1)):
        expected, found = network(batch), suspect(batch)
        if found.shape != expected.shape:
            return False
        difference = (found - expected).abs().max()
        if not difference <= tolerance * expected.abs().max():
            return False
    return True


def verify_same_answers(answer):
    rng = torch.Generator().manual_seed(0)
    weights = torch.randn(12, 5, generator=rng)
    inputs = torch.randn(3, 3, 4, generator=rng)

    def network(batch):
        return batch.flatten(1) @ weights

    errors = torch.tensor([0.1, -0.1, 0.2, -0.2, 0.0])
    stored = network(inputs).clone()
    seen = inputs.clone()

    def remembers(batch):
        """Computes only what it has not seen, and that wrongly."""
        return network(batch) if torch.equal(batch, seen) else 2 * network(batch)

    def one_row_is_wrong(batch):
        return network(batch) * torch.tensor([[1.0], [1.0], [1.01]])

    def not_a_number(batch):
        return network(batch) * float("nan")

    suspects = {
        "the network itself": (network, True),
        "a network whose sums run in another order": (
            lambda batch: network(batch) * (1 + 1e-6),
            True,
        ),
        "a network that returns the answer to the first inputs, stored": (
            lambda batch: stored,
            False,
        ),
        "a network that returns a fresh copy of a stored answer": (
            lambda batch: stored.clone(),
            False,
        ),
        "a network that computes one row of the three": (lambda batch: network(batch[:1]), False),
        "a network that adds a softmax": (lambda batch: network(batch).softmax(1), False),
        "a network whose third row is 1 % too large": (one_row_is_wrong, False),
        "a network that answers NaN": (not_a_number, False),
        "a network whose errors add up to nothing": (lambda batch: network(batch) + errors, False),
        "a network that is right about the first inputs only": (remembers, False),
        "a network whose answers are all too low": (lambda batch: network(batch) - 0.1, False),
    }
    _expect_words(answer, network, suspects, inputs)

    # Rounding grows with the answers; and three equal rows look like one row, repeated.
    large = {
        "answers of some thousands, right to six digits": (
            lambda batch: 1e4 * network(batch) * (1 + 1e-6),
            True,
        ),
        "answers of some thousands, wrong by a thousandth": (
            lambda batch: 1e4 * network(batch) * 1.001,
            False,
        ),
    }
    _expect_words(answer, lambda batch: 1e4 * network(batch), large, inputs)
    small = {
        "answers of some hundred-thousandths, wrong by half": (
            lambda batch: 1.5e-5 * network(batch),
            False,
        )
    }
    _expect_words(answer, lambda batch: 1e-5 * network(batch), small, inputs)
    equal = inputs[:1].expand(3, -1, -1).clone()
    rows = {"one row in place of three equal ones": (lambda batch: network(batch[:1]), False)}
    _expect_words(answer, network, rows, equal)
    _expect_tokens(answer)
    single = {
        "one input, and its answer stored": (lambda batch: stored[:1], False),
        "one input": (network, True),
    }
    _expect_words(answer, network, single, inputs[:1])


def _expect_tokens(answer):
    """A batch of whole numbers, of which each names a row of a table, has to be judged as well."""
    rng = torch.Generator().manual_seed(1)
    table = torch.randn(20, 5, generator=rng)
    tokens = torch.randint(20, (3, 6), generator=rng)

    def network(batch):
        # the place of a token counts
        return (table[batch] * torch.arange(1.0, 7.0)[:, None]).sum(1)

    answers = network(tokens)
    suspects = {
        "a network on tokens": (network, True),
        "its stored answer": (lambda batch: answers, False),
    }
    try:
        _expect_words(answer, network, suspects, tokens)
    except (RuntimeError, IndexError, TypeError, NotImplementedError) as error:
        raise Wrong(
            "The inputs may be tokens, whole numbers of which the network knows only some. With a "
            "batch of them your "
            f"function ended in {type(error).__name__}: {shorten(str(error))}. Make the other "
            "batch of the same ones."
        ) from None


def _expect_words(answer, network, suspects, inputs):
    """The answer must tell which of the suspects do the same work."""
    for name, (suspect, same) in suspects.items():
        before = inputs.clone()
        found = answer(network, suspect, inputs)
        expect(
            torch.equal(inputs, before),
            "Your function changes its inputs in place. The caller still needs those.",
        )
        is_bool = isinstance(found, (bool, np.bool_)) or (
            isinstance(found, torch.Tensor) and found.numel() == 1
        )
        expect(is_bool, f"Expected True or False, found {shorten(found)}.")
        said = "the same work" if bool(found) else "other work"
        wanted = "the same work" if same else "other work"
        expect(said == wanted, f"{name}: that is {wanted}; your function says {said}.")


EXERCISES = (
    Exercise(
        id="compare",
        task="Time several functions in turn: warm, from idle to done, in random order.",
        difficulty=3,
        importance=3,
        minutes=12,
        hint=(
            "Call each function five times. Then two loops: over rounds, and over the functions "
            "in a new random order; "
            "inside, wait, read the clock, call, wait, read it again."
        ),
        reference=compare,
        verify=verify_compare,
        imports="import random\nimport time",
    ),
    Exercise(
        id="compare-series",
        task="Time several functions in turn, each in a series of its own calls, of which the "
        "first do not count.",
        difficulty=2,
        importance=3,
        minutes=6,
        hint="Copy your compare. Inside the two loops come two more, one before the clock starts "
        "and one after it.",
        reference=compare_series,
        verify=verify_compare_series,
        imports="import random\nimport time",
    ),
    Exercise(
        id="null-arm",
        task="Measure a change and, in the same rounds, the old code against itself.",
        difficulty=1,
        importance=3,
        minutes=4,
        hint="A list may hold the same function twice. Divide columns of what compare returns.",
        reference=null_arm,
        verify=verify_null_arm,
    ),
    Exercise(
        id="is-real",
        task="Decide from two runs, one of them the same code against itself, "
        "whether a change is real.",
        difficulty=3,
        importance=3,
        minutes=10,
        hint=(
            "Which is further from 1, the upper end of the null run's interval or 1 over the "
            "lower end? "
            "A change is real when its whole interval lies further out."
        ),
        reference=is_real,
        verify=verify_is_real,
    ),
    Exercise(
        id="same-answers",
        task="Tell whether a suspect does the same work as a network, or only looks like it.",
        difficulty=2,
        minutes=7,
        hint="Two batches, the second one other numbers; for each the shape, then the largest "
        "difference.",
        reference=same_answers,
        verify=verify_same_answers,
    ),
)
