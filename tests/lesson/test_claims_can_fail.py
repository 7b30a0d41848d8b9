"""Every claim of lessons 00 to 03 has been seen to fail: here its own cells run with one fault put in.

Only the statements run that the claim rests on. A fault is a line of code that runs once the lesson has bound a name;
what is given stands in place of what the lesson would measure first.
"""

import ast
import dis
import importlib
import re
import time
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, MappingProxyType, SimpleNamespace
from typing import NamedTuple

import nbformat
import pytest

import labkit.lesson
from labkit.lesson import verdicts
from labkit.lesson.claims import register

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
LOADS = ("LOAD_NAME", "LOAD_GLOBAL")
CHANGES = ("append", "extend", "update", "setdefault", "add")  # methods that change what they belong to

# Lesson 01 without its measurements: one image takes 1 ms, and each further image of a batch as long again.
SERVED = {
    "medium": "medium = {size: np.full(9, 1e-3 * size) for size in SIZES}",
    "chosen": "chosen = [dict.fromkeys(WIDTHS, medium)] * 2",
}
# Less to measure: {lesson: {name: code that runs once the lesson has bound it}}.
SHORT = {
    "00_start_here": {"cache_bytes": "cache_bytes = lambda device: 2**22", "batches": "batches = 1, 128"},
    "02_measuring_honestly": {"k": "side, k = 64, 33"},
    "03_comparing_trainings": {"train": "from functools import partial; train = partial(train, epochs=1)"},
}


class Fault(NamedTuple):
    what: str
    after: dict  # as in SHORT
    given: Mapping = MappingProxyType({})  # {name: code that binds it in place of the lesson}


FAULTS = {
    ("00_start_here", "overhead-counts"): Fault(
        "a million signs, not a thousand",
        {"probes": "lesson_s = probes; probes = lambda: {**lesson_s(), 'thousand': torch.ones(10**6).neg_}"},
    ),
    ("00_start_here", "in-place-is-cheaper"): Fault(
        "in place, but five times",
        {"movers": "lesson_s = movers; movers = lambda: with_call(lesson_s(), 'x.neg_()', 'x.neg_()', times=5)"},
    ),
    ("00_start_here", "bf16-faster"): Fault(
        "three products in fp32 under the name of bf16",
        {"formats": "lesson_s = formats; formats = lambda *n: with_call(lesson_s(*n), 'bf16', 'fp32', times=3)"},
    ),
    ("00_start_here", "one-row-waits-for-memory"): Fault(
        "both arms take their weights from memory, one of them five times",
        {"layers": "lesson_s = layers; layers = lambda: with_call(lesson_s(), (1, 'cache'), (1, 'memory'), times=5)"},
    ),
    ("00_start_here", "many-rows-do-not"): Fault(
        "one row from the cache, not 128",
        {"layers": "lesson_s = layers; layers = lambda: with_call(lesson_s(), (128, 'cache'), (1, 'cache'))"},
    ),
    ("00_start_here", "nothing-beats-the-bound"): Fault(
        "limits measured at a tenth",
        {"least_seconds": "lesson_s = least_seconds; least_seconds = lambda *task: (10 * lesson_s(*task)[0], '')"},
    ),
    ("01_deployment_fundamentals", "small-catches-up"): Fault(
        "the small one gets fewer right",
        {},
        {"right": "right = {'large': np.ones(500), 'small, trained longer': np.arange(500) % 10 > 0}"},
    ),
    ("01_deployment_fundamentals", "arrivals-make-the-wait"): Fault(
        "one call of twenty takes ten times as long",
        {},
        {"times": "times = np.resize([1e-2] + [1e-3] * 19, 500)", "mean": "mean = times.mean()"},
    ),
    ("01_deployment_fundamentals", "batches-carry-more"): Fault(
        "every image of a batch costs as much as one alone", {}, SERVED
    ),
    ("01_deployment_fundamentals", "promise-kept"): Fault(
        "the third pass is five times as slow",
        {},
        {
            **SERVED,
            "best": "best = {'plan': ('medium', 'one at a time, one queue', 6)}",
            "offers": "offers = [best]",
            "judged": "judged = {'medium': {size: 5 * each for size, each in chosen[0]['medium'].items()}}",
        },
    ),
    ("02_measuring_honestly", "first-is-slow"): Fault(
        "every call takes a millisecond, the first one, too",
        {"seconds": "seconds = lambda call: 1e-3"},
    ),
    ("02_measuring_honestly", "unequal-flatters"): Fault(
        "every call takes a millisecond, however many images", {"seconds": "seconds = lambda call: 1e-3"}
    ),
    ("02_measuring_honestly", "same-is-same"): Fault(
        "the same code does five times the work", {"arms": "arms = {**arms, '100 again': lambda: repeat(500)}"}
    ),
    ("02_measuring_honestly", "more-is-slower"): Fault(
        "a fifth is done, not ten percent more", {"arms": "arms = {**arms, '110': lambda: repeat(20)}"}
    ),
    ("02_measuring_honestly", "runs-differ"): Fault("one run under five names", {"birge": "diary = diary[:1] * 5"}),
    ("02_measuring_honestly", "right-and-above"): Fault(
        "the operations that Fourier's way needs", {"operations": "operations = 3 * 2.5 * side**2 * np.log2(side**2)"}
    ),
    ("03_comparing_trainings", "pairs-save"): Fault(
        "the luckiest is paired with the unluckiest",
        {"runs": "runs = {name: np.sort(each)[:: -1 if name == 'ReLU' else 1] for name, each in runs.items()}"},
    ),
    ("03_comparing_trainings", "other-images"): Fault(
        "ReLU under both names", {"ACTIVATIONS": "ACTIVATIONS = dict.fromkeys(ACTIVATIONS, F.relu)"}
    ),
    ("03_comparing_trainings", "rate-takes-apart"): Fault(
        "one rate under four names", {"rates": "rates = (1e-2,) * 4"}
    ),
}


def statements_of(lesson):
    """The statements of a notebook's code cells."""
    cells = nbformat.read(NOTEBOOKS / f"{lesson}.ipynb", as_version=4).cells
    sources = (re.sub("^[%!].*", "", cell.source, flags=re.MULTILINE) for cell in cells if cell.cell_type == "code")
    return [statement for source in sources for statement in ast.parse(source).body]


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
    return any(getattr(call.func, "id", None) == "claim" and call.args[0].value == claim for call in calls)


def what_it_rests_on(lesson, claim, given, added):
    """The statements that the claim and the added code rest on, in their order, and the claim's own.

    given  names that need no statement
    """
    statements = statements_of(lesson)
    place = next(place for place, each in enumerate(statements) if is_claim(each, claim))
    changers = {each.name: set(changed(each)) for each in statements if isinstance(each, ast.FunctionDef)}
    later, chosen = set().union(*(names(each, *LOADS) for each in added)), None
    while True:  # a function may load what is bound after it: then everything is looked for once more
        needed, before, chosen = later | names(compiled(statements[place]), *LOADS), chosen, [statements[place]]
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
def said(monkeypatch):
    """{claim: verdict} of what runs; nothing is asked, shown or written down."""
    found, reference = {}, {}

    def claim(name, sentence, value, *, holds_if, reason=None, **about):
        found[name] = verdicts.of_claim(verdicts.weigh(value), holds_if, reason)[0]

    def start(lesson, *rest):
        reference["of"] = importlib.import_module(f"labkit.lesson.exercises.l{lesson}")
        return SimpleNamespace(choose=lambda quick, **others: quick)

    def exercise(name):
        return SimpleNamespace(check=lambda answer: getattr(reference["of"], name.replace("-", "_")))

    stands_in = {"claim": claim, "start": start, "exercise": exercise, "keep": lambda *rows, **about: rows}
    silent = dict.fromkeys(("predict", "reveal", "answer", "recap"), lambda *given, **how: None)
    for name, function in (stands_in | silent).items():
        monkeypatch.setattr(labkit.lesson, name, function)
    monkeypatch.setattr(time, "perf_counter", time.thread_time)  # other tests may run beside this one
    return found


def run_with_fault(lesson, claim):
    fault, space = FAULTS[lesson, claim], {"profile": "quick", "seed": 0, "with_call": with_call, "display": print}
    after = SHORT.get(lesson, {}) | fault.after
    given, after = ({name: compile(code, name, "exec") for name, code in part.items()} for part in (fault.given, after))

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
    assert {*FAULTS} == {(lesson, claim) for lesson in {lesson for lesson, _ in FAULTS} for claim in register()[lesson]}
