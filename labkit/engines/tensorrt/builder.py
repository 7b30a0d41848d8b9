"""From an ONNX file to an engine: parse, describe the shapes, build.

The network is strongly typed: precision is what the graph says (casts, Q/DQ nodes), never a flag, so the same file can
be verified in ONNX Runtime and OpenVINO. The calls below exist in TensorRT 10 and 11 and in TensorRT-RTX.
"""

import hashlib
import json
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labkit import device as devices
from labkit import export
from labkit.engines.tensorrt import layers
from labkit.engines.tensorrt.libraries import failed, library, recorder, rejected
from labkit.errors import LabError, Unavailable, require_known

MEMORY = {"weights": "Total Weights Memory", "activations": "Total Activation Memory", "scratch": "Max Scratch Memory"}

MOST = 10**6  # images of a batch


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The choices for building an engine.

    batch     smallest, usual and largest; kernels are chosen for the usual one
    targets   GPU generations to build for, such as ("SM86", "SM89"), TensorRT-RTX only; (): the GPU that is
              here, or any it knows where there is none
    """

    batch: tuple = (1, 8, 64)
    targets: tuple = ()

    def __post_init__(self):
        within = [1, *self.batch, MOST]
        if len(within) != 5 or sorted(within) != within:
            expected = "smallest <= usual <= largest, such as --batch 1:8:64"
            raise LabError("These batch sizes are out of order.", expected=expected, found=self.batch)

    def as_json(self):
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True)
class Source:
    """A checked ONNX model: its file's name, the ModelProto, and the sha256 of it with all its weights."""

    name: str
    model: object
    sha256: str

    @classmethod
    def read(cls, path):
        """Read and check a file, which may come from anywhere; a `Source` comes back as it is."""
        if isinstance(path, cls):
            return path
        model = export.checked(path)
        return cls(Path(path).name, model, hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest())


@dataclass(frozen=True)
class Built:
    """A built engine, not yet loaded.

    plan          the bytes of the engine file
    kernels       `layers.Kernel`s, as the builder listed them
    listing       its own line for each of them, with the shapes and types of all tensors
    memory        {"weights" | "activations" | "scratch": bytes} on the GPU, of what the builder told
    seconds       building took
    """

    source: Source
    plan: bytes
    kernels: tuple
    listing: tuple
    memory: dict
    seconds: float


def build(onnx: Any, settings: Settings | None = None) -> Built:
    """Build an engine of an ONNX file: a `Built`. Without a GPU this takes TensorRT-RTX.

    onnx          a path, or a `Source`
    settings      `Settings`
    Raises        LabError that names the node and the way out; Unavailable where nothing can be built
    """
    source, settings, found = Source.read(onnx), settings or Settings(), library()
    log = recorder(found.trt)()
    builder = _builder(found, log)
    network = builder.create_network(1 << int(found.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = _parsed(found.trt, network, log, source)
    config = _configured(found, builder, network, settings)
    begin = time.perf_counter()
    plan = builder.build_serialized_network(network, config)
    seconds = time.perf_counter() - begin
    del parser
    if plan is None:
        raise failed(source.name, log.said("INTERNAL_ERROR", "ERROR"))
    listing = layers.listing(log.said("VERBOSE"))
    return Built(
        source=source,
        plan=bytes(plan),
        kernels=tuple(map(layers.kernel, listing)),
        listing=listing,
        memory=_memory(log.said("INFO")),
        seconds=seconds,
    )


def _builder(found, log):
    """A builder; Unavailable where the library refuses to make one, as the full one does without a GPU."""
    try:
        return found.trt.Builder(log)
    except (TypeError, RuntimeError) as error:
        raise Unavailable(
            f"{found.name} cannot build here.",
            expected="an NVIDIA GPU with its driver",
            found=(log.said("ERROR") or [str(error)])[0],
            fix="install tensorrt-rtx-cu13-bindings, which builds without a GPU",
        ) from error


def _parsed(trt, network, log, source):
    """Fill the network from the model: the parser, which owns the weights and must live until the engine is built.

    What it refuses, or would silently take for something else, is an error.
    """
    parser, problems = trt.OnnxParser(network, log), []
    if not parser.parse(source.model.SerializeToString()):
        errors = [parser.get_error(index) for index in range(parser.num_errors)]
        problems = [(error.node_name(), error.node_operator(), error.desc()) for error in errors]
    problems = problems or [("", "", text) for text in log.said("WARNING") if "UINT8 zero_point" in text][:1]
    if problems:
        raise rejected(source.name, problems)
    return parser


def _configured(found, builder, network, settings):
    """The builder's configuration, with a profile for the range of batches."""
    trt, config = found.trt, builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if found.is_rtx:
        _aim(found, config, settings.targets)
    elif settings.targets:
        raise LabError(
            "The full TensorRT builds for the GPU it runs on only.", found=settings.targets, fix="leave targets out"
        )
    profile = builder.create_optimization_profile()
    for tensor in map(network.get_input, range(network.num_inputs)):
        profile.set_shape(tensor.name, *(_with_batch(tensor, batch) for batch in settings.batch))
    config.add_optimization_profile(profile)
    return config


def _aim(found, config, targets):
    """Tell TensorRT-RTX which GPUs to build for: where none are named, the one that is here."""
    known = found.trt.ComputeCapability.__members__
    for name in targets:
        require_known(name, known, "GPU generation")
    here = f"SM{(devices.compute_capability() or '').replace('.', '')}"
    wanted = targets or (("CURRENT",) if here in known else ())
    if wanted:
        config.num_compute_capabilities = len(wanted)
    for index, name in enumerate(wanted):
        config.set_compute_capability(known[name], index)


def _with_batch(tensor, batch):
    """The shape of a network's input for one batch size."""
    first, *rest = tensor.shape
    if -1 in rest:
        raise LabError(
            f"The input {tensor.name!r} has more than its batch open.",
            expected="one dimension that may vary, the first",
            found=tuple(tensor.shape),
            fix="export the model with every other side fixed: an image size, the length of a sequence",
        )
    return (batch if first == -1 else first, *rest)


def _memory(messages):
    """{kind: bytes} of the builder's messages; of several, the last."""
    told = "\n".join(messages)
    found = {kind: re.findall(rf"{words}: (\d+) bytes", told) for kind, words in MEMORY.items()}
    return {kind: int(hits[-1]) for kind, hits in found.items() if hits}
