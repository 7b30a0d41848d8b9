"""The Triton kernels of FastSwish: compiled where there is a GPU, else interpreted.

Triton reads TRITON_INTERPRET when it is imported, so without a GPU these tests run in a process of
their own.
"""

import os
import subprocess
import sys

import pytest
import torch

from labkit import device
from labkit.methods import fastswish as fs

pytest.importorskip("triton", reason="there is no Triton for this system")
GPU, INTERPRETED = device.runs_triton(), os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = device.pick("cpu" if INTERPRETED else None)
here = pytest.mark.skipif(
    not (GPU or INTERPRETED), reason="runs in a process of its own, see the first test"
)
interpreter_warns = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
pytestmark = interpreter_warns  # NumPy's, on infinities


@pytest.mark.slow
@pytest.mark.skipif(GPU or INTERPRETED, reason="the tests of this file run in this process")
def test_all_of_this_file_passes_in_a_process_with_the_interpreter():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "passed" in done.stdout


def kernels():
    from labkit.methods.fastswish import kernels

    return kernels


def value_and_gradient(form, x):
    x = x.detach().requires_grad_()
    y = fs.form(form)(x)
    (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
    return y.detach(), gradient


def points(count, dtype=torch.float32):
    x = torch.linspace(-8, 5, count, device=DEVICE)
    return x.to(dtype)


@here
@pytest.mark.parametrize("count", [0, 1, 2, 127, 1023, 1024, 1025, 5000])
def test_values_and_gradients_at_odd_sizes_are_those_of_the_naive_form(count):
    for found, wanted in zip(
        value_and_gradient("triton", points(count)),
        value_and_gradient("naive", points(count)),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)


@here
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)],
)
def test_every_format_is_computed_and_kept(dtype, tolerance):
    x = points(999, dtype)
    wanted = value_and_gradient("naive", x.double())
    for found, right in zip(value_and_gradient("triton", x), wanted, strict=True):
        assert found.dtype == dtype
        assert (found.double() - right).abs().max() <= tolerance


@here
def test_infinity_and_nan_go_the_way_of_the_naive_form():
    x = torch.tensor(
        [float("inf"), -float("inf"), float("nan"), 1e30, -1e30, -3.0, 3.0], device=DEVICE
    )
    for found, wanted in zip(
        value_and_gradient("triton", x), value_and_gradient("naive", x), strict=True
    ):
        torch.testing.assert_close(found, wanted, equal_nan=True)


@here
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[:, ::3],
        lambda x: x[1:, 1:],
        lambda x: x[:1].expand(5, -1),
        lambda x: x.reshape(3, 4, 5, 5).to(memory_format=torch.channels_last),
        lambda x: x[0, 0],
    ],
    ids=["transposed", "every third", "cut out", "expanded", "channels last", "a number"],
)
def test_memory_of_any_layout_is_read_right(view):
    x = view(points(300).reshape(15, 20))
    for found, wanted in zip(
        value_and_gradient("triton", x), value_and_gradient("naive", x), strict=True
    ):
        assert found.shape == x.shape
        torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)


@here
def test_a_gradient_that_lies_otherwise_in_memory_is_read_right():
    x, grad = points(12).reshape(3, 4), torch.arange(12.0, device=DEVICE).reshape(4, 3).t()
    torch.testing.assert_close(kernels().backward(grad, x), grad * fs.slope(x))
    one = torch.ones((), device=DEVICE).expand(3, 4)
    torch.testing.assert_close(kernels().backward(one, x), fs.slope(x))


@here
@pytest.mark.parametrize("block", [16, 256, 4096])
def test_the_block_size_changes_no_result(block, monkeypatch):
    x = points(1000)
    wanted = kernels().forward(x), kernels().backward(x, x)
    monkeypatch.setattr(kernels(), "BLOCK", block)
    assert torch.equal(kernels().forward(x), wanted[0])
    assert torch.equal(kernels().backward(x, x), wanted[1])


@here
def test_gradcheck_in_double_precision():
    x = torch.tensor(
        [-19.0, -3.2, -2.9, -1.7, 0.0, 2.9, 3.1],
        dtype=torch.float64,
        device=DEVICE,
        requires_grad=True,
    )
    assert torch.autograd.gradcheck(fs.form("triton"), x)


@here
def test_torch_compile_finds_no_graph_break():
    x = points(97).requires_grad_()
    y = torch.compile(fs.form("triton"), fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(y, fs.naive(x), atol=1e-6, rtol=0)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, fs.slope(x.detach()))


@here
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_the_operator_passes_torchs_own_check():
    x = points(15).reshape(3, 5).requires_grad_()
    fs.form("triton")(x)
    torch.library.opcheck(torch.ops.labkit.fastswish_triton.default, (x,))


@here
def test_it_is_exported_to_onnx_like_the_others(tmp_path):
    import onnxruntime

    from labkit.export import to_onnx

    model = torch.nn.Sequential(torch.nn.Flatten(), fs.FastSwish("triton"))
    path = to_onnx(model, torch.randn(2, 1, 5, 5), tmp_path / "triton.onnx")
    x = torch.linspace(-12, 12, 75).reshape(3, 1, 5, 5)
    (found,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(
        None, {"input": x.numpy()}
    )
    torch.testing.assert_close(torch.from_numpy(found), fs.naive(x.flatten(1)), atol=1e-6, rtol=0)
