"""The tests' own switch for runs whose numbers nobody reads, and that the course has none."""

import subprocess
import sys

import pytest

from labkit.files import root

pytestmark = pytest.mark.slow
CODE = """
import torch
from labkit.data._imageset import ImageSet
from labkit.data._text import course_text
from labkit.measure import Plan, SimulatedMachine, latency

machine = SimulatedMachine(0)
latency(machine.work(1e-3), device=machine.clock, plan=Plan(seconds=60))
about = {"classes": ("a",), "name": "some", "split": "train", "mean": (0.0,), "std": (1.0,), "digest": ""}
images = ImageSet(images=torch.zeros(600, 1, 4, 4, dtype=torch.uint8), labels=torch.zeros(600).long(), **about)
text = course_text("test")
passes = [images.batches(50, seed=0), images.batches(50), text.batches(8, seed=0), text.batches(8)]
print(machine.time, *(len(list(each)) for each in passes))
"""


def measured_and_passed():
    """Seconds on a simulated clock that a measurement of a minute took, and the batches of four
    passes.
    """
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=root(), capture_output=True, text=True, check=True
    )
    seconds, *batches = done.stdout.split()
    return float(seconds), [int(count) for count in batches]


def test_where_nobody_reads_the_number_a_measurement_and_a_shuffled_pass_end_early_and_one_in_order_does_not(
    brief,
):
    seconds, (images, images_in_order, texts, texts_in_order) = measured_and_passed()
    assert seconds < 0.1
    assert (images, images_in_order) == (6, 12)  # the first that reach 256 images
    assert texts == 4 < texts_in_order


def test_without_the_fixture_everything_is_whole():
    seconds, (images, images_in_order, texts, texts_in_order) = measured_and_passed()
    assert seconds > 0.3
    assert images == images_in_order == 12
    assert 4 < texts <= texts_in_order
