"""Time ResNet-50 in TensorRT (FP16 and INT8) and in torch (FP16).

The tactics that TensorRT chose are recorded, too. A tactic is one of the kernels that TensorRT can
use for a layer.
"""

import functools
import importlib
import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from labkit.errors import LabError, Unavailable
from labkit.files import atomic
from labkit.gpu.arms import Arm
from labkit.gpu.bench import Bench
from labkit.gpu.convnext import images_of
from labkit.gpu.definition import define, ranges_of
from labkit.gpu.measuring import measure
from labkit.gpu.resnet import ResNet

SIDE = 224
CACHE = "tensorrt-timings.bin"
# TensorRT writes to stderr, which `labkit.gpu.watch` sends there
READ_LOG = "read worker.log, beside the rows in artifacts/gpu (or in --out): TensorRT says why"


def engines(bench: Bench, batch: int) -> None:
    """Measure ResNet-50 at one batch size: in torch, in TensorRT in FP16, in TensorRT in INT8.

    The three take turns. They all run on one stream that is not the default stream, because on the
    default stream TensorRT waits for the whole device after each call.
    """
    side = bench.size(SIDE, 32)
    common = {"experiment": "tensorrt", "batch": batch, "image_size": side, "network": "resnet50"}
    torch_precision = "fp16" if bench.on_gpu else "fp32"
    in_torch = Arm(variant="PyTorch", precision=torch_precision, **common)
    group = {in_torch: functools.partial(by_torch, bench, batch, side)}
    for precision in ("fp16", "int8"):
        make = functools.partial(by_tensorrt, bench, batch, side, precision)
        group[Arm(variant="TensorRT", precision=precision, **common)] = make
    with torch.cuda.stream(torch.cuda.Stream()) if bench.on_gpu else nullcontext():
        measure(bench, [group], "forward", seconds=0.5, race_seconds=5.0)


def network_of(bench: Bench) -> ResNet:
    """Return the ResNet in fp32 on the device; a small one with tiny sizes.

    The random weights are always the same.
    """
    torch.manual_seed(0)
    network = ResNet((1, 1), width=8) if bench.tiny else ResNet()
    return network.to(bench.device).eval()


def by_torch(bench: Bench, batch: int, side: int) -> Callable:
    """Return a function () that runs the ResNet in torch: in fp16 on a GPU, in fp32 on a CPU."""
    network = network_of(bench)
    images = images_of(bench, batch, side)
    if bench.on_gpu:
        network = network.half()
        images = images.half()

    def run():
        with torch.inference_mode():
            return network(images)

    return run


def by_tensorrt(bench: Bench, batch: int, side: int, precision: str) -> Callable:
    """Build a TensorRT engine of the ResNet. Returns an `Engine`, a function () that runs it.

    precision  "fp16" or "int8"
    Raises     Unavailable: no TensorRT, or no GPU
    """
    trt = library()
    if not bench.on_gpu:
        raise Unavailable(
            "TensorRT cannot run an engine here.", expected="an NVIDIA GPU", found="a CPU"
        )
    network = network_of(bench)
    images = images_of(bench, batch, side)
    ranges = ranges_of(network, images) if precision == "int8" else None
    start = time.monotonic()
    cache = bench.journal.path.with_name(CACHE)
    plan = build(trt, network, tuple(images.shape), ranges=ranges, cache=cache)
    return Engine(trt, plan, images.half(), build_s=time.monotonic() - start)


def library() -> ModuleType:
    """Return the module of TensorRT. Raises Unavailable where the module cannot be imported."""
    try:
        return importlib.import_module("tensorrt")
    except (ImportError, OSError, RuntimeError) as error:
        message = f"{type(error).__name__}: {error}"
        raise Unavailable(
            "TensorRT is not here.", expected="the package tensorrt", found=message
        ) from error


def build(
    trt: Any,
    network: ResNet,
    shape: tuple,
    *,
    ranges: dict | None = None,
    cache: Path | None = None,
) -> bytes:
    """Build a TensorRT engine of a network. Returns the engine's bytes.

    trt     the module of TensorRT, or of TensorRT-RTX
    shape   (N, 3, H, W) of the images; the engine takes this batch size only
    ranges  the result of `ranges_of`, for INT8; None: FP16
    cache   path of a file that stores how long each tactic took. With it, the next build is faster.
            None: nothing is stored
    Raises  LabError: TensorRT does not build the network
    """
    # Define the network call by call, and load the timings of earlier builds.
    log = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(log)
    definition = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    arrays = define(trt, definition, network, shape, ranges=ranges)
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if cache is not None:
        earlier_timings = cache.read_bytes() if cache.exists() else b""
        timing_cache = config.create_timing_cache(earlier_timings) or config.create_timing_cache(
            b""
        )
        config.set_timing_cache(timing_cache, True)

    # Build, and store the timings.
    plan = builder.build_serialized_network(definition, config)
    del arrays  # TensorRT reads the weights until here
    if plan is None:
        raise LabError(
            "TensorRT does not build this network.",
            expected="an engine",
            found="none",
            fix=READ_LOG,
        )
    if cache is not None:
        with atomic(cache) as temporary:
            temporary.write_bytes(bytes(config.get_timing_cache().serialize()))
    return bytes(plan)


class Engine:
    """A built TensorRT engine. It is called without arguments, and runs on the current stream.

    A call reads `images`, writes the logits into a tensor that stays the same, and returns that
    tensor.

    plan     bytes of the engine
    images   (N, 3, H, W) fp16 on the GPU
    build_s  seconds that the build took
    facts    further fields for the arm's rows, {name: value}: build_s, engine_bytes, tactics,
             version, peak_bytes (None)
    """

    def __init__(self, trt: Any, plan: bytes, images: torch.Tensor, *, build_s: float):
        self.log = trt.Logger(trt.Logger.WARNING)
        self.runtime = trt.Runtime(self.log)
        self.engine = self.runtime.deserialize_cuda_engine(plan)
        if self.engine is None:
            raise LabError(
                "TensorRT does not load its own engine.",
                expected="an engine",
                found="none",
                fix=READ_LOG,
            )
        self.context = self.engine.create_execution_context()
        self.images = images.contiguous()
        shape = tuple(self.engine.get_tensor_shape("logits"))
        self.logits = torch.empty(shape, dtype=torch.float16, device=images.device)
        self.context.set_tensor_address("images", self.images.data_ptr())
        self.context.set_tensor_address("logits", self.logits.data_ptr())
        self.facts = {
            "build_s": build_s,
            "engine_bytes": len(plan),
            "tactics": tactics_of(trt, self.engine),
            "version": trt.__version__,
            "peak_bytes": None,  # TensorRT does not take its memory from torch
        }

    def __call__(self):
        if not self.context.execute_async_v3(torch.cuda.current_stream().cuda_stream):
            raise LabError(
                "TensorRT refuses the call.", expected="the logits", found="none", fix=READ_LOG
            )
        return self.logits


def tactics_of(trt: Any, engine: Any) -> dict:
    """Count the tactics in an engine: {"kind of layer: tactic": number of layers}.

    The most frequent come first.
    """
    inspector = engine.create_engine_inspector()
    return counted(json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON)))


def counted(information: dict) -> dict:
    """Count the tactics in the report of an engine's inspector, as `tactics_of` returns them.

    If the report names a kernel, this name stands for the tactic.

    information  the report, parsed from JSON
    """
    counts: Counter = Counter()
    for layer in information.get("Layers", []):
        if isinstance(layer, dict):  # names alone, where the engine was built without details
            kind = layer.get("LayerType", "?")
            tactic = layer.get("TacticName") or layer.get("TacticValue") or "?"
            counts[f"{kind}: {tactic}"] += 1
    return dict(counts.most_common())
