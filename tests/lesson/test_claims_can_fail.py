"""Each claim of the course is seen to fail: its cells run with one fault in.

Only the statements run that the claim rests on. A fault is a line of code that runs once the lesson
has bound a name; what is given stands in place of what the lesson would measure first. The faults
of five lessons stand in test files of their own, which `ELSEWHERE` names: 12, 15, 16, 18 and 19.
"""

import ast
import dis
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import CodeType, MappingProxyType, SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from pages import statements_of

import labkit.lesson
from labkit.ledger import slug
from labkit.lesson import exercises, verdicts
from labkit.lesson.claims import register

pytestmark = [
    pytest.mark.release,
    # of a conversion to FP16, which lesson 17 silences
    pytest.mark.filterwarnings("ignore:the float32 number:UserWarning"),
]
NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
LOADS = ("LOAD_NAME", "LOAD_GLOBAL")
# methods that change what they belong to
CHANGES = ("append", "extend", "update", "setdefault", "add")
# functions that write an ONNX file or change what they are given, where nothing takes their answer
EFFECTS = ("to_onnx", "to_half", "quantize", "onnx.save", "support.set_number", "train")

# Less to measure: {lesson: {name: code that runs once the lesson has bound it}}.
SHORT = {
    "03_what_limits_speed": {
        "cache_bytes": "cache_bytes = lambda device: 2**22",
        "batches": "batches = 1, 128",
    },
    "09_activation_study": {"seconds": "seconds = 0.3"},
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

# A machine on which only photos and the network take time, whatever else this one has to do: a
# photo 1 ms, opened quickly 0.2 ms, the forward pass 20 ms, the backward pass 40 ms
NETWORK = """
class Network(torch.nn.Linear):
    def forward(self, images):
        machine.work(20e-3)()
        logits = super().forward(images.flatten(1))
        logits.register_hook(machine.work(40e-3, None))
        return logits

network = Network(3 * 32 * 32, 10)
"""
A_MACHINE = {
    "machine": "from labkit.measure import SimulatedMachine; machine = SimulatedMachine()",
    "own_clock": "own_clock = machine.now",
    "wait": "wait = machine.synchronize",
    "load_photo": "load_photo = machine.work(1e-3, torch.zeros(3, 32, 32))",
    "quick_photo": "quick_photo = machine.work(2e-4, torch.zeros(3, 32, 32))",
    "network": NETWORK,
    "script": "script = network",
}

OPENS_ONCE_MORE = """
def opens_again(images):
    for file in files[: len(images)]:
        load_photo(file)
    return network(images)

setups["quick photos"] = opens_again, *setups["quick photos"][1:]
"""

COMPUTES_ONCE_MORE = """
def script(images):
    logits = network(images)
    logits.register_hook(machine.work(20e-3, None))
    return logits
"""

# On such a machine a block takes 1 ms, compiled half of it; the call of a compiled network has a
# price of its own
CALLS = """
def calls_for_one_image():
    sizes = {"1": 1, f"{blocks}": blocks}
    calls = {name: machine.work(1e-3 * size) for name, size in sizes.items()}
    calls |= {f"{name}, TC": machine.work(price + 5e-4 * size) for name, size in sizes.items()}
    return calls | {"x + 1, TC": machine.work(price + 1e-4)}
"""

HEAD_STAYS = """
import torch
torch.set_num_threads(1)
page = support

def teach(head_only, *, learning_rate, **settings):
    return page.teach(head_only, learning_rate=1e-9 if head_only else learning_rate, **settings)

support = SimpleNamespace(teach=teach, lead=page.lead)
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
    ("05_where_training_time_goes", "saving-arrives"): Fault(
        "forward opens the photos once more, in the slow way",
        {"setups": OPENS_ONCE_MORE},
        A_MACHINE,
    ),
    ("05_where_training_time_goes", "profile-pays"): Fault(
        "photos opened as before under the name of quick photos",
        {},
        A_MACHINE | {"quick_photo": "quick_photo = load_photo"},
    ),
    ("05_where_training_time_goes", "backward-stays"): Fault(
        "TorchScript's backward pass computes the forward pass once more",
        {},
        A_MACHINE | {"script": COMPUTES_ONCE_MORE},
    ),
    ("05_where_training_time_goes", "head-wins"): Fault(
        "the passes of the head change nothing",
        {"support": HEAD_STAYS},
    ),
    ("09_activation_study", "keeps-as-relu"): Fault(
        "a checkpoint that keeps what the layer keeps",
        {"Checkpointed": "Checkpointed.forward = lambda self, *inputs: self.layer(*inputs)"},
    ),
    ("09_activation_study", "fusing-pays"): Fault(
        "a function of one operator: there is nothing to fuse",
        {"naive": "naive = torch.relu", "x": "x.requires_grad_()"},
        {"board": "board = {}"},
    ),
    ("09_activation_study", "deeper-gains"): Fault(
        "the call of a compiled network has no price of its own",
        {},
        {
            "price": "price = 0",
            "no_compiler": "no_compiler = None",
            "machine": A_MACHINE["machine"],
            "in_turn": "from labkit import measure; "
            "in_turn = partial(measure.in_turn, device=machine.clock)",
            "calls_for_one_image": CALLS,
        },
    ),
    ("17_tensorrt_deployment", "script-agrees"): Fault(
        "a stream that waits for nothing",
        {"cuda": "cuda.Stream = lambda: SimpleNamespace(handle=1, synchronize=lambda: None)"},
    ),
    ("17_tensorrt_deployment", "scale-lost-means-float"): Fault(
        "a copy of the convolution loses its scale, not the one in the file",
        {"dequantize": "import copy; third = copy.deepcopy(third)"},
    ),
    ("17_tensorrt_deployment", "accepted-but-wrong"): Fault(
        "a quantizer that keeps the ReLUs",
        {"quantize": "quantize = partial(quantize, QDQKeepRemovableActivations=True)"},
    ),
    ("17_tensorrt_deployment", "relus-were-missing"): Fault(
        "no ReLU is put back",
        {"put_relus_back": "put_relus_back = lambda model, zero_points: model"},
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

# {lesson: the test file that sees its claims fail, and the claims}
ELSEWHERE = {
    "12_onnx_graphs": (
        "test_onnx_graphs.py",
        {"dropout-draws", "answers-stay", "textbook-opens-nothing", "folding-opens-the-way"},
    ),
    "15_pruning_and_coding": (
        "test_pruning_and_coding.py",
        {"healing-pays", "much-smaller", "what-the-file-forgot", "zeros-are-multiplied"},
    ),
    "16_smaller_networks": (
        "test_smaller_networks.py",
        {"statistics", "teacher-helps", "work-is-not-time", "one-less"},
    ),
    "18_transformer_inference": (
        "test_transformer_inference.py",
        {"per-call-breaks", "cls-own-grid", "attention-needs-it", "engine-computes-it"},
    ),
    "19_language_model_serving": (
        "test_language_model_serving.py",
        {"batch-gains", "speculation-predicted", "speculation-loses", "int8-steps"},
    ),
}

# {claim: the package without which its lesson leaves it open}
NEEDS = {"scale-lost-means-float": "tensorrt_rtx_bindings"}


def compiled(statement):
    return compile(ast.Module([statement], []), "<lesson>", "exec")


def names(code, *operations):
    """The names that a code object and those inside it use with these operations."""
    inner = (names(each, *operations) for each in code.co_consts if isinstance(each, CodeType))
    own = {each.argval for each in dis.get_instructions(code) if each.opname in operations}
    return own.union(*inner)


def files(statement):
    """The names of ONNX files that a statement has."""
    strings = (node.value for node in ast.walk(statement) if isinstance(node, ast.Constant))
    return {value for value in strings if isinstance(value, str) and value.endswith(".onnx")}


def changed(statement):
    """The names whose values a statement, or a function that it defines, changes in place, and
    the ONNX files that it writes.
    """
    for node in ast.walk(statement):
        is_part = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        targets = [node] if is_part or getattr(node, "attr", None) in CHANGES else []
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            has_effect = ast.unparse(call.func) in EFFECTS
            targets = call.args if has_effect else []
            yield from files(call) if has_effect else ()
        for target in targets:
            while isinstance(target, (ast.Subscript, ast.Attribute)):
                target = target.value
            if isinstance(target, ast.Name):
                yield target.id


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
            later | names(compiled(statements[place]), *LOADS) | files(statements[place]),
            chosen,
            [statements[place]],
        )
        for statement in reversed(statements[:place]):
            code, needed = compiled(statement), needed - given
            loads = names(code, *LOADS) | files(statement)
            binds = names(code, "STORE_NAME")
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
    threads = torch.get_num_threads()
    yield found
    torch.set_num_threads(threads)


def run_with_fault(lesson, claim):
    fault, space = FAULTS[lesson, claim], {"profile": "quick", "seed": 0, "display": print}
    space |= {"with_call": with_call, "partial": partial, "SimpleNamespace": SimpleNamespace}
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
    if claim in NEEDS:
        pytest.importorskip(NEEDS[claim], exc_type=ImportError)
    for _ in range(3):  # on a busy machine an interval may be too long for a verdict
        run_with_fault(lesson, claim)
        assert {*said} == {claim}
        if said[claim] == "fails":
            break
    assert said[claim] == "fails"


def claims_seen_to_fail(path):
    """The words in the tests of a file that judge a claim and expect that it fails."""
    seen = set()
    for test in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
            nodes = list(ast.walk(test))  # with its parameters
            calls = {getattr(node.func, "id", None) for node in nodes if isinstance(node, ast.Call)}
            words = {node.value for node in nodes if isinstance(node, ast.Constant)}
            seen |= words if "judged" in calls and "fails" in words else set()
    return seen


@pytest.mark.parametrize("lesson", ELSEWHERE)
def test_the_faults_elsewhere_are_there(lesson):
    file, claims = ELSEWHERE[lesson]
    assert claims <= claims_seen_to_fail(Path(__file__).with_name(file))


def test_every_claim_of_the_register_has_a_fault_here_or_elsewhere():
    faults = [(slug(lesson), claim) for lesson, claim in FAULTS]
    for lesson, (_, claims) in ELSEWHERE.items():
        faults += [(slug(lesson), claim) for claim in claims]
    registered = [(lesson, claim) for lesson, claims in register().items() for claim in claims]
    assert sorted(faults) == sorted(registered)
