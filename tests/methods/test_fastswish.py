"""FastSwish: its equation, five forms that agree, what they keep for the backward pass, and
their way to ONNX.
"""

import copy

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from labkit import device
from labkit.errors import LabError, Unavailable
from labkit.export import to_onnx
from labkit.measure import memory, saved_for_backward
from labkit.methods import fastswish as fs
from labkit.models import build, example

FORMS = ("naive", "rewrite", "function", "operator")  # Triton's have tests of their own
each_form = pytest.mark.parametrize("form", FORMS)
each_written_form = pytest.mark.parametrize("form", FORMS[1:])
EDGES = [-20.0, -3.0, 3.0, fs.BOTTOM, -3 + 1 / fs.K, 0.0, -1e30, 1e30, float("inf"), -float("inf")]


def by_hand(x):
    """The definition with Python's numbers: (value, slope)."""
    v, k = 0.1, 4.5
    if x >= 3:
        return x, 1.0
    if x >= -3:
        return x * (x * (3 - v) / 18 + (3 + v) / 6), x * (3 - v) / 9 + (3 + v) / 6
    return -v / (1 - k * (x + 3)), -v * k / (1 - k * (x + 3)) ** 2


def grid(dtype=torch.float32):
    edges = torch.tensor(EDGES[:-4], dtype=dtype)
    near = [torch.nextafter(edges, torch.full_like(edges, side)) for side in (-50.0, 50.0)]
    return torch.cat([torch.linspace(-20, 20, 40_001, dtype=dtype), edges, *near])


def value_and_gradient(form, x):
    x = x.clone().requires_grad_()
    y = fs.form(form)(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    return y.detach(), gradient


@each_form
def test_value_and_gradient_are_those_of_the_definition(form):
    x = grid(torch.float64)
    x = torch.cat([x[::20], x[-18:]])
    wanted = torch.tensor([by_hand(float(number)) for number in x], dtype=torch.float64)
    for found, right in zip(value_and_gradient(form, x), wanted.T, strict=True):
        torch.testing.assert_close(found, right, atol=1e-13, rtol=1e-13)


@each_written_form
def test_the_forms_agree_within_a_millionth_in_single_precision(form):
    for found, right in zip(
        value_and_gradient(form, grid()), value_and_gradient("naive", grid()), strict=True
    ):
        assert (found - right).abs().max() <= 1e-6


@each_form
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 2.5e-3)])
def test_small_formats_stay_small_and_are_right_to_their_precision(form, dtype, tolerance):
    x = grid().to(dtype)
    for found, right in zip(
        value_and_gradient(form, x), value_and_gradient("naive", x.double()), strict=True
    ):
        assert found.dtype == dtype
        assert (found - right).abs().max() <= tolerance


@each_form
def test_infinity_goes_to_infinity_or_zero_and_nan_stays_nan(form):
    y, gradient = value_and_gradient(
        form, torch.tensor([float("inf"), -float("inf"), float("nan")])
    )
    assert y[0] == float("inf") and y[1] == 0 and y[2].isnan()
    assert gradient[0] == 1 and gradient[1] == 0 and gradient[2].isnan()


@each_form
def test_finite_input_never_gives_a_nan_even_where_the_tail_has_its_pole(form):
    pole = torch.tensor(-3 + 1 / fs.K)
    x = torch.stack([torch.nextafter(pole, torch.tensor(side)) for side in (-9.0, 9.0)] + [pole])
    assert all(part.isfinite().all() for part in value_and_gradient(form, torch.cat([x, grid()])))


@each_form
def test_gradcheck_in_double_precision(form):
    x = torch.tensor([-19.0, -5.5, -3.2, -2.9, -1.7, -1.5, 0.0, 1.0, 2.9, 3.1], dtype=torch.float64)
    assert torch.autograd.gradcheck(fs.form(form), x.requires_grad_())


def test_the_gradient_of_the_gradient_is_right_too():
    x = torch.tensor([-5.5, -2.9, 0.0, 3.1], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(fs.form("function"), x)


@each_form
def test_the_gradient_does_not_die_on_the_tail(form):
    x = torch.linspace(-20, -3, 200_001)
    assert (value_and_gradient(form, x)[1] < -5e-5).all()


def test_value_and_slope_are_continuous_at_minus_three_and_it_stays_near_hardswish():
    below, at = (
        torch.tensor(-3 - 1e-9, dtype=torch.float64),
        torch.tensor(-3.0, dtype=torch.float64),
    )
    assert float(fs.naive(below)) == pytest.approx(float(fs.naive(at)), abs=1e-8)
    assert float(fs.slope(below)) == pytest.approx(float(fs.slope(at)), abs=1e-7)
    x = grid(torch.float64)
    assert (fs.naive(x) - nn.functional.hardswish(x)).abs().max() <= 0.1 + 1e-12
    assert float(fs.slope(torch.tensor(fs.BOTTOM, dtype=torch.float64))) == pytest.approx(
        0, abs=1e-15
    )


@each_form
def test_any_shape_and_layout_is_taken_and_kept(form):
    base = torch.randn(2, 3, 4, 5)
    views = (
        base,
        base.to(memory_format=torch.channels_last),
        base[:, ::2],
        base.transpose(1, 3),
        base[:0],
        base[0, 0, 0, 0],
    )
    for x in views:
        y, gradient = value_and_gradient(form, x)
        assert y.shape == gradient.shape == x.shape
        torch.testing.assert_close(y, fs.naive(x))


@each_form
def test_torch_compile_finds_no_graph_break(form):
    compiled = torch.compile(fs.form(form), fullgraph=True, backend="aot_eager")
    x = torch.linspace(-6, 6, 97, requires_grad=True)
    y = compiled(x)
    torch.testing.assert_close(y, fs.naive(x))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, fs.slope(x.detach()))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # the check's own
def test_the_operator_passes_torchs_own_check():
    x = torch.randn(3, 5, requires_grad=True)
    fs.form("operator")(x)
    torch.library.opcheck(torch.ops.labkit.fastswish.default, (x,))


def kept(function, count=4096):
    """Bytes kept by an element, of an input that nothing else keeps."""
    x = torch.randn(count, requires_grad=True) * 2
    return saved_for_backward(function, x) / count


def test_the_written_backward_keeps_as_much_as_relu_and_the_naive_form_several_times_more():
    assert kept(torch.relu) == kept(fs.form("function")) == kept(fs.form("operator")) == 4
    # arguments of two products and a quotient, and the masks of four `where`
    assert kept(fs.naive) == 3 * 4 + 4 * 1
    assert kept(fs.form(fs.FROM_OUTPUT)) == 4 + 1 / 8


def test_before_a_linear_layer_recomputing_keeps_what_relu_keeps():
    linear = nn.Linear(64, 8)
    pairs = {
        "relu": nn.Sequential(nn.ReLU(), linear),
        "function": nn.Sequential(fs.FastSwish("function"), linear),
        "bit": nn.Sequential(fs.FastSwish(fs.FROM_OUTPUT), linear),
        "recomputed": fs.Recomputed(fs.FastSwish("function"), linear),
    }
    x = torch.randn(32, 64, requires_grad=True) * 2
    found = {name: saved_for_backward(pair, x) / x.nbytes for name, pair in pairs.items()}
    assert found == {"relu": 1, "function": 2, "bit": 1 + 1 / 32, "recomputed": 1}


def test_the_slope_told_from_the_value_is_right_but_less_exact_at_the_bottom():
    x = grid()
    found, wanted = value_and_gradient(fs.FROM_OUTPUT, x)[1], fs.slope(x.double())
    error = (found - wanted).abs()
    assert error.max() <= 3e-4
    assert error[(x - fs.BOTTOM).abs() > 0.1].max() <= 3e-6
    exact = value_and_gradient(fs.FROM_OUTPUT, x.double())[1]
    torch.testing.assert_close(exact, fs.slope(x.double()), atol=1e-8, rtol=0)


@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (8,), (3, 5), (2, 3, 4)])
def test_flags_packed_into_bytes_come_back(shape):
    from labkit.methods.fastswish import _pack, _unpack

    flags = torch.rand(shape) < 0.5
    bits = _pack(flags)
    assert bits.nbytes == -(-flags.numel() // 8)
    assert torch.equal(_unpack(bits, flags.shape), flags)


def gradients(model, images):
    model.zero_grad()
    model(images).square().sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_recomputing_changes_no_gradient_in_a_convnext(layout):
    torch.manual_seed(0)
    model = build("convnext-mini", activation=fs.FastSwish)[0].to(memory_format=layout)
    lean = fs.with_recompute(copy.deepcopy(model), fs.FastSwish)
    assert sum(isinstance(module, fs.Recomputed) for module in lean.modules()) == 5
    images = example("convnext-mini", 4).to(memory_format=layout)
    for right, found in zip(gradients(model, images), gradients(lean, images), strict=True):
        assert torch.equal(right, found)


def test_training_a_convnext_takes_the_memory_that_relu_takes_when_recomputing():
    images = example("convnext-mini", 8)

    def peak(model):
        return memory(lambda: gradients(model, images), device="cpu").tensor_bytes

    def convnext(activation):
        return build("convnext-mini", activation=activation)[0]

    relu = peak(convnext(nn.ReLU))
    assert peak(fs.with_recompute(convnext(fs.FastSwish), fs.FastSwish)) <= 1.1 * relu
    assert peak(convnext(fs.FastSwish)) > 1.2 * relu


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_exported_with_parity(form, tmp_path):
    model = nn.Sequential(nn.Flatten(), fs.FastSwish(form))
    path = to_onnx(model, torch.randn(2, 1, 5, 5), tmp_path / "form.onnx")
    x = torch.linspace(-12, 12, 75).reshape(3, 1, 5, 5)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"input": x.numpy()})
    np.testing.assert_allclose(found, model(x), atol=1e-6)


def test_a_model_with_the_activation_can_be_copied():
    model = copy.deepcopy(nn.Sequential(fs.FastSwish("operator"), fs.FastSwish(fs.FROM_OUTPUT)))
    assert model(torch.ones(2)).shape == (2,)


def test_an_unknown_form_is_refused_with_the_known_ones():
    with pytest.raises(LabError, match="naive or rewrite or function"):
        fs.FastSwish("fast")


@pytest.mark.skipif(device.runs_triton(), reason="there is a GPU")
def test_without_a_gpu_the_kernels_are_unavailable_with_a_reason_and_a_way_out(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(Unavailable, match="Triton kernels cannot run here"):
        fs.form("triton")


def test_without_triton_the_kernels_are_unavailable(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "triton", None)
    with pytest.raises(Unavailable, match="expected: the package triton"):
        fs.form("triton")
