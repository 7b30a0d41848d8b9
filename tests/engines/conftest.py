"""Networks of the course as ONNX files: an export takes seconds, so each is made once for all tests that want it."""

import os

import pytest
import torch
from filelock import FileLock

from labkit import export, models


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """name -> the ONNX file of a network with the weights of seed 0, made by the first test process that asks."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "networks"
    folder.mkdir(exist_ok=True)

    def file(name):
        path = folder / f"{name}.onnx"
        with FileLock(path.with_suffix(".lock")):
            if not path.exists():
                torch.manual_seed(0)
                export.to_onnx(models.build(name)[0], models.example(name, 2), path)
        return path

    return file
