"""Build an engine of an ONNX file: parse the file, describe the shapes, build.

The network is strongly typed: precision is what the graph says (casts, Q/DQ nodes), never a flag,
so the same file can be verified in ONNX Runtime and OpenVINO. The calls below exist in TensorRT 10
and 11 and in TensorRT-RTX.
"""

import hashlib
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit import device as devices
from labkit import export
from labkit.engines.cache import refuse_compiled_file
from labkit.engines.tensorrt import layers
from labkit.engines.tensorrt.libraries import failed, library, recorder, rejected
from labkit.errors import LabError, Unavailable, require_known

MEMORY = {
    "weights": "Total Weights Memory",
    "activations": "Total Activation Memory",
    "scratch": "Max Scratch Memory",
}

MAX_BATCH = 10**6  # images


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The choices for building an engine.

    batch    (smallest, usual, largest) batch size; kernels are chosen for the usual one
    targets  GPU generations to build for, such as ("SM86", "SM89"), TensorRT-RTX only; (): the GPU
             of this machine, or without a GPU every generation that the library knows
    """

    batch: tuple = (1, 8, 64)
    targets: tuple = ()

    def __post_init__(self):
        sizes = [1, *self.batch, MAX_BATCH]
        if len(sizes) != 5 or sorted(sizes) != sizes:
            raise LabError(
                "These batch sizes are out of order.",
                expected="smallest <= usual <= largest, such as --batch 1:8:64",
                found=self.batch,
            )


@dataclass(frozen=True)
class Source:
    """A checked ONNX model: its file's name, its ModelProto, and a sha256 of model and weights."""

    name: str
    model: object
    sha256: str

    @classmethod
    def read(cls, path):
        """Read and check an ONNX file, which may come from anywhere. Returns a `Source`.

        path  the file; a `Source` is returned unchanged
        """
        if isinstance(path, cls):
            return path
        refuse_compiled_file(path)
        model = export.checked(path)
        return cls(
            Path(path).name,
            model,
            hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest(),
        )


@dataclass(frozen=True)
class Built:
    """A built engine, not yet loaded.

    source   the `Source` that it was built from
    plan     the bytes of the engine file
    kernels  the engine's `layers.Kernel`s, as the builder listed them
    listing  the builder's own line for each kernel, with the shapes and types of all tensors
    memory   {"weights", "activations" or "scratch": bytes on the GPU}, for the kinds that the
             builder reported
    seconds  how long the build took
    """

    source: Source
    plan: bytes
    kernels: tuple
    listing: tuple
    memory: dict
    seconds: float


def build(onnx: Any, settings: Settings | None = None) -> Built:
    """Build an engine of an ONNX file. Returns a `Built`.

    Without a GPU this takes TensorRT-RTX.

    onnx      the path of the file, or its `Source`
    settings  what to build for; None: the defaults of `Settings`
    Raises    LabError that names the node and the way out; Unavailable where nothing can be built
    """
    source = Source.read(onnx)
    settings = settings or Settings()
    tensorrt = library()
    log = recorder(tensorrt.trt)()

    # Parse, configure, build. The parser owns the weights: it must live until the engine is built.
    builder = _builder(tensorrt, log)
    network = builder.create_network(
        1 << int(tensorrt.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    )
    parser = _parsed(tensorrt.trt, network, log, source)
    config = _configured(tensorrt, builder, network, settings)
    start = time.perf_counter()
    plan = builder.build_serialized_network(network, config)
    seconds = time.perf_counter() - start
    del parser
    if plan is None:
        raise failed(source.name, log.texts("INTERNAL_ERROR", "ERROR"))
    listing = layers.listing(log.texts("VERBOSE"))
    return Built(
        source=source,
        plan=bytes(plan),
        kernels=tuple(map(layers.kernel, listing)),
        listing=listing,
        memory=_memory(log.texts("INFO")),
        seconds=seconds,
    )


def _builder(tensorrt, log):
    """Return a TensorRT builder.

    Raises Unavailable where the library refuses to make one, as the full TensorRT does without a
    GPU.
    """
    try:
        return tensorrt.trt.Builder(log)
    except (TypeError, RuntimeError) as error:
        raise Unavailable(
            f"{tensorrt.name} cannot build here.",
            expected="an NVIDIA GPU with its driver",
            found=(log.texts("ERROR") or [str(error)])[0],
            fix="install tensorrt-rtx-cu13-bindings, which builds without a GPU",
        ) from error


def _parsed(trt, network, log, source):
    """Parse the model into the TensorRT network. Returns the parser, which owns the weights.

    Raises LabError for a node that TensorRT refuses, or would silently take for something else.
    """
    parser = trt.OnnxParser(network, log)
    problems = []
    if not parser.parse(source.model.SerializeToString()):
        errors = [parser.get_error(index) for index in range(parser.num_errors)]
        problems = [(error.node_name(), error.node_operator(), error.desc()) for error in errors]
    if not problems:
        problems = [("", "", text) for text in log.texts("WARNING") if "UINT8 zero_point" in text][
            :1
        ]
    if problems:
        raise rejected(source.name, problems)
    return parser


def _configured(tensorrt, builder, network, settings):
    """Return the builder's configuration, with an optimization profile for the range of batches."""
    trt = tensorrt.trt
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if tensorrt.is_rtx:
        _aim(tensorrt, config, settings.targets)
    elif settings.targets:
        raise LabError(
            "The full TensorRT builds for the GPU it runs on only.",
            found=settings.targets,
            fix="leave targets out",
        )
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        profile.set_shape(tensor.name, *(_with_batch(tensor, batch) for batch in settings.batch))
    config.add_optimization_profile(profile)
    return config


def _aim(tensorrt, config, targets):
    """Tell TensorRT-RTX which GPUs to build for; without targets, the GPU of this machine."""
    generations = tensorrt.trt.ComputeCapability.__members__
    for name in targets:
        require_known(name, generations, "GPU generation")
    gpu_here = f"SM{(devices.compute_capability() or '').replace('.', '')}"
    if not targets and gpu_here in generations:
        targets = ("CURRENT",)
    if targets:
        config.num_compute_capabilities = len(targets)
    for index, name in enumerate(targets):
        config.set_compute_capability(generations[name], index)


def _with_batch(tensor, batch):
    """Return the shape of an input of the TensorRT network, for one batch size.

    Raises LabError where another side than the batch may vary.
    """
    first, *sides = tensor.shape
    if -1 in sides:
        raise LabError(
            f"The input {tensor.name!r} has more than its batch open.",
            expected="one dimension that may vary, the first",
            found=tuple(tensor.shape),
            fix="export the model with every other side fixed: an image size, the "
            "length of a sequence",
        )
    return (batch if first == -1 else first, *sides)


def _memory(messages):
    """Parse the builder's messages for memory sizes: {kind of memory: bytes}.

    Where a kind is reported several times, the last message counts.
    """
    text = "\n".join(messages)
    memory = {}
    for kind, words in MEMORY.items():
        matches = re.findall(rf"{words}: (\d+) bytes", text)
        if matches:
            memory[kind] = int(matches[-1])
    return memory
