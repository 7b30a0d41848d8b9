"""Find out which TensorRT is installed, which GPUs it can run on, and what its messages mean.

There are two libraries with the same interface. TensorRT builds an engine on the GPU that will run
it, and times candidates for each kernel there. TensorRT-RTX builds without a GPU; its machine code
is made only when an engine is first run.
"""

import functools
import importlib
import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from labkit import device as devices
from labkit.device.packages import install
from labkit.errors import LabError, Unavailable

_RTX = "tensorrt-rtx"
MODULES = {"tensorrt": "tensorrt", "tensorrt_rtx": _RTX, "tensorrt_rtx_bindings": _RTX}
MAX_PROBLEMS = 3  # of a graph that an error names: there may be hundreds


@dataclass(frozen=True)
class Library:
    """An imported TensorRT library.

    trt      the imported module
    name     "tensorrt" or "tensorrt-rtx"
    version  version of the library
    """

    trt: ModuleType
    name: str
    version: str

    @property
    def is_rtx(self):
        return self.name == _RTX


def gpu_extra() -> str:
    """Return a text that says how to install the full TensorRT and pycuda."""
    return f"on a machine with an NVIDIA GPU and the CUDA toolkit: {install('-e', '.[gpu]')}"


def library() -> Any:
    """Import TensorRT and return its `Library`.

    If both libraries are installed, the full TensorRT is taken on a machine with a GPU, and
    TensorRT-RTX on any other. Raises Unavailable if neither can be imported.
    """
    order = MODULES if "cuda" in devices.kinds() else reversed(MODULES)
    reasons = []
    for module in order:
        try:
            trt = importlib.import_module(module)
            return Library(trt, MODULES[module], trt.__version__)
        # not installed, or its libraries do not load
        except (ImportError, OSError, RuntimeError) as error:
            reasons.append(f"{module}: {error or type(error).__name__}")
    raise Unavailable(
        "TensorRT is not here.",
        expected="the package tensorrt (needs a GPU) or tensorrt-rtx-cu13-bindings "
        "(Linux on x86-64)",
        found="; ".join(reasons),
        fix=gpu_extra(),
    )


def require_gpu(tensorrt: Any) -> None:
    """Raise Unavailable, with the reason, unless this machine has a GPU that can run engines.

    tensorrt  the `Library` of the engines
    """
    capability = devices.compute_capability()
    if capability is None:
        raise Unavailable(
            "TensorRT cannot run an engine here.",
            expected="an NVIDIA GPU with its driver",
            found="no GPU that torch can use",
            fix="an engine file can still be built: `labkit build model.onnx`; the lesson shows "
            "recorded rows",
        )
    target = f"SM{capability.replace('.', '')}"
    if tensorrt.is_rtx and not hasattr(tensorrt.trt.ComputeCapability, target):
        generations = [
            name for name in tensorrt.trt.ComputeCapability.__members__ if name.startswith("SM")
        ]
        raise Unavailable(
            f"TensorRT-RTX has no kernels for this GPU ({target}).",
            expected=", ".join(generations),
            found=target,
            fix=f"install the full library, {gpu_extra()}",
        )


@functools.cache
def recorder(trt):
    """Return a class of loggers for TensorRT that keep all messages.

    An object of the class has `messages`, a list of (severity name, text).

    trt  the imported module, `Library.trt`
    """

    class Recorder(trt.ILogger):
        def __init__(self):
            trt.ILogger.__init__(self)
            self.messages = []

        def log(self, severity, message):
            self.messages.append((severity.name, message))

        def texts(self, *severities):
            """Return the texts of the messages with one of these severities, oldest first.

            severities  names such as "ERROR" and "VERBOSE"
            """
            return [text for severity, text in self.messages if severity in severities]

    return Recorder


def rejected(file, problems):
    """Return the LabError about a graph that the parser refused.

    file      name of the ONNX file
    problems  [(name of the ONNX node, its operator, the parser's message)]
    """
    sentences = []
    for node, operator, message in problems[:MAX_PROBLEMS]:
        meaning, _ = _meaning_and_remedy(message, file)
        if node or operator:
            meaning = f"node {node!r} ({operator}): {meaning}"
        sentences.append(meaning)
    _, _, first_message = problems[0]
    _, fix = _meaning_and_remedy(first_message, file)
    return LabError(
        f"TensorRT rejects {file}.",
        expected="operators, types and quantization that TensorRT has",
        found="; ".join(sentences),
        fix=fix or "look at this node with `labkit view`, and export it another way",
    )


def failed(file, messages):
    """Return the LabError about a build that failed after parsing.

    file      name of the ONNX file
    messages  the errors that TensorRT logged, oldest first
    """
    readings = [_meaning_and_remedy(message, file) for message in messages] or [
        ("no reason was given", None)
    ]
    meaning, fix = next(filter(all, readings), readings[0])  # one with a remedy, if there is one
    return LabError(
        f"TensorRT cannot build {file}.",
        expected="a network that the chosen GPUs and the optimization profile can hold",
        found=meaning,
        fix=fix or "build once more with fewer targets, to see which one is too much",
    )


def _meaning_and_remedy(message, file):
    """Return two texts: the meaning of a message, and its remedy. The remedy may be None.

    Both come from `messages.toml`, if it has an entry for the message. Otherwise the meaning is the
    message itself, shortened: source files and line numbers are left out, and so are errors that
    only follow from a missing driver.

    message  a message of TensorRT
    file     name of the ONNX file, for the remedy
    """
    explanation = next((row for row in _table() if re.search(row["pattern"], message)), {})
    lines = [line for line in message.splitlines() if "catchCudaError" not in line]
    text = " ".join(re.sub(r"\(?In \w+ at \S+\)?", "", line).strip() for line in lines)
    meaning = explanation.get("means") or text[:300].strip(" (") or message[:300]
    fix = explanation.get("fix", "").replace(
        "NEW.onnx", shlex.quote(f"{Path(file).stem}-tensorrt.onnx")
    )
    return meaning, fix or None


@functools.cache
def _table():
    """Return the entries of `messages.toml`: dictionaries {"pattern", "means", "fix": text}."""
    return tomllib.loads(Path(__file__).with_name("messages.toml").read_text(encoding="utf-8"))[
        "known"
    ]
