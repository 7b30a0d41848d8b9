"""eager: torch as it is, one operator after the other."""

from pathlib import Path

import torch

from labkit import device as devices
from labkit.engines.served import Served
from labkit.errors import LabError, Unavailable

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def load(model, example, *, precision, threads=None):
    """See `labkit.engines.load`."""
    ready = on_device(model, example, precision, "eager")
    return serve(ready, example, engine="eager", precision=precision, threads=threads)


def on_device(model, example, precision, engine):
    """The module on the example's device in eval mode; ONNX files and int8 are refused."""
    if isinstance(model, (str, Path)):
        raise LabError(
            f"{engine} runs torch modules, not ONNX files.",
            expected="a torch module",
            found=str(model),
            fix="choose the engine onnxruntime, openvino or tensorrt",
        )
    if precision not in DTYPES:
        raise Unavailable(
            f"{engine} has no {precision}.",
            expected=" or ".join(DTYPES),
            found=precision,
            fix="quantize the exported ONNX file (`labkit quantize`) and run it in onnxruntime, openvino or tensorrt",
        )
    return model.to(example.device).eval()


def serve(model, example, *, engine, precision, threads, function=None):
    """Serve a module, or a `function` compiled from it; autocast for small formats keeps what needs it in fp32."""
    call = model if function is None else function  # a compiled module cannot be asked whether it is true
    kind, dtype = example.device.type, DTYPES[precision]
    threads = threads or devices.threads()

    def run(*batch):
        with devices.using_threads(threads), torch.autocast(kind, dtype=dtype, enabled=precision != "fp32"):
            return call(*batch)

    with torch.inference_mode():
        shape = model(example[:1]).shape
    name = "input" if example.is_floating_point() else "tokens"
    return Served(
        engine=engine,
        precision=precision,
        device=str(example.device),
        threads=threads,
        inputs={name: ("batch", *example.shape[1:])},
        outputs={"logits": ("batch", *shape[1:])},
        run=run,
    )
