"""An INT8 file is compared with the network, and an engine with the file, before a number is
believed.
"""

from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from labkit import cli, engines, ledger, models
from labkit.data import load
from labkit.device.child import ChildEnded
from labkit.engines import _disagreement, fidelity, misfit
from labkit.engines.bench import bench
from labkit.engines.opening import opened
from labkit.engines.served import Served
from labkit.errors import LabError, Unavailable
from labkit.export import to_onnx
from labkit.export.inputs import varied_inputs
from labkit.export.variation import Channel
from labkit.measure import Plan
from labkit.quantize import Calibration, static, to_fp16


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """(fp32, int8) files of a small network after some steps: the answers of an untrained one
    hardly vary.
    """
    torch.manual_seed(0)
    network = models.build("cnn-small")[0]
    train = load("fashion-mnist", "train", limit=1000)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    for batch, labels in train.batches(50, seed=0):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(batch), labels).backward()
        optimizer.step()

    folder = tmp_path_factory.mktemp("fidelity")
    source = to_onnx(network.eval(), models.example("cnn-small", 2), folder / "fp32.onnx")
    return source, static(source, folder / "int8.onnx", train, recipe="onnxruntime")


def test_decibels_and_equal_answers_by_hand():
    found = fidelity.between(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.9, 0.0], [1.0, 0.0]]))
    # four numbers are 1/2 away from their mean 1/2
    assert found.db == pytest.approx(10 * np.log10(1 / 2.01))
    assert found.same == 0.5
    assert fidelity.between(np.eye(2), np.eye(2)) == fidelity.Fidelity(float("inf"), 1.0)


def test_classes_are_counted_on_their_axis_and_where_none_is_known_only_decibels_and_the_weakest_channel():
    right = np.random.default_rng(0).normal(size=(4, 3, 5, 6))  # (N, classes, H, W), as of a U-Net
    found = right.copy()
    found[:, 1] += 1
    changed = (right.argmax(1) != found.argmax(1)).mean()
    unknown, known = fidelity.between(right, found), fidelity.between(right, found, axis=1)
    assert unknown.same is None
    assert known.same == pytest.approx(1 - changed)
    assert unknown.weakest.axis == 1
    assert unknown.weakest.index == 1
    assert unknown.weakest.count == 3
    assert unknown.weakest.db == pytest.approx(10 * np.log10(right[:, 1].var()))
    assert "index 1 of 3 on axis 1" in str(unknown)
    assert "same answer" not in str(unknown)


def test_all_outputs_are_compared_and_the_limit_holds_for_the_one_that_differs_most(tmp_path):
    right = {"boxes": np.ones((2, 3)), "scores": np.ones((2, 4))}
    found = {"boxes": np.ones((2, 3)), "scores": np.full((2, 4), 0.5)}
    alike = fidelity.between(right, found)
    assert (alike.db, alike.further["scores"].db) == (float("inf"), pytest.approx(6.02, abs=0.01))
    assert "scores 6.0 dB" in str(alike)
    (tmp_path / "n.onnx").touch()
    with pytest.raises(LabError, match="at least 15 dB"):
        fidelity.require(alike, tmp_path / "n.onnx", 15)


def test_a_file_in_small_numbers_is_not_quantized_again(files, tmp_path):
    for words in (("--keep", "auto"), (), ("--precision", "fp8")):
        done = quantize((files[1],), tmp_path / "again.onnx", *words)
        assert "is in INT8 already" in str(done.exception)
    half = to_fp16(files[0], tmp_path / "half.onnx")
    for words in ((), ("--precision", "fp16")):
        assert "is in FP16 already" in str(
            quantize((half,), tmp_path / "again.onnx", *words).exception
        )
    assert not (tmp_path / "again.onnx").exists()
    assert to_fp16(files[1], tmp_path / "both.onnx").exists()


def test_too_few_images_to_find_the_layers_in_float_are_said_with_both_counts_before_any_work(
    files, tmp_path
):
    images = load("fashion-mnist", "train", limit=120).images
    for place, pixels in enumerate(images.squeeze().numpy()):
        folder = tmp_path / "grey" / f"class{place % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{place}.png")
    done = quantize(
        files, tmp_path / "q.onnx", "--keep", "auto", data=f"folder:{tmp_path / 'grey'}"
    )
    assert "128: 64 for the ranges (--count), and 64 others" in str(done.exception)
    assert "120 in folder:" in str(done.exception)
    # grey files, a grey network
    plain = quantize(files, tmp_path / "q.onnx", data=f"folder:{tmp_path / 'grey'}")
    assert plain.exit_code == 0, plain.output


def test_the_file_and_each_engine_are_compared_or_say_why_not(files):
    images = next(iter(load("fashion-mnist", "test", limit=64).batches(64)))[0].numpy()
    found = {who: (alike, meant) for who, alike, meant in fidelity.quantized(*files, images)}
    assert list(found) == ["the file as written", *engines.names(runs="onnx", precision="int8")]
    assert found["the file as written"][0].db > 20
    alike, meant = found["onnxruntime"]
    assert alike.db > 20
    assert meant.db > fidelity.ENGINE_DB
    if not torch.cuda.is_available():
        assert found["tensorrt"][0] is None
        assert "TensorRT" in found["tensorrt"][1]


def test_the_row_of_an_int8_engine_says_how_well_it_answers_what_the_file_means(files):
    (row,) = bench(opened(files[1]), [2], engine="onnxruntime", plan=Plan(seconds=0.2))
    assert row.p50_ms > 0
    assert row.sqnr_db > fidelity.ENGINE_DB
    assert ledger.load("latencies")["sqnr_db"].tolist() == [row.sqnr_db]
    assert "answers as the file means: " in row.summary()
    assert "answers as the file means: exactly" in replace(row, sqnr_db=float("inf")).summary()


@pytest.mark.parametrize("size", [1, 4, 8])
def test_without_data_bench_and_quantize_judge_an_engine_by_the_same_examples_in_the_same_way(
    size, files, monkeypatch
):
    load = engines.load

    def noisy(*args, **settings):
        served = load(*args, **settings)
        return replace(served, run=lambda *batch: 1.02 * served.run(*batch), run_whole=None)

    monkeypatch.setattr(_disagreement, "_verdicts", {})
    monkeypatch.setattr(engines, "load", noisy)
    examples = varied_inputs(onnx.load(files[1]))
    (_, of_quantize) = [
        as_meant for _, _, as_meant in fidelity.quantized(*files, examples, names=["onnxruntime"])
    ]
    (row,) = bench(opened(str(files[1])), [size], engine="onnxruntime", plan=Plan(seconds=0.05))
    assert 20 < row.sqnr_db < 60
    assert row.sqnr_db == pytest.approx(of_quantize.db, abs=0.01)


def test_an_engine_is_faulty_by_the_limit_of_bench_or_by_a_channel_that_only_it_loses():
    def of(db, lowest):
        return fidelity.Fidelity(db, weakest=Channel(1, 0, 10, lowest))

    judged = fidelity.answers_as_meant
    assert judged(of(26, 19), of(18, 15), of(17, 14)), "another order of roundings"
    assert not judged(of(19, 19), of(18, 15), of(17, 14)), "bench gives it no time"
    assert not judged(of(26, 3), of(25, 3), of(40, 30)), "the engine lost a channel"
    assert judged(of(26, 22), of(15, 3), of(17, 9)), "each channel is as the file means"
    assert judged(of(26, 19), of(25, 3), None), "nothing to compare with"
    two = replace(of(30, 30), further={"boxes": of(19, 19)})
    assert not judged(two, of(30, 30), of(30, 30)), "each output counts"


def test_bench_says_on_which_examples_it_judges(files, tmp_path):
    def said(*words):
        words = ["bench", files[1], "--engine", "onnxruntime", "--seconds", 0.05, *words]
        return CliRunner().invoke(cli.app, list(map(str, words))).output

    assert "Timed on random numbers" in said()
    assert "on 8 made-up examples, as `labkit quantize` does without --data" in said()
    assert "Timed on 256 examples of fashion-mnist test" in said("--data", "fashion-mnist")


def test_an_engine_that_answers_something_else_gets_a_reason_and_no_number(files, monkeypatch):
    right = engines.load

    def wrong(*args, **settings):
        served = right(*args, **settings)
        return replace(served, run=lambda *batch: torch.clamp(served.run(*batch), max=0.01))

    monkeypatch.setattr(engines, "load", wrong)
    (row,) = bench(opened(files[1]), [8], engine="onnxruntime", plan=Plan(seconds=0.2))
    assert row.p50_ms is None
    assert row.sqnr_db < fidelity.ENGINE_DB
    assert "something else than the file means" in row.reason
    images = np.random.default_rng(0).random((8, 1, 28, 28), np.float32)
    found = {who: meant for who, _, meant in fidelity.quantized(*files, images)}
    assert found["onnxruntime"].db < fidelity.ENGINE_DB


@pytest.mark.parametrize(("isa", "overflows"), [("avx2", True), ("avx512_vnni", False)])
def test_bench_says_before_it_measures_where_a_file_does_not_fit(
    isa, overflows, files, tmp_path, monkeypatch
):
    monkeypatch.setattr("labkit.device.cpu_isa", lambda: [isa])
    images = Calibration.of(load("fashion-mnist", "train", limit=64))
    for_gpu = static(files[0], tmp_path / "gpu.onnx", images, recipe="tensorrt")
    here = static(
        files[0], tmp_path / "here.onnx", images, recipe="onnxruntime", weight_bits="auto"
    )
    words = ["--engine", "onnxruntime", "--threads", "1", "--seconds", "0.1"]
    said = (
        CliRunner()
        .invoke(cli.app, ["bench", str(for_gpu), str(here), str(files[0]), *words])
        .output
    )
    assert (
        "gpu.onnx does not fit onnxruntime: its weights have 8 bits, and this CPU has no VNNI"
        in said
    ) == overflows
    assert (
        "gpu.onnx does not fit onnxruntime: it was made for tensorrt (--recipe "
        "onnxruntime makes one" in said
    )
    assert "here.onnx does not fit" not in said
    assert f"{files[0].name} does not fit" not in said
    assert list(misfit.misfits(onnx.load(for_gpu), "tensorrt")) == []


@pytest.mark.parametrize(("groups", "warned"), [(4, True), (1, False)])
def test_a_network_of_depthwise_convolutions_is_said_to_be_slow_in_small_integers(
    groups, warned, tmp_path
):
    convolutions = torch.nn.Conv2d(1, 4, 3), torch.nn.Conv2d(4, 4, 3, groups=groups)
    head = torch.nn.Flatten(), torch.nn.Linear(4 * 24 * 24, 10)
    network = torch.nn.Sequential(*convolutions, *head).eval()
    to_onnx(network, models.example("cnn-small", 2), tmp_path / "plain.onnx")
    said = quantize([tmp_path / "plain.onnx"], tmp_path / "small.onnx", "--min-sqnr", -100).output
    assert ("convolutions are depthwise or in groups, which INT8 may slow down" in said) == warned
    reasons = list(misfit.misfits(onnx.load(tmp_path / "small.onnx"), "onnxruntime"))
    assert any("race it against the file in float" in reason for reason in reasons) == warned


def test_a_float_engine_is_not_compared(files):
    (row,) = bench(opened(files[0]), [1], engine="onnxruntime", plan=Plan(seconds=0.2))
    assert row.sqnr_db is None
    assert isinstance(engines.load("onnxruntime", files[0], torch.zeros(1, 1, 28, 28)), Served)


def quantize(files, out, *words, data="fashion-mnist"):
    recipe = () if "--precision" in words else ("--recipe", "onnxruntime")
    words = ["quantize", files[0], out, "--data", data, "--count", 64, *recipe, *words]
    return CliRunner().invoke(cli.app, list(map(str, words)))


def test_the_command_tells_what_the_file_and_each_engine_keep(files, tmp_path):
    done = quantize(files, tmp_path / "q.onnx")
    assert done.exit_code == 0, done.output
    assert "256 examples of fashion-mnist test" in done.output
    for who in ("the file as written", *engines.names(runs="onnx", precision="int8")):
        assert f"    {who}: " in done.output


def test_a_file_below_the_limit_is_an_error_and_is_kept_under_another_name(files, tmp_path):
    done = quantize(files, tmp_path / "q.onnx", "--min-sqnr", 90)
    assert isinstance(done.exception, LabError)
    assert "at least 90 dB" in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["q.rejected.onnx"]


def test_a_folder_without_test_images_still_quantizes_and_it_is_said_that_nothing_was_compared(
    files, tmp_path
):
    images = load("fashion-mnist", "train", limit=80).images
    for place, pixels in enumerate(images.squeeze().numpy()):
        folder = tmp_path / "mine" / f"class{place % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{place}.png")
    source = to_onnx(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten()), torch.randn(2, 3, 28, 28),
                     tmp_path / "colour.onnx")  # fmt: skip
    done = quantize((source,), tmp_path / "q.onnx", data=f"folder:{tmp_path / 'mine'}")
    assert done.exit_code == 0, done.output
    assert "Not compared with the original on real images, for want of them" in done.output
    assert (tmp_path / "q.onnx").is_file()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError("no more"), "MemoryError: no more"),
        (Unavailable("It cannot.", found="no operator"), "It cannot (no operator)"),
        (Unavailable("It cannot."), "It cannot."),
    ],
)
def test_one_engine_that_fails_says_why_and_does_not_end_the_others(
    error, reason, files, monkeypatch
):
    right = engines.load

    def broken(name, *args, **settings):
        if name == "onnxruntime":
            raise error
        return right(name, *args, **settings)

    monkeypatch.setattr(engines, "load", broken)
    images = np.random.default_rng(0).random((8, 1, 28, 28), np.float32)
    rows = {who: (alike, meant) for who, alike, meant in fidelity.quantized(*files, images)}
    assert rows["onnxruntime"] == (None, reason)
    assert rows["openvino"][1].lowest_db > fidelity.ENGINE_DB


@pytest.mark.slow
def test_an_engine_that_ends_its_process_gets_a_row_with_the_reason(files, monkeypatch):
    in_child = fidelity.run_in_child

    def crashing(function, seconds):
        names = function.args[4:]  # none of them: all engines in one process
        if not names or "onnxruntime" in names[0]:
            raise ChildEnded(
                "The process ended.", found="ended by the system: Segmentation fault (signal 11)"
            )
        return in_child(function, seconds)

    monkeypatch.setattr(fidelity, "run_in_child", crashing)
    images = np.random.default_rng(0).random((8, 1, 28, 28), np.float32)
    rows = {who: (alike, meant) for who, alike, meant in fidelity.quantized_apart(*files, images)}
    assert rows["the file as written"][0].same == 1
    assert rows["onnxruntime"] == (
        None,
        "its process ended by the system: Segmentation fault (signal 11)",
    )
    assert rows["openvino"][1].lowest_db > fidelity.ENGINE_DB


def test_a_file_that_nothing_here_runs_is_said_not_to_be_compared_and_is_kept(
    files, tmp_path, monkeypatch
):
    reason = "ONNX Runtime has no kernels for it: NotImplemented"
    rows = [
        ("the file as written", None, reason),
        ("tensorrt", None, "TensorRT cannot run an engine here."),
    ]
    monkeypatch.setattr(fidelity, "quantized_apart", lambda *args, **settings: rows)
    done = quantize(files, tmp_path / "q.onnx")
    assert done.exit_code == 0, done.output
    assert f"the file as written: not compared. {reason}" in done.output
    assert "Not compared: nothing on this machine runs such a file." in done.output
    assert (tmp_path / "q.onnx").exists()


@pytest.mark.parametrize("precision", ["fp16", "int8-blocks"])
def test_a_file_without_data_is_compared_on_made_up_inputs(precision, files, tmp_path):
    words = ["quantize", files[0], tmp_path / "q.onnx", "--precision", precision]
    done = CliRunner().invoke(cli.app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    assert "Against the original, on 8 made-up inputs" in done.output
    assert "    the file as written: " in done.output


def test_inputs_are_matched_by_their_names_and_not_by_the_order_in_which_they_are_given(tmp_path):
    model = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["": 17]>
        difference (float[N, 4] first, float[N, 4] second) => (float[N, 4] answer)
        {
            answer = Sub(first, second)
        }
        """
    )
    path = tmp_path / "difference.onnx"
    onnx.save(model, path)
    numbers = np.random.default_rng(0).normal(size=(2, 8, 4)).astype(np.float32)
    call = {"second": numbers[0], "first": numbers[1]}
    *_, (name, to_source, _) = fidelity.quantized(path, path, [call], names=["onnxruntime"])
    assert (name, to_source.db) == ("onnxruntime", float("inf"))
