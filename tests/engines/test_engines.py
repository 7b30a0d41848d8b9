"""Engines: the same answers from each, what they really use, and a clear word about what is not
here.
"""

import os
import shutil
import subprocess
import sys

import onnx
import pytest
import torch

from labkit import engines, models
from labkit.engines.tensorrt.libraries import MODULES
from labkit.errors import LabError, Unavailable
from labkit.files import artifacts
from labkit.models.cnn import block

TOLERANCE = {"fp32": 1e-4, "bf16": 5e-2, "fp16": 1e-2}
TORCH_ENGINES, GRAPH_ENGINES = (engines.names(runs=kind) for kind in ("torch", "onnx"))
SKIP = "not on this machine: {}"


# one of each kind; the others take seconds each, to export and in every engine
KINDS = (
    *("cnn-small", "vgg-small", "resnet18", "convnext-mini", "shufflenet-mini"),
    *("encoder-small", "decoder-small"),
)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[] if name in KINDS else [pytest.mark.release])
        for name in models.names()
    ],
)
def network(request, exported):
    """(the ONNX file of a network, [(a batch, its answers)] at two batch sizes)"""
    name = request.param
    torch.manual_seed(0)
    model = models.build(name)[0].eval()
    with torch.inference_mode():
        pairs = [
            (batch, model(batch))
            for batch in (models.example(name, 2), models.example(name, 1, seed=1))
        ]
    return exported(name), pairs


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    return models.build("cnn-small")[0].eval()


@pytest.fixture(scope="module")
def small_file(exported):
    return exported("cnn-small")


def load_or_skip(*args, **settings):
    try:
        return engines.load(*args, **settings)
    except Unavailable as error:
        pytest.skip(SKIP.format(error.what))


def check(served, images, wanted, tolerance):
    found = served(images)
    assert (
        found.dtype == torch.float32 and found.device == images.device and not found.requires_grad
    )
    assert (found - wanted).abs().max() <= tolerance * wanted.abs().max()


@pytest.mark.slow
@pytest.mark.parametrize("engine", GRAPH_ENGINES)
def test_every_engine_computes_what_every_network_computes(engine, network):
    file, pairs = network
    served = load_or_skip(engine, file, pairs[0][0])
    for images, wanted in pairs:
        check(served, images, wanted, TOLERANCE["fp32"])


@pytest.mark.slow
@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("engine", engines.names())
@pytest.mark.filterwarnings("default")
def test_a_network_goes_into_every_engine_in_every_precision_that_both_have_and_it_says_what_it_uses(
    engine, precision
):
    torch.manual_seed(0)
    # every kind of layer of cnn-small, each shape once: the compiler takes seconds per kernel
    layers = *block(1, 4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 10)
    model, images = torch.nn.Sequential(*layers).eval(), models.example("cnn-small", 4)
    with torch.inference_mode():
        wanted = model(images)
    served = load_or_skip(engine, model, images, precision=precision, threads=1)
    check(served, images, wanted, TOLERANCE[precision])
    assert (served.engine, served.precision, served.threads) == (engine, precision, 1)
    assert torch.device(served.device).type in ("cpu", "cuda")


@pytest.mark.slow
def test_inductor_takes_a_module_that_is_no_sequence():
    layer, images = torch.nn.Linear(3, 2), torch.randn(2, 3)
    served = load_or_skip("inductor", layer, images)
    torch.testing.assert_close(served(images), layer(images).detach())


@pytest.mark.slow
def test_openvino_is_told_to_compute_fp32_in_fp32(small):
    images = models.example("cnn-small", 2)
    wanted, found = small.eval()(images).detach(), engines.load("openvino", small, images)(images)
    assert (found - wanted).abs().max() < 1e-4 * wanted.abs().max()  # bf16 rounds to 4e-3


@pytest.mark.slow
def test_openvino_answers_batches_of_the_examples_shape_and_of_others_alike(small):
    served = engines.load("openvino", small, models.example("cnn-small", 2))
    for count in (2, 5, 2, 1):
        images = models.example("cnn-small", count)
        torch.testing.assert_close(served(images), small(images).detach(), rtol=1e-4, atol=1e-5)


DROPPED_IN_A_THREAD = """
import gc, signal, subprocess, threading, torch
from labkit import engines
served = [engines.load("openvino", torch.nn.Linear(3, 2), torch.randn(2, 3))]
thread = threading.Thread(target=lambda: (served.clear(), gc.collect()))
thread.start()
thread.join()
signal.signal(signal.SIGCHLD, lambda *_: None)
subprocess.run(["true"], check=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_network_in_openvino_let_go_in_another_thread_leaves_the_process_able_to_take_a_signal():
    pytest.importorskip("openvino")
    done = subprocess.run(
        [sys.executable, "-c", DROPPED_IN_A_THREAD], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_threads_of_one_engine_do_not_leak_into_the_next(small):
    before = torch.get_num_threads()
    images = models.example("cnn-small", 2)
    engines.load("eager", small, images, threads=before + 1)(images)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("name", GRAPH_ENGINES)
def test_an_onnx_file_is_served_like_the_network_it_came_from(name, small, small_file):
    images = models.example("cnn-small", 5)
    found = load_or_skip(name, small_file, images)(images)
    torch.testing.assert_close(found, small(images).detach(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", GRAPH_ENGINES)
def test_inputs_count_as_they_are_indexed_however_they_lie_in_memory(name):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(24, 3)).eval()
    images = torch.randn(2, 3, 2, 4)
    served = load_or_skip(name, model, images)
    in_other_layouts = (
        images.to(memory_format=torch.channels_last),
        images.transpose(2, 3).contiguous().transpose(2, 3),
        images[:1].expand(2, 3, 2, 4),  # both rows are one in memory
    )
    for batch in in_other_layouts:
        expected = model(batch.contiguous()).detach()
        torch.testing.assert_close(served(batch), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", GRAPH_ENGINES)
def test_tokens_go_in_as_they_are(name):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(10, 4), torch.nn.Flatten(), torch.nn.Linear(12, 3)
    ).eval()
    tokens = torch.randint(0, 10, (4, 3))
    served = load_or_skip(name, model, tokens)
    torch.testing.assert_close(served(tokens), model(tokens).detach(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", TORCH_ENGINES)
def test_torch_engines_refuse_an_onnx_file(name, small_file):
    with pytest.raises(LabError, match="torch modules"):
        engines.load(name, small_file, torch.zeros(1, 1, 28, 28))


@pytest.mark.parametrize("name", GRAPH_ENGINES)
def test_a_file_is_not_served_in_a_precision_it_does_not_hold(name, small_file):
    with pytest.raises(LabError, match=r"does not hold int8[\s\S]*quantize"):
        engines.load(name, small_file, torch.zeros(1, 1, 28, 28), precision="int8")


@pytest.mark.parametrize("name", GRAPH_ENGINES)
def test_a_broken_file_is_refused_before_the_engine_sees_it(name, small_file, tmp_path):
    model = onnx.load(small_file)
    model.graph.node[0].input[0] = "nothing"
    onnx.save(model, tmp_path / "broken.onnx")
    with pytest.raises(LabError, match=r"broken\.onnx"):
        engines.load(name, tmp_path / "broken.onnx", torch.zeros(1, 1, 28, 28))


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPH_ENGINES)
def test_a_machine_without_the_engine_says_what_to_install(name, small, monkeypatch):
    for module in [
        module for module in (*sys.modules, name, *MODULES) if module.split(".")[0].startswith(name)
    ]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Unavailable) as caught:
        engines.load(name, small, torch.zeros(1, 1, 28, 28))
    assert caught.value.fix


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", "eager"])
def test_inputs_that_do_not_fit_are_refused_in_a_sentence_that_names_engine_and_shape(
    name, small, small_file
):
    served = load_or_skip(name, small if name == "eager" else small_file, torch.zeros(2, 1, 28, 28))
    wrong = {
        "(2, 1, 20, 20)": [torch.zeros(2, 1, 20, 20)],
        "(2, 2, 28, 28)": [torch.zeros(2, 2, 28, 28)],
        "none": [],
    }
    wrong["(1, 1, 28, 28), (1, 1, 28, 28)"] = [torch.zeros(1, 1, 28, 28)] * 2
    for shapes, batch in wrong.items():
        if name == "eager" and shapes == "(2, 1, 20, 20)":  # it takes images of any size
            continue
        with pytest.raises(LabError, match="refuses a batch of shape") as caught:
            served(*batch)
        assert f"{name}: the model refuses a batch of shape {shapes}." in str(caught.value)


@pytest.mark.parametrize("name", ["inductor", "aotinductor"])
def test_without_a_compiler_inductor_says_what_to_install(name, small, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Unavailable, match=r"g\+\+"):
        engines.load(name, small, torch.zeros(1, 1, 28, 28))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_package_of_aotinductor_is_built_once_for_the_same_weights(monkeypatch):
    compile_it, built = torch._inductor.aoti_compile_and_package, []
    monkeypatch.setattr(
        torch._inductor,
        "aoti_compile_and_package",
        lambda *given, **settings: built.append(given) or compile_it(*given, **settings),
    )
    torch.manual_seed(0)
    layer, rows = torch.nn.Linear(3, 2).eval(), torch.randn(5, 3)
    first, second = (engines.load("aotinductor", layer, rows[:1]) for _ in range(2))
    assert len(built) == 1
    for count in (1, 2, 5):
        for served in (first, second):
            torch.testing.assert_close(served(rows[:count]), layer(rows[:count]).detach())
    assert len(list((artifacts() / "engines").glob("*.pt2"))) == 1
    layer.weight.data += 1
    changed = engines.load("aotinductor", layer, rows)
    assert len(built) == 2
    torch.testing.assert_close(changed(rows), layer(rows).detach())


@pytest.mark.parametrize(("name", "precision"), [("tensorflow", "fp32"), ("eager", "fp4")])
def test_unknown_engines_and_precisions_are_refused(name, precision, small):
    with pytest.raises(LabError, match="expected"):
        engines.load(name, small, torch.zeros(1, 1, 28, 28), precision=precision)


def test_a_torch_module_cannot_be_served_in_int8(small):
    for name in ("eager", "onnxruntime"):
        with pytest.raises(Unavailable, match="quantize"):
            engines.load(name, small, torch.zeros(1, 1, 28, 28), precision="int8")
