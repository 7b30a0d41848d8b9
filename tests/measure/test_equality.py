"""Unequal work is refused before anything is timed, and the refusal says what differs."""

import re
from functools import partial

import numpy as np
import pytest
import torch

from labkit.errors import MeasureError
from labkit.measure.clock import as_calls
from labkit.measure.equality import check_same_work

X = torch.linspace(-1, 1, 24).reshape(3, 8)
W = torch.linspace(-1, 2, 64).reshape(8, 8)


def right(x):
    return (x @ W).tanh()


def check(wrong, *, inputs=None, tolerance=1e-5, baseline=right, **more):
    check_same_work(
        {"right": baseline, "wrong": wrong}, inputs or [(X.clone(),)], tolerance=tolerance, **more
    )


def remembered(fn):
    """`fn` with a cache that ignores what it is given."""
    store = []

    def call(x):
        store.append(fn(x)) if not store else None
        return store[0].clone()

    return call


WRONG = {
    "another batch": (lambda x: right(x)[:1], "batch size 1 instead of 3"),
    "another shape": (lambda x: right(x)[:, :4], r"shape \(3, 4\) instead of \(3, 8\)"),
    "transposed": (lambda x: right(x).T, "transposed"),
    "another dtype": (lambda x: right(x).half(), "dtype float16 instead of float32"),
    "NaN": (lambda x: right(x).masked_fill(x > 0.9, torch.nan), "2 NaN instead of 0"),
    "infinite": (lambda x: right(x).masked_fill(x > 0.9, torch.inf), "differs by up to inf %"),
    "two outputs": (lambda x: (right(x), right(x)), "2 outputs instead of 1"),
    "other weights": (lambda x: (x @ W.flip(0)).tanh(), "differs by up to"),
    "a small shift": (lambda x: right(x) + 0.01, "tolerance 0.001 %"),
    "softmax too many": (lambda x: right(x).softmax(-1), "a softmax too many"),
    "cached": (remembered(right), "cached"),
    "random": (lambda x: torch.nn.functional.dropout(right(x)), "differently to the same input"),
    "nothing": (lambda x: None, "returns nothing"),
    "text": (lambda x: "yes", "cannot be compared"),
}


@pytest.mark.parametrize("name", WRONG)
def test_unequal_work_is_refused_with_what_differs(name):
    wrong, words = WRONG[name]
    with pytest.raises(MeasureError, match=words):
        check(wrong)


def test_equal_work_passes():
    check(lambda x: torch.tanh(torch.mm(x, W)))


def test_the_inputs_are_never_written_to():
    x, array = X.clone(), X.numpy().copy()
    array.flags.writeable = False
    with pytest.raises(MeasureError, match="cached"):
        check(remembered(right), inputs=[(x,)])
    check(lambda x: x * 1, baseline=lambda x: x + 0, inputs=[(array,)])
    assert torch.equal(x, X) and x._version == X.clone()._version


@pytest.mark.parametrize(
    ("inputs", "calls"),
    [([()], 2), ([(X,)], 4), ([(X,), (X + 1,)], 4), ([(X + n,) for n in range(5)], 6)],
)
def test_an_arm_is_called_as_often_as_compare_says(inputs, calls):
    seen = []
    check(lambda *args: seen.append(args) or 1.0, baseline=lambda *args: 1.0, inputs=inputs)
    assert len(seen) == calls


def test_a_missing_softmax_is_named():
    with pytest.raises(MeasureError, match="a softmax is missing"):
        check(right, baseline=lambda x: right(x).softmax(-1))


def test_a_transposed_square_output_is_named():
    square = torch.arange(9.0).reshape(3, 3)
    with pytest.raises(MeasureError, match="it is transposed"):
        check(lambda x: (x[:, :3] + square).T.contiguous(), baseline=lambda x: x[:, :3] + square)


MISTAKE = r"transposed|softmax|order"
SQUARE = torch.arange(9.0).reshape(3, 3)
SYMMETRIC = SQUARE + SQUARE.T

# (answer, what the other function answers): they differ, and no usual mistake explains it
UNEXPLAINED = {
    "a vector and rounding": (torch.linspace(1, 2, 5), torch.linspace(1, 2, 5) * (1 + 1e-6)),
    "a vector and more than rounding": (torch.linspace(1, 2, 5), torch.linspace(1, 2, 5) + 0.1),
    "a vector backwards": (torch.linspace(1, 2, 5), torch.linspace(2, 1, 5)),
    "one number": (torch.tensor(1.0), torch.tensor(1.0 + 1e-6)),
    "a row": (torch.linspace(1, 2, 5)[None], torch.linspace(1, 2, 5)[None] * (1 + 1e-6)),
    "a matrix of one number": (torch.ones(1, 1), torch.ones(1, 1) * (1 + 1e-6)),
    "a symmetric matrix and rounding": (SYMMETRIC, SYMMETRIC * (1 + 1e-6)),
    "a symmetric matrix and more": (SYMMETRIC, SYMMETRIC + 0.5),
    "a square matrix and rounding": (SQUARE, SQUARE * (1 + 1e-6)),
    "a square matrix of zeros": (torch.zeros(3, 3), torch.zeros(3, 3) + 1e-6),
    "a column of ones": (torch.ones(3, 1), torch.full((3, 1), 0.5)),
    "complex numbers, and more than rounding": (torch.complex(SQUARE, SQUARE + 1),
                                                torch.complex(SQUARE, SQUARE + 1) * 1j),
    "two complex columns": (torch.complex(SQUARE, SQUARE + 1)[:2, :2],
                            torch.complex(SQUARE + 1, SQUARE)[:2, :2]),
    "constant images": (torch.ones(1, 2, 2, 2), torch.full((1, 2, 2, 2), 0.25)),
    "probabilities and rounding": (torch.full((3, 4), 0.25), torch.full((3, 4), 0.25 + 1e-7)),
}  # fmt: skip


@pytest.mark.parametrize("case", UNEXPLAINED)
def test_a_difference_that_no_usual_mistake_explains_is_told_without_one(case):
    expected, answer = UNEXPLAINED[case]
    with pytest.raises(MeasureError, match="differs by up to") as refused:
        check(lambda: answer.clone(), baseline=lambda: expected.clone(), inputs=[()], tolerance=0)
    assert not re.search(MISTAKE, str(refused.value))


# (answer, what the other function answers, the mistake)
EXPLAINED = {
    "transposed": (SQUARE, SQUARE.T, "it is transposed"),
    "transposed, and rounding": (SQUARE, SQUARE.T * (1 + 1e-6), "it is transposed"),
    "each matrix of a batch transposed": (torch.arange(18.0).reshape(2, 3, 3),
                                          torch.arange(18.0).reshape(2, 3, 3).mT, "it is transposed"),
    "complex numbers, transposed": (torch.complex(SQUARE, SQUARE + 1),
                                    torch.complex(SQUARE, SQUARE + 1).T, "it is transposed"),
    "images with their channels last": (torch.arange(64.0).reshape(1, 4, 4, 4),
                                        torch.arange(64.0).reshape(1, 4, 4, 4).permute(0, 2, 3, 1),
                                        "dimensions are in the order"),
    "a softmax missing in a vector": (SQUARE[0].softmax(-1), SQUARE[0], "a softmax is missing"),
    "a softmax too many in a matrix": (SQUARE, SQUARE.softmax(-1), "a softmax too many"),
}  # fmt: skip


@pytest.mark.parametrize("case", EXPLAINED)
@pytest.mark.parametrize("tolerance", [0, 1e-6, 1e-3])
def test_a_usual_mistake_is_named(case, tolerance):
    expected, answer, mistake = EXPLAINED[case]
    with pytest.raises(MeasureError, match=mistake):
        check(
            lambda: answer.clone(),
            baseline=lambda: expected.clone(),
            inputs=[()],
            tolerance=tolerance,
        )


def test_a_difference_within_the_tolerance_passes():
    check(lambda x: right(x) + 0.01, tolerance=0.02)
    check(lambda x: right(x.bfloat16().float()), tolerance=2e-2)


def test_the_tolerance_is_relative_to_the_largest_value():
    def answer(large):
        return lambda: torch.tensor([large, 1.0])

    check(answer(1009.0), baseline=answer(1000.0), inputs=[()], tolerance=0.01)
    with pytest.raises(MeasureError, match=r"1\.1 %"):
        check(answer(1011.0), baseline=answer(1000.0), inputs=[()], tolerance=0.01)


def test_a_stored_result_without_inputs_is_refused():
    answer = right(X)
    with pytest.raises(MeasureError, match="stored result"):
        check(lambda: answer, baseline=lambda: right(X), inputs=[()])
    assert torch.equal(answer, right(X))


def test_a_stored_array_of_whole_numbers_is_refused():
    answer = np.arange(5)
    with pytest.raises(MeasureError, match="stored result"):
        check(lambda: answer, baseline=lambda: np.arange(5), inputs=[()])
    assert answer.tolist() == [0, 1, 2, 3, 4]


def test_an_output_buffer_that_is_filled_anew_is_no_stored_result():
    buffer = torch.empty(3, 8)
    check(lambda x: torch.tanh(torch.mm(x, W, out=buffer), out=buffer))


def test_a_function_that_hands_its_input_through_is_no_stored_result():
    check(lambda x: x, baseline=lambda x: x + 0)


def test_two_inputs_show_a_cache_too():
    inputs = [(X.clone(),), (X.flip(0).clone(),)]
    with pytest.raises(MeasureError, match="same answer to another input"):
        check(remembered(right), inputs=inputs)


def test_outputs_of_numpy_and_torch_and_one_element_lists_are_held_against_each_other():
    check(lambda x: [np.tanh(x.numpy() @ W.numpy())], tolerance=1e-5)


def test_named_outputs_are_compared_by_name():
    both = {"logits": X, "labels": torch.tensor([1, 2])}
    other = {"logits": X, "labels": torch.tensor([1, 3])}
    with pytest.raises(MeasureError, match="output 'labels' differs"):
        check(
            lambda: {k: v.clone() for k, v in other.items()},
            baseline=lambda: {k: v.clone() for k, v in both.items()},
            inputs=[()],
        )


def test_bfloat16_and_inference_tensors_can_be_compared():
    with torch.inference_mode():
        check(lambda x: right(x).bfloat16(), baseline=lambda x: right(x).bfloat16())


def test_a_batch_other_than_the_stated_one_is_refused():
    with pytest.raises(MeasureError, match=r"batch of 4.*\n.*\(4, \.\.\.\)"):
        check(right, batch=4)


def test_an_arm_that_changes_itself_needs_the_hook():
    steps = []

    def step():
        steps.append(1)
        return float(len(steps))

    with pytest.raises(MeasureError, match="undo in the call"):
        check(step, baseline=lambda: 1.0, inputs=[()])
    check(step, baseline=lambda: 1.0, inputs=[()], run=lambda fn, args: steps.clear() or fn(*args))


def test_equal_nan_and_equal_infinities_are_no_difference():
    def answer(sign):
        return lambda: torch.tensor([1.0, torch.nan, sign * torch.inf])

    check(answer(1), baseline=answer(1), inputs=[()], tolerance=0)
    with pytest.raises(MeasureError, match="differs by up to inf %"):
        check(answer(-1), baseline=answer(1), inputs=[()], tolerance=0)


def test_a_cache_in_the_first_arm_is_found_too():
    with pytest.raises(MeasureError, match="'right' does not do the same work as 'wrong'"):
        check(right, baseline=remembered(right))


def test_arms_that_agree_on_one_input_only_are_refused():
    with pytest.raises(MeasureError, match="when the input changes"):
        check(lambda x: right(x) * torch.where(x[0, 0] < 0, 1.0, 2.0))


WRITES = {
    "an argument": (lambda x: x.clamp_(min=-1.0), [torch.tensor([-2.0, 3.0])]),
    "an argument bound by partial": (partial(lambda x: x.relu_(), torch.tensor([-2.0, 3.0])), None),
}


@pytest.mark.parametrize("case", WRITES)
def test_an_arm_that_writes_to_its_input_is_refused(case):
    arm, inputs = WRITES[case]
    with pytest.raises(MeasureError, match="writes to its input"):
        check_same_work({"right": arm, "same": arm}, as_calls(inputs), tolerance=0)


def test_an_arm_that_fills_a_buffer_of_its_own_writes_to_no_input():
    x, buffer = torch.ones(2, 2), torch.empty(2, 2)
    check_same_work(
        {"new": partial(torch.mm, x, x), "old": partial(torch.mm, x, x, out=buffer)},
        [()],
        tolerance=0,
    )


def checked(expected, actual, tolerance=0.0):
    check_same_work(
        {"right": lambda: expected.clone(), "other": lambda: actual.clone()},
        [()],
        tolerance=tolerance,
    )


def test_complex_numbers_differ_in_their_imaginary_parts_too():
    numbers = torch.tensor([1 + 2j, 3 - 1j])
    checked(numbers, numbers)
    with pytest.raises(MeasureError, match="differs by up to"):
        checked(numbers, numbers.conj().resolve_conj())


def test_whole_numbers_beyond_those_of_double_precision_are_compared_exactly():
    checked(torch.tensor([2**60]), torch.tensor([2**60]))
    with pytest.raises(MeasureError, match="differs by up to"):
        checked(torch.tensor([2**60]), torch.tensor([2**60 + 7]))


def test_sparse_outputs_are_compared_by_their_numbers():
    dense = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    checked(dense, dense.to_sparse())
    with pytest.raises(MeasureError, match="differs by up to"):
        checked(dense, 2 * dense.to_sparse())


def test_sparse_inputs_are_taken_as_they_are():
    dense = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    arms = {
        "dense": partial(torch.mm, dense, dense),
        "sparse": partial(torch.mm, dense.to_sparse(), dense),
    }
    check_same_work(arms, [()], tolerance=0)


@pytest.mark.parametrize("tolerance", [-1e-3, float("nan"), float("inf")])
def test_a_tolerance_that_is_no_number_to_compare_with_is_refused(tolerance):
    with pytest.raises(MeasureError, match="no number to compare with"):
        checked(torch.ones(1), torch.ones(1), tolerance)


def named(**outputs):
    return lambda: {name: torch.full((2,), float(value)) for name, value in outputs.items()}


def test_outputs_of_a_dictionary_are_told_apart_by_their_keys_not_by_their_order():
    check_same_work({"a": named(x=1, y=2), "b": named(y=2, x=1)}, [()], tolerance=0)
    for arm, words in [(named(y=1, x=2), "differs by up to"), (named(x=1, z=2), "instead of")]:
        with pytest.raises(MeasureError, match="output") as refused:
            check_same_work({"a": named(x=1, y=2), "b": arm}, [()], tolerance=0)
        assert words in refused.value.found


def test_only_what_is_transposed_is_called_so():
    images = torch.arange(48.0).reshape(2, 2, 3, 4)
    for other, cause in [(images.permute(0, 2, 3, 1), True), (images.reshape(2, 3, 4, 2), False)]:
        with pytest.raises(MeasureError) as refused:
            checked(images, other.contiguous())
        assert ("is transposed" in refused.value.found) is cause, refused.value.found


def test_a_wide_tolerance_does_not_make_a_constant_a_softmax():
    with pytest.raises(MeasureError) as refused:
        checked(torch.linspace(-1, 1, 10).repeat(2, 1), torch.full((2, 10), 0.1), tolerance=0.5)
    assert "softmax" not in refused.value.found
