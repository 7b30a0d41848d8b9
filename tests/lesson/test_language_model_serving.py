"""The lesson on serving a language model: its claims with right and wrong values, its simulated
machine worked by hand, its layers in 8 bits.
"""

import ast
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from pages import judged, statements_of
from torch import nn

from labkit.lesson.exercises.l19_language_model_serving import turn
from labkit.lesson.support import load_support
from labkit.measure.stats import mean_ratio, median_of_rounds

STATEMENTS = statements_of("19_language_model_serving")
support = load_support("language_model_serving")
ROUNDS = 25
# torch says that these operators will leave it; the lesson says nothing else of them
pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per:UserWarning")
PROMPTS = 8


def noisy(level, count=ROUNDS, seed=0):
    """Times near a level, (count,)."""
    return level * np.random.default_rng(seed).normal(1, 0.01, count)


def bound_to(*, many=24.0, cost=2.0, check=60.0, narrow=5.0):
    """What the claims rest on, measured on a made-up machine: a step of one user takes 12 ms.

    many    ms of a step for 16 users
    cost    of a round with four guesses, in steps; a check leaves three tokens
    check   ms of a step that checks two guesses for 16 users
    narrow  ms of a step in INT8
    """
    seconds = {0: noisy(3.0, PROMPTS), 4: noisy(cost, PROMPTS, 1)}
    return {
        "np": np,
        "median_of_rounds": median_of_rounds,
        "mean_ratio": mean_ratio,
        "single": noisy(12.0),
        "many": noisy(many, seed=1),
        "per_check": {4: noisy(3.0, PROMPTS, 2)},
        "seconds": seconds,
        "costs": np.array([[1.0, 0.5], [0.6, 1.4]]),
        "at_best": {16: 2.3 * median_of_rounds(noisy(24.0) / noisy(check, seed=3))},
        "pair": (),
        "ROUNDS": ROUNDS,
        "took": lambda *calls, rounds: (noisy(12.0, rounds), noisy(narrow, rounds, 4)),
    }


@pytest.mark.parametrize(
    ("claim", "fault"),
    [
        ("batch-gains", {"many": 12.0 * 16 / 3}),
        ("speculation-predicted", {"cost": 2.0 * 1.3}),
        ("speculation-loses", {"check": 24.0 * 2}),
        ("int8-steps", {"narrow": 8.0}),
    ],
)
def test_a_claim_holds_on_a_machine_as_it_says_and_fails_on_another(claim, fault):
    assert judged(STATEMENTS, claim, bound_to()) == "holds"
    assert judged(STATEMENTS, claim, bound_to(**fault)) == "fails"


def page(*names):
    """The page's functions and classes of these names."""
    bound = {"np": np, "torch": torch, "dataclass": dataclass, "field": field}
    for statement in STATEMENTS:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) and statement.name in names:
            exec(ast.unparse(statement), bound)
    return [bound[name] for name in names]


def test_the_simulated_machine_and_waits_are_those_worked_by_hand():
    make_user, make_machine, waits = page("User", "Simulated", "waits")
    # 10 ms for any part of a prompt; a step takes 5 ms for one user and 6 for two
    machine = make_machine({1: 10, 128: 10}, {1: 5, 2: 6, 64: 68})
    first, second = make_user(0.0, 8, 3), make_user(0.0, 8, 2)
    waiting, writing = [first, second], []
    while waiting or writing:
        turn(waiting, writing, machine, rows=4, chunk=8)
    # a turn: step, then a chunk. 10: first; 15, 25: first's 2nd, second; 31: both
    np.testing.assert_allclose(first.times, [0.010, 0.015, 0.031])
    np.testing.assert_allclose(second.times, [0.025, 0.031])
    to_first, per_token = waits([first, second])
    np.testing.assert_allclose(to_first, [10, 25])
    np.testing.assert_allclose(per_token, [10.5, 6])


@pytest.mark.parametrize("kind", ["Narrow", "Both", "PerToken"])
def test_a_layer_in_8_bits_answers_nearly_what_the_layer_answers(kind):
    torch.manual_seed(0)
    linear, x = nn.Linear(256, 64, bias=False), torch.randn(1, 5, 256)
    right, answer = linear(x), getattr(support, kind)(linear)(x)
    assert answer.shape == right.shape and answer.dtype == right.dtype
    assert (answer - right).square().mean() < 1e-3 * right.square().mean()


def test_a_scale_per_token_keeps_small_tokens_beside_a_large_one():
    torch.manual_seed(0)
    linear, x = nn.Linear(256, 64, bias=False), torch.randn(1, 5, 256)
    x[0, 0] *= 1000
    right = linear(x)[0, 1:]
    errors = [
        (kind(linear)(x)[0, 1:] - right).square().mean()
        for kind in (support.Both, support.PerToken)
    ]
    assert errors[1] < errors[0] / 100


def test_pages_hold_each_users_tokens_and_no_page_belongs_to_two():
    tables = support.paged([20, 64, 1], np.random.default_rng(0))
    assert [len(table) for table in tables] == [2, 4, 1]
    assert sorted(np.concatenate(tables)) == list(range(7))
