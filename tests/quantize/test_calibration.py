"""Ranges observed on real data: against ONNX Runtime's calibrators and by hand; and data that is
refused.
"""

import tracemalloc

import numpy as np
import onnx
import pytest
import torch
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, create_calibrator
from onnxruntime.quantization.calibrate import HistogramCollector

from labkit.errors import LabError
from labkit.quantize import Calibration, LazyBatches, observe, ranges
from labkit.quantize.activation_ranges import (
    BINS,
    Histogram,
    _entropy_threshold,
    _percentile_threshold,
)
from labkit.quantize.calibration import neighbour_correlation

RANDOM = np.random.default_rng(0)


def seen(values):
    histogram = Histogram()
    histogram.add(np.asarray(values, np.float32))
    return histogram


class Reader(CalibrationDataReader):
    def __init__(self, batches):
        self.batches = iter(batches)

    def get_next(self):
        batch = next(self.batches, None)
        return None if batch is None else {"input": batch}


def theirs(path, data, method, folder, **options):
    settings = {"augmented_model_path": str(folder / "a.onnx"), "extra_options": options}
    calibrator = create_calibrator(str(path), ["Conv", "Gemm"], calibrate_method=method, **settings)
    calibrator.collect_data(Reader(data.batches))
    return {
        name: tuple(float(np.max(end)) for end in found.range_value)
        for name, found in calibrator.compute_data().data.items()
    }


def test_min_and_max_equal_those_of_onnx_runtimes_calibrator(onnx_file, train, tmp_path):
    data = Calibration.of(train, count=128)
    ours = ranges(observe(onnx_file, data), "minmax")
    wanted = theirs(onnx_file, data, CalibrationMethod.MinMax, tmp_path)
    assert len(wanted) >= 14
    for name, (low, high) in wanted.items():
        assert ours[name] == pytest.approx((min(low, 0), max(high, 0)), rel=1e-5, abs=1e-6)


def test_percentiles_agree_with_onnx_runtimes_calibrator_to_a_bin(
    onnx_file, train, tmp_path, capsys
):
    data = Calibration.of(train, count=128)
    histograms = observe(onnx_file, data)
    ours = ranges(histograms, "percentile")
    wanted = theirs(onnx_file, data, CalibrationMethod.Percentile, tmp_path, percentile=99.99)
    for name, (_, high) in wanted.items():
        assert abs(ours[name][1] - high) <= 3 * histograms[name].upper_edge / BINS


def test_a_histogram_counts_every_value_once_however_often_it_grows():
    parts = [RANDOM.normal(size=500).astype(np.float32) * size for size in (0.1, 5, 1, 40)]
    grown = Histogram()
    for part in parts:
        grown.add(part)
    values = np.concatenate(parts)
    assert grown.counts.sum() == 2000
    assert (grown.low, grown.high) == (values.min(), values.max())
    for edge in (256, 1024, 1536):  # cumulative counts, up to rounding at the edge
        assert grown.counts[:edge].sum() == pytest.approx(
            (np.abs(values) < grown.edges[edge]).sum(), abs=2
        )


def test_what_is_not_finite_has_no_place_in_a_range():
    histogram = Histogram()
    histogram.add(np.array([-np.inf, -2, 1, 4, np.nan, np.inf], np.float32))
    histogram.add(np.array([np.nan, -np.inf], np.float32))
    assert (histogram.low, histogram.high, histogram.counts.sum()) == (-2, 4, 3)


def test_numbers_that_float32_hardly_holds_have_a_range():
    histogram = Histogram()
    histogram.add(np.array([0, 1e-42], np.float32))
    assert histogram.counts.sum() == 2
    assert histogram.high == np.float32(1e-42)


def test_a_tensor_of_zeros_has_a_range():
    found = ranges({"x": seen(np.zeros((4, 4)))}, "entropy")
    assert found == {"x": (0.0, 0.0)}


def test_the_percentile_leaves_the_largest_out():
    histogram = seen(np.linspace(0, 1, 100_001))
    assert _percentile_threshold(histogram, 99) == pytest.approx(0.99, abs=2 / BINS)
    assert _percentile_threshold(histogram, 100) == pytest.approx(1.0)


def test_entropy_clips_a_long_thin_tail_and_leaves_a_uniform_distribution_alone():
    heavy = np.concatenate([RANDOM.normal(size=200_000), RANDOM.uniform(5, 20, size=20)])
    assert 3 < _entropy_threshold(seen(heavy)) < 10
    assert _entropy_threshold(seen(RANDOM.uniform(-1, 1, 200_000))) > 0.95


def test_entropy_thresholds_agree_with_onnx_runtimes_when_it_is_given_enough_bins():
    x = RANDOM.laplace(size=200_000).astype(np.float32)
    histogram = seen(x)
    counts, edges = np.histogram(x, 1024, range=(-histogram.upper_edge, histogram.upper_edge))
    theirs = HistogramCollector("entropy", False, 1024, 128, 99.99, "same")
    _, wanted = theirs.get_entropy_threshold(
        (counts, edges, x.min(), x.max(), histogram.upper_edge), 128
    )
    assert _entropy_threshold(histogram) == pytest.approx(float(wanted), rel=0.1)


def test_clipping_never_widens_what_was_seen():
    after_relu = {"x": seen(np.abs(RANDOM.normal(size=10_000)))}
    for method in ("minmax", "percentile", "entropy"):
        low, high = ranges(after_relu, method)["x"]
        assert low == 0
        assert 0 < high <= after_relu["x"].high


def test_an_image_set_is_taken_class_by_class_and_says_where_it_comes_from(train):
    data = Calibration.of(train, count=100, batch=40)
    assert [batch.shape for batch in data.batches] == [
        (40, 1, 28, 28),
        (40, 1, 28, 28),
        (20, 1, 28, 28),
    ]
    assert data.description == "100 examples of fashion-mnist train"
    assert Calibration.of(data) is data


def test_first_and_after_share_out_the_batches(train):
    data = Calibration.of(train, count=200, batch=40)
    whole, (first, after) = list(data.batches), (data.first(70), data.after(70))
    assert (first.count, after.count) == (80, 120)
    np.testing.assert_array_equal(
        np.concatenate([*first.batches, *after.batches]), np.concatenate(whole)
    )


def test_where_the_examples_end_with_a_batch_no_further_batch_is_taken(train):
    data = Calibration.of(train, count=200, batch=40)
    assert (data.first(80).count, data.after(80).count) == (80, 120)
    assert (data.first(81).count, data.after(81).count) == (120, 80)


def test_each_label_belongs_to_its_image(train):
    data = Calibration.of(train, count=200, batch=40)
    shown = {image.numpy().tobytes(): label for images, labels in train.batches(100)
             for image, label in zip(images, labels, strict=True)}  # fmt: skip
    for part in (data, data.first(70), data.after(70)):
        images = np.concatenate(list(part.batches))
        assert part.labels.tolist() == [shown[image.tobytes()] for image in images]
    assert Calibration(tuple(data.batches), "without labels").first(64).labels is None


@pytest.mark.parametrize("observed", [False, True])
def test_ten_times_as_many_batches_take_no_more_memory(observed):
    peaks = []
    for count in (10, 100):
        tracemalloc.start()
        batches = LazyBatches(
            lambda count=count: (np.full((8, 9000), i, np.float32) for i in range(count))
        )
        data = Calibration(batches, "x")
        assert data.count == 8 * count
        if observed:
            assert observe(sums(9000), data)["input"].high == count - 1
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def sums(width):
    """A model that adds each row to itself."""
    make = onnx.helper.make_tensor_value_info
    ports = [make(name, onnx.TensorProto.FLOAT, ["N", width]) for name in ("input", "output")]
    node = onnx.helper.make_node("Add", ["input", "input"], ["output"])
    graph = onnx.helper.make_graph([node], "sums", ports[:1], ports[1:])
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10
    )


def test_neighbouring_pixels_tell_images_from_noise(images):
    assert neighbour_correlation(images.numpy(), 2) > 0.7
    assert abs(neighbour_correlation(RANDOM.normal(size=(64, 1, 28, 28)), 3)) < 0.02


REFUSED = {
    "as random as noise": [RANDOM.normal(size=(64, 3, 32, 32))],
    "noise: neighbouring": [RANDOM.uniform(size=(64, 1, 28, 28))],
    "63 examples": [np.zeros((63, 1, 8, 8))],
    "again and again": [np.repeat(RANDOM.normal(size=(1, 1, 8, 8)), 64, axis=0)],
    "NaN": [np.full((64, 10), np.nan)],
    "standard deviation of": [np.cumsum(RANDOM.uniform(0, 30, size=(64, 1, 16, 16)), axis=3)],
}


@pytest.mark.parametrize("found", REFUSED)
def test_what_is_no_data_of_the_network_is_refused(found):
    with pytest.raises(LabError, match=f"cannot calibrate(?s:.*){found}"):
        Calibration(tuple(batch.astype(np.float32) for batch in REFUSED[found]), "somewhere")


def test_an_image_set_of_noise_is_refused_too(train):
    from dataclasses import replace

    noise = torch.randint(
        0, 256, train.images.shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    with pytest.raises(LabError, match="as random as noise"):
        Calibration.of(replace(train, images=noise))


def test_labels_of_another_length_are_refused_before_any_work(images):
    with pytest.raises(LabError, match=r"a label for each of 200 examples(?s:.*)199 labels"):
        Calibration((images.numpy(),), "test images", np.zeros(199, np.int64))


def test_data_without_a_source_is_refused(images):
    with pytest.raises(LabError, match="no source"):
        Calibration((images.numpy(),), " ")


@pytest.mark.parametrize("data", [None, [np.zeros((64, 1, 28, 28))], torch.zeros(64, 1, 28, 28)])
def test_there_is_no_default_and_a_bare_array_is_refused(data):
    with pytest.raises(LabError, match="real data"):
        Calibration.of(data)


def test_an_unknown_method_is_refused():
    with pytest.raises(LabError, match="minmax or percentile or entropy"):
        ranges({}, "max")
