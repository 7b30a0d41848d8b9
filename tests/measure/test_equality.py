"""Unequal work is refused before anything is timed, and the refusal says what differs."""

import numpy as np
import pytest
import torch

from labkit.errors import MeasureError
from labkit.measure.equality import check_same_work

X = torch.linspace(-1, 1, 24).reshape(3, 8)
W = torch.linspace(-1, 2, 64).reshape(8, 8)


def right(x):
    return (x @ W).tanh()


def check(wrong, *, inputs=None, tolerance=1e-5, baseline=right, **more):
    check_same_work({"right": baseline, "wrong": wrong}, inputs or [(X.clone(),)], tolerance=tolerance, **more)


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
    ("inputs", "calls"), [([()], 2), ([(X,)], 4), ([(X,), (X + 1,)], 4), ([(X + n,) for n in range(5)], 6)]
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
