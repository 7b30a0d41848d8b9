"""Networks of the course as ONNX files: an export takes seconds, so each is made once for all
tests that want it.
"""

import pytest
import torch

from labkit import export, models


@pytest.fixture(scope="session")
def exported(once):
    """name -> the ONNX file of a network with the weights of seed 0, made by the first test
    process that asks.
    """

    def file(name):
        def make(folder):
            torch.manual_seed(0)
            export.to_onnx(models.build(name)[0], models.example(name, 2), folder / f"{name}.onnx")

        return once(f"network-{name}", make) / f"{name}.onnx"

    return file
