"""Build a TensorRT engine of an ONNX file: parse the file, set the range of batch sizes, compile.

The network is strongly typed: the precision is that of the graph (casts, Q/DQ nodes) and is never
set by an option. So ONNX Runtime and OpenVINO can verify the same file. The calls below exist in
TensorRT 10 and 11 and in TensorRT-RTX.
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
    """The options for building an engine.

    batch    (smallest, usual, largest) batch size; the kernels are chosen for the usual one
    targets  GPU generations to build for, such as ("SM86", "SM89"); for TensorRT-RTX only. (): the
             GPU of this machine, or every generation that the library knows if there is no GPU
    Raises   LabError: batch sizes out of order
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
    """A checked ONNX model.

    name    name of its file
    model   its ModelProto
    sha256  hash of the model with its weights
    """

    name: str
    model: object
    sha256: str

    @classmethod
    def read(cls, path):
        """Read and check an ONNX file, also one from an unknown source. Returns a `Source`.

        path  path of the file; a `Source` is returned unchanged
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
    """A built engine that is not loaded yet.

    source   the `Source` that it was built from
    plan     the bytes of the engine file; TensorRT calls them a plan
    kernels  the `layers.Kernel`s of the engine, as the builder listed them
    listing  the builder's own line for each kernel, with the shapes and types of all tensors
    memory   {kind: bytes on the GPU}, with the kinds "weights", "activations" and "scratch"; a kind
             that the builder did not report is left out
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

    Without a GPU this needs TensorRT-RTX.

    onnx      the path of the file, or its `Source`
    settings  a `Settings`; None: its defaults
    Raises    LabError, which names the node and a remedy; Unavailable: no TensorRT can build on
              this machine
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

    Raises Unavailable if the library cannot make one: the full TensorRT cannot without a GPU.

    tensorrt  a `libraries.Library`
    log       a logger of the class that `recorder` returns
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
    """Parse a model into a TensorRT network. Returns the parser, which owns the weights.

    Raises LabError for a node that TensorRT refuses, or that it would silently misread.

    trt      the imported module
    network  the empty TensorRT network, which is filled
    log      the logger
    source   the `Source`
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
    """Return the builder's configuration, with an optimization profile for the range of batches.

    The profile holds the smallest, usual and largest shape of each input. Raises LabError if GPU
    generations are named for the full TensorRT, or if a side other than the batch may vary.
    """
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
    """Tell TensorRT-RTX which GPU generations to build for.

    targets  names such as "SM89". (): the GPU of this machine, if the library knows it, else all
             generations
    """
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

    Raises LabError if a side other than the batch may vary.

    tensor  the input, a tensor of the TensorRT network
    batch   batch size
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
    """Read memory sizes from the builder's messages: {kind of memory: bytes}.

    The kinds are the keys of `MEMORY`. If a kind is reported several times, the last message
    counts.
    """
    text = "\n".join(messages)
    memory = {}
    for kind, words in MEMORY.items():
        matches = re.findall(rf"{words}: (\d+) bytes", text)
        if matches:
            memory[kind] = int(matches[-1])
    return memory
