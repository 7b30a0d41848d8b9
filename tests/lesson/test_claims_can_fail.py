"""Each claim of lessons 00 to 04, 06 to 08, 10, 11, 13, 14 and 20 was seen to fail: its cells run
with one fault in.

Only the statements run that the claim rests on. A fault is a line of code that runs once the lesson
has bound a name; what is given stands in place of what the lesson would measure first.
"""

import ast
import dis
import time
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, MappingProxyType, SimpleNamespace
from typing import NamedTuple

import pytest
from pages import statements_of

import labkit.lesson
from labkit.ledger import slug
from labkit.lesson import exercises, verdicts
from labkit.lesson.claims import register

pytestmark = pytest.mark.release
NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
LOADS = ("LOAD_NAME", "LOAD_GLOBAL")
# methods that change what they belong to
CHANGES = ("append", "extend", "update", "setdefault", "add")

# Less to measure: {lesson: {name: code that runs once the lesson has bound it}}.
SHORT = {
    "03_what_limits_speed": {
        "cache_bytes": "cache_bytes = lambda device: 2**22",
        "batches": "batches = 1, 128",
    },
}


class Fault(NamedTuple):
    what: str
    after: dict  # as in SHORT
    given: Mapping = MappingProxyType({})  # {name: code that binds it in place of the lesson}


# `Times` of two calls and the null arm, a second each
A_SECOND_EACH = "from labkit.measure import Times; seconds = np.ones((12, 3))"

ACCURACIES = """
from types import SimpleNamespace
relu = SimpleNamespace(accuracy=np.random.default_rng(0).normal(81, 0.3, 64))
"""

# The page's two calls, with a fault in one of them
FROM_MEMORY_ONLY = """
right = memory_or_cache

def memory_or_cache(x, copies):
    return right(x, copies) | {"cache": lambda: [right(x, copies)["memory"]() for _ in range(5)]}
"""

ONE_ROW_FROM_THE_CACHE = """
right = memory_or_cache

def memory_or_cache(x, copies):
    return right(x, copies) | {"cache": right(x[:1], copies)["cache"]}
"""

RUNS = """
from types import SimpleNamespace
from labkit.train.repeat import repeat

def runs_of(percent, digit):
    return repeat(lambda seed: SimpleNamespace(accuracy=percent + seed % digit / 10), range(8))
"""

# Three ways to train that take a second each, whatever the images
A_SECOND_A_STEP = {
    "ways": "ways = dict.fromkeys(('1 worker', '2 workers', '2 workers, synchronised'))",
    "times": "times = {(way, n): np.ones(12) for way in ways for n in sizes}",
}

A_RELU_ALWAYS = """
from types import SimpleNamespace
page = study

def with_relu(zero, *, relu):
    return page.one_convolution(zero)

study = SimpleNamespace(kernels=page.kernels, one_convolution=with_relu)
"""

DARK_IMAGES = """
dark = library.Calibration((calibration_images / 9,), "images that are too dark")
add("dark", library.static(fp32, folder / "dark.onnx", dark, recipe="onnxruntime"))
losses = [board["dark"]["points lost"]]
"""

FLOAT_AS_INT8 = """
rows = {"INT8": {"path": fp32}}
race(rows, fp32, images[:4], 12)
speed = rows["INT8"]["times as fast"]
"""

# Facts of the judge about a file; the reference takes two seconds
SCORE = """
from types import SimpleNamespace

def facts_of(right=(1,) * 20, size_bytes=1.0, seconds=1.0):
    times = {"times": [seconds] * 20, "reference": [2.0] * 20, "floor": [0.5] * 20}
    sizes = {"size_bytes": size_bytes, "reference_bytes": 1.0}
    return SimpleNamespace(facts=times | sizes | {"right": right})
"""

FAULTS = {
    ("00_start_here", "half-a-point-lost"): Fault(
        "forty of two thousand right answers are lost, and none is won",
        {},
        {
            "labels": "labels = np.zeros(2000)",
            "lost": "lost = np.arange(2000) < 40",
            "won": "won = np.zeros(2000, bool)",
        },
    ),
    ("03_what_limits_speed", "overhead-counts"): Fault(
        "a million signs, not a thousand",
        {"sizes": "sizes = {**sizes, '1,000 pixels': pixels[:1_000_000].neg_}"},
    ),
    ("03_what_limits_speed", "one-row-waits-for-memory"): Fault(
        "both arms take their weights from memory, one of them five times",
        {"memory_or_cache": FROM_MEMORY_ONLY},
    ),
    ("03_what_limits_speed", "many-rows-do-not"): Fault(
        "from the cache one row, not 128",
        {"memory_or_cache": ONE_ROW_FROM_THE_CACHE},
    ),
    ("03_what_limits_speed", "nothing-beats-the-bound"): Fault(
        "limits measured at a tenth",
        {
            "least_seconds": "lesson_s = least_seconds; least_seconds = lambda *task: (10 * "
            "lesson_s(*task)[0], '')"
        },
    ),
    ("01_deployment_fundamentals", "arrivals-make-the-wait"): Fault(
        "one call of twenty takes ten times as long",
        {},
        {"services": "services = np.resize([1e-2] + [1e-3] * 19, 500)"},
    ),
    ("01_deployment_fundamentals", "one-queue-carries-more"): Fault(
        "a queue each under the name of one queue",
        {"queue_each": "one_queue = queue_each"},
        {"services": "services = np.resize([1e-3, 1.2e-3], 500)"},
    ),
    ("01_deployment_fundamentals", "bursts-break-the-promise"): Fault(
        "four at once arrive one by one",
        {"bursts": "bursts = poisson"},
        {"services": "services = np.resize([1e-3, 1.2e-3], 500)"},
    ),
    ("02_measuring_honestly", "first-is-slow"): Fault(
        "every call takes a millisecond, the first one, too",
        {"stopwatch": "stopwatch = lambda call, wait: 1.0"},
    ),
    ("02_measuring_honestly", "unequal-flatters"): Fault(
        "every call takes a millisecond, however many images",
        {},
        {
            "compare": "compare = lambda calls, wait, rounds=40: np.full((rounds, "
            "len(calls)), 1e-3)",
            "same_answers": "same_answers = lambda network, suspect, inputs: False",
        },
    ),
    ("04_comparing_trainings", "three-fall-short"): Fault(
        "three values that take the factor of three",
        {"covered": "in_lesson = covered; covered = lambda count, factor: in_lesson(count, 4.303)"},
        {"relu": ACCURACIES},
    ),
    ("04_comparing_trainings", "t-keeps-promise"): Fault(
        "1.96 under the name of t", {"student": "student = lambda n: 1.96"}, {"relu": ACCURACIES}
    ),
    ("04_comparing_trainings", "pairs-save"): Fault(
        "the luckiest is paired with the unluckiest",
        {},
        {
            "relu": ACCURACIES,
            "hardswish": "hardswish = SimpleNamespace(accuracy=np.sort(relu.accuracy)[::-1]); "
            "relu.accuracy = np.sort(relu.accuracy)",
        },
    ),
    ("04_comparing_trainings", "peeking-alarms"): Fault(
        "one look, at the end",
        {"ever_named": "ever_named = lambda leads, named: 100 * named(leads).mean()"},
        {"leads": "leads = np.random.default_rng(1).normal(0.3, 0.3, 64)"},
    ),
    ("06_batch_size_and_minima", "rate-gains"): Fault(
        "every training is the one at the first rate",
        {},
        {"run": "run = lambda batch, rate, **end: np.arange(8.0) + batch"},
    ),
    ("06_batch_size_and_minima", "groups-gain"): Fault(
        "ghosts as large as the batch",
        {"GhostNorm": "GhostNorm = partial(GhostNorm, ghost_size=256)"},
        {
            "train_large": "train_large = partial(repeat, train, range(3), batch=256, epochs=4)",
            "linear": "linear = train_large(learning_rate=1)",
        },
    ),
    ("06_batch_size_and_minima", "more-curved"): Fault(
        "batch 16 under both names",
        {},
        {
            "small": "small = repeat(train, range(3), batch=16, learning_rate=1 / 16, epochs=2)",
            "sharp": "sharp = dict.fromkeys(('batch 16, 1/16', 'batch 256, 1/16'), "
            "sharpness(small))",
        },
    ),
    ("06_batch_size_and_minima", "same-answers-sharper"): Fault(
        "a rewriting that changes nothing",
        {"rewritten": "rewritten = lambda network, factor: copy.deepcopy(network)"},
        {
            "small": "small = repeat(train, range(3), batch=16, learning_rate=1 / 16, epochs=2)",
            "sharp": "sharp = {'batch 16, 1/16': sharpness(small)}",
        },
    ),
    ("08_compile_and_amp", "amp-no-points"): Fault(
        "AMP loses five points",
        {},
        {"accuracy": "accuracy = {'vanilla': np.arange(4) + 75.5, 'AMP': np.arange(4) + 70.0}"},
    ),
    ("08_compile_and_amp", "amp-costs"): Fault(
        "both take a second, with AMP and without",
        {},
        {
            "ROWS": "ROWS = [16]",
            "precision": f"{A_SECOND_EACH}; precision = {{16: Times(('vanilla', 'AMP'), seconds)}}",
        },
    ),
    ("08_compile_and_amp", "operators-decide"): Fault(
        "a step takes a second, compiled or not",
        {},
        {
            "no_compiler": "no_compiler = None",
            "ROWS": "ROWS = [16]",
            "compiling": f"{A_SECOND_EACH}; compiling = {{16: Times(('vanilla', 'TC'), seconds)}}",
        },
    ),
    ("08_compile_and_amp", "three-bits"): Fault(
        "bf16 under the name of fp16",
        {
            "gradient": "in_lesson = gradient; gradient = lambda d=None, s=1.0: in_lesson(d and "
            "torch.bfloat16, s)"
        },
    ),
    ("10_scaling_out", "ghosts"): Fault(
        "the gradient of the whole batch under the name of two workers",
        {},
        {
            "net": "torch.manual_seed(0); net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), "
            "nn.Linear(8, 3))",
            "x": "x = torch.randn(64, 6)",
            "y": "y = torch.arange(64) % 3",
            "two": "two = in_parts(net, x, y, 1)",
        },
    ),
    ("10_scaling_out", "faster"): Fault("two workers are as fast as one", {}, A_SECOND_A_STEP),
    ("10_scaling_out", "small-slower"): Fault(
        "two workers take half the time, even with 16 images",
        {},
        A_SECOND_A_STEP
        | {"times": "times = {(way, n): np.ones(12) / int(way[0]) for way in ways for n in sizes}"},
    ),
    ("07_large_batch_tricks", "gap"): Fault(
        "both batches end alike",
        {},
        {"small": RUNS + "small = runs_of(77, 3)", "large": RUNS + "large = runs_of(77, 2)"},
    ),
    ("07_large_batch_tricks", "linear-from-low"): Fault(
        "linear scaling wins nothing back",
        {},
        {
            "runs": RUNS
            + "runs = {(16, 1/16): runs_of(77, 3), (256, 1/16): runs_of(65, 2), (256, 1): "
            "runs_of(66, 2)}"
        },
    ),
    ("07_large_batch_tricks", "warm-up-adam"): Fault(
        "with a warm-up and without one Adam ends alike",
        {},
        {
            "adam": RUNS
            + "adam = {(0.9, 0.3, 'warm-up'): runs_of(70, 3), (0.9, 0.3, 'no warm-up'): "
            "runs_of(70, 2)}"
        },
    ),
    ("07_large_batch_tricks", "schedule-does-it"): Fault(
        "what LARS gains is lost without the layers",
        {},
        {
            "unmasked": RUNS + "unmasked = runs_of(76, 3)",
            "sgd": RUNS + "sgd = runs_of(76, 2)",
            "lars": RUNS + "lars = runs_of(77, 3)",
        },
    ),
    ("14_quantization_hard_cases", "one-grid-costs"): Fault(
        "one grid rounds nothing",
        {"one_grid": "one_grid = lambda w, bits=8: w"},
    ),
    ("14_quantization_hard_cases", "dead-filters-did-it"): Fault(
        "other filters than the dead ones are set to 0",
        {"apart": "apart = [0, 1]"},
    ),
    ("14_quantization_hard_cases", "qat-pays"): Fault(
        "training with the rounding wins next to nothing",
        {},
        {"gains": "gains = {'QAT': np.array([0.1, 0.2, 0.3]), 'float training, PTQ': np.zeros(3)}"},
    ),
    ("14_quantization_hard_cases", "engine-agrees"): Fault(
        "one image of a hundred gets another class",
        {},
        {"same": "same = {'as written': 100.0, 'all rules': 99.0}"},
    ),
    ("11_train_it_fast", "norm-remembers"): Fault(
        "what batch 512 loses lies in its weights: counting anew brings nothing back",
        {},
        {
            "batches": "batches = [64, 512]",
            "rights": "rights = np.stack([np.full((6, 2), 75.0), np.full((6, 2), 30.0)])"
            " + np.arange(6.0)[:, None] * [[[0.1, 0.2]], [[-0.1, -0.2]]]",
        },
    ),
    ("11_train_it_fast", "ema-own-worth"): Fault(
        "nearly all that EMA gains is its own",
        {},
        {
            "DECAYS": "DECAYS = [0.0, 0.9]",
            "stayed": "stayed = np.array([[60.0, 62.0], [75.0, 76.0]]) + "
            "np.arange(6.0)[:, None, None] / 10",
        },
    ),
    ("11_train_it_fast", "three-times"): Fault(
        "the recipe at the end needs as many images as the reference, and each costs as much",
        {},
        {
            "rows": "rows = {'reference': support.Row({}, 3000 + np.arange(6.0), 1 "
            "+ np.arange(6) / 100)}",
            "now": "now = support.Row({}, 3005 - np.arange(6.0), 1.05 - np.arange(6) / 100)",
        },
    ),
    ("11_train_it_fast", "judge-agrees"): Fault(
        "the judge gives half of what is promised",
        {},
        {
            "mine": "from types import SimpleNamespace\nfrom labkit.measure.stats import Interval\n"
            "mine = SimpleNamespace(points=Interval(1.9, 2.1, 3, 2.0, 3, 't'), reason=None)",
            "promised": "from types import SimpleNamespace\npromised = SimpleNamespace(mean=4.0)",
        },
    ),
    ("13_quantization", "relu-blocks"): Fault(
        "a ReLU behind every convolution",
        {"study": A_RELU_ALWAYS},
    ),
    ("13_quantization", "at-most-one-point"): Fault(
        "calibrated on images that are nine times too dark",
        {},
        {"board": "board = {}", "losses": DARK_IMAGES},
    ),
    ("13_quantization", "int8-faster"): Fault(
        "the float file under the name of the INT8 file",
        {},
        {"speed": FLOAT_AS_INT8},
    ),
    ("13_quantization", "stretching-pays"): Fault(
        "a stretch that changes nothing",
        {"stretch": "stretch = lambda weights, rounded: rounded"},
    ),
    ("20_ship_it", "cheat-pays"): Fault(
        "half of the thumbnails' answers are wrong",
        {},
        {"cheat": SCORE + "cheat = facts_of(right=[0, 1] * 10, size_bytes=550_000)"},
    ),
    ("20_ship_it", "techniques-overlap"): Fault(
        "each technique takes three of four bytes, whatever came before",
        {},
        {
            "best": "best = 'try 1'",
            "techniques": "techniques = ['thin', 'INT8']",
            "worth": SCORE
            + "worth = study.Worth({c: facts_of(size_bytes=4.0 ** -len(c), seconds=2.0) "
            "for c in study.subsets(['thin', 'INT8'])})",
        },
    ),
    ("20_ship_it", "healing-is-needed"): Fault(
        "half of the copies are right before healing, all after it",
        {},
        {
            "lengths": "lengths = 0, 2",
            "healed": "healed = {0: np.resize([0.0, 1.0], 600), 2: np.ones(600)}",
        },
    ),
    ("20_ship_it", "norms-heal"): Fault(
        "new statistics bring nothing back",
        {},
        {
            "lengths": "lengths = 0, 2",
            "healed": "healed = {0: np.resize([0.0, 1.0], 600), 2: np.ones(600)}",
            "anew": "anew = {0: np.resize([0.0, 1.0], 600)}",
        },
    ),
}


def compiled(statement):
    return compile(ast.Module([statement], []), "<lesson>", "exec")


def names(code, *operations):
    """The names that a code object and those inside it use with these operations."""
    inner = (names(each, *operations) for each in code.co_consts if isinstance(each, CodeType))
    own = {each.argval for each in dis.get_instructions(code) if each.opname in operations}
    return own.union(*inner)


def changed(statement):
    """The names whose values a statement, or a function that it defines, changes in place."""
    for node in ast.walk(statement):
        is_part = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        if is_part or (isinstance(node, ast.Attribute) and node.attr in CHANGES):
            while isinstance(node, (ast.Subscript, ast.Attribute)):
                node = node.value
            if isinstance(node, ast.Name):
                yield node.id


def is_claim(statement, claim):
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(
        getattr(call.func, "id", None) == "claim" and call.args[0].value == claim for call in calls
    )


def what_it_rests_on(lesson, claim, given, added):
    """The statements that the claim and the added code rest on, in their order, and the claim's
    own.

    given  names that need no statement
    """
    statements = statements_of(lesson)
    place = next(place for place, each in enumerate(statements) if is_claim(each, claim))
    changers = {
        each.name: set(changed(each)) for each in statements if isinstance(each, ast.FunctionDef)
    }
    later, chosen = set().union(*(names(each, *LOADS) for each in added)), None
    # a function may load what is bound after it: then everything is looked for once more
    while True:
        needed, before, chosen = (
            later | names(compiled(statements[place]), *LOADS),
            chosen,
            [statements[place]],
        )
        for statement in reversed(statements[:place]):
            code, needed = compiled(statement), needed - given
            loads, binds = names(code, *LOADS), names(code, "STORE_NAME")
            changes = set() if isinstance(statement, ast.FunctionDef) else set(changed(statement))
            changes = changes.union(*(changers.get(name, ()) for name in loads - binds))
            if needed & (binds | changes):
                chosen.append(statement)
                if isinstance(statement, (ast.For, ast.With, ast.If)):
                    loads -= binds
                else:
                    needed -= binds
                needed |= loads
                later |= names(code, "LOAD_GLOBAL")
        if chosen == before:
            return chosen[::-1]


def with_call(calls, place, other, times=1):
    """The calls, with another one in one place, made so many times."""
    return {**calls, place: lambda: [calls[other]() for _ in range(times)][-1]}


@pytest.fixture
def said(monkeypatch, tmp_path):
    """{claim: verdict} of what runs; nothing is asked, shown or written down."""
    found = {}

    def claim(name, sentence, value, *, reason=None, unit=None, **bounds):
        found[name] = verdicts.of_claim(verdicts.weigh(value), verdicts.Bounds(**bounds), reason)[0]

    def start(lesson, *rest):
        return SimpleNamespace(choose=lambda quick, **others: quick, folder=tmp_path)

    def exercise(name):
        return SimpleNamespace(check=lambda answer: exercises.find(name).reference)

    stands_in = {
        "claim": claim,
        "start": start,
        "exercise": exercise,
        "keep": lambda *rows, **about: rows,
    }
    silent = dict.fromkeys(("predict", "reveal", "answer", "recap"), lambda *given, **how: None)
    for name, function in (stands_in | silent).items():
        monkeypatch.setattr(labkit.lesson, name, function)
    # other tests may run beside this one
    monkeypatch.setattr(time, "perf_counter", time.thread_time)
    return found


def run_with_fault(lesson, claim):
    fault, space = (
        FAULTS[lesson, claim],
        {"profile": "quick", "seed": 0, "with_call": with_call, "display": print},
    )
    after = SHORT.get(lesson, {}) | fault.after
    given, after = (
        {name: compile(code, name, "exec") for name, code in part.items()}
        for part in (fault.given, after)
    )

    def run(code):
        for name in names(code, *LOADS):
            if name in given:
                run(given.pop(name))
        exec(code, space)

    unused = {*fault.after}
    for statement in what_it_rests_on(lesson, claim, {*given}, [*given.values(), *after.values()]):
        run(compiled(statement))
        for name in names(compiled(statement), "STORE_NAME") & {*after}:
            run(after[name])
            unused.discard(name)
    assert not unused, "the fault was put in nowhere"


@pytest.mark.slow
@pytest.mark.parametrize(("lesson", "claim"), FAULTS, ids=lambda name: name)
def test_a_claim_fails_with_a_fault_put_in(lesson, claim, said):
    for _ in range(3):  # on a busy machine an interval may be too long for a verdict
        run_with_fault(lesson, claim)
        assert {*said} == {claim}
        if said[claim] == "fails":
            break
    assert said[claim] == "fails"


def test_every_claim_of_these_lessons_has_a_fault():
    lessons_with_faults = {lesson for lesson, _ in FAULTS}
    claims = {
        (lesson, claim) for lesson in lessons_with_faults for claim in register()[slug(lesson)]
    }
    assert {*FAULTS} == claims
