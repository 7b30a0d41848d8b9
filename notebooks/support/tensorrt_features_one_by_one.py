"""For the tour of TensorRT's features: an engine as the builder lists it, and its pictures.

The notebook builds engines with TensorRT's own calls. Here the builder's messages become an
`Engine`, and the engine's steps become counts of bytes and pictures.
"""

import ctypes
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import torch
from onnx import numpy_helper

from labkit.engines import tensorrt
from labkit.engines.tensorrt import layers
from labkit.engines.tensorrt.run import Session
from labkit.plots import COLOURS, GREY, canvas, flame

MEMORY = {"weights": "Total Weights Memory", "activations": "Total Activation Memory"}
TIMED = re.compile(r"Tactic: \S+ Time: [\d.]+")  # a line of the full TensorRT's log
PRODUCTS = re.compile("correlation|conv|gemm|matrix", re.IGNORECASE)
STREAM = re.compile(r"StreamId: (\d+)")


@dataclass(frozen=True)
class Engine:
    """An engine as bytes, and the builder's messages about it.

    plan      the bytes of the engine
    messages  the texts of the builder, in order
    seconds   how long the build took
    """

    plan: bytes
    messages: tuple
    seconds: float

    @cached_property
    def listing(self):
        """Return the builder's line for each kernel."""
        return layers.listing(self.messages)

    @cached_property
    def kernels(self):
        """Return a `layers.Kernel` for each line of the listing."""
        return tuple(map(layers.kernel, self.listing))

    @property
    def steps(self):
        """Return the kernels that do arithmetic."""
        return [kernel for kernel in self.kernels if kernel.computes]

    @property
    def products(self):
        """Return the steps that are convolutions or matrix products."""
        return [step for step in self.steps if PRODUCTS.search(step.kind)]

    @property
    def memory(self):
        """Return {"weights", "activations": bytes that are set aside on the GPU}."""
        text = "\n".join(self.messages)
        return {
            kind: int(re.findall(rf"{words}: (\d+) bytes", text)[-1])
            for kind, words in MEMORY.items()
        }

    @property
    def tactics(self):
        """Return the names of the chosen kernels, one for each step that computes."""
        lines = zip(self.listing, self.kernels, strict=True)
        names = [re.search(r"TacticName: ([^,]*)", line) for line, step in lines if step.computes]
        return [match[1] for match in names if match]

    @property
    def timed(self):
        """Return the number of tactics that the builder timed.

        The full TensorRT lists each of them with its time.
        """
        return sum(len(TIMED.findall(text)) for text in self.messages)

    @property
    def streams(self):
        """Return the number of the stream of each line of the listing."""
        return [int(STREAM.search(line)[1]) for line in self.listing]

    @property
    def moved(self):
        """Return (bytes of weights, other bytes that the steps read and write for one image)."""
        sides = [[sum(side.values()) for side in sides] for _, *sides in layers.flow(self)]
        read, held, written = map(sum, zip(*sides, strict=True))
        return held, read + written

    @property
    def written(self):
        """Return the bytes that the steps write for one image."""
        return sum(sum(written.values()) for *_, written in layers.flow(self))

    @property
    def at_once(self):
        """Return the most bytes between the steps at one time, for one image.

        A tensor counts from the step that writes it to the last step that reads it.
        """
        table = list(layers.flow(self))
        last = {name: number for number, (_, read, *_) in enumerate(table) for name in read}
        lying, most = {}, 0
        for number, (*_, written) in enumerate(table):
            lying |= written
            most = max(most, sum(lying.values()))
            lying = {name: size for name, size in lying.items() if last.get(name, -1) > number}
        return most


def described(engine: Engine) -> pd.DataFrame:
    """Return a table of the steps of an engine: name, kind, ONNX nodes, types written."""
    rows = [
        (step.name[:60], step.kind, len(step.nodes), "/".join(sorted(set(step.outputs))))
        for step in engine.steps
    ]
    return pd.DataFrame(rows, columns=["step", "kind", "ONNX nodes", "writes"])


STORED = {"filters": np.ones((8, 8, 3, 3)), "square": np.ones((16, 16))}


def after_convolution(expression: str, kind: str = "float") -> onnx.ModelProto:
    """Return a model of two nodes: the convolution "conv", then the expression, "one".

    expression  such as "Relu(x)"
    kind        "float" or "float16"
    """
    text = (
        '<ir_version: 10, opset_import: ["": 20, "lab": 1]> one '
        f"({kind}[1, 8, 16, 16] input) => ({kind}[n] logits) "
        f"{{ x = Conv<pads=[1, 1, 1, 1]>(input, filters) logits = {expression} }}"
    )
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model.graph.node[0].name, model.graph.node[1].name = "conv", "one"
    number = {"float": np.float32, "float16": np.float16}[kind]
    model.graph.initializer.extend(
        numpy_helper.from_array(value.astype(number), name) for name, value in STORED.items()
    )
    return model


def draw_fusion(model: onnx.ModelProto, engine: Engine, count: int = 19) -> Any:
    """Draw the first nodes of a file, each under the step that computes it. Returns the figure.

    count  number of nodes
    """
    table = tensorrt.compared(model, engine.kernels, operators=None)
    numbers = {name: n for n, name in enumerate(table["kernel"].dropna().unique(), 1)}
    first = table["kernel"].map(numbers).ffill()[:count].astype(int)
    upper = [(0, part.index[0], len(part), f"step {n}") for n, part in first.groupby(first)]
    lower = [(1, index, 1, table["operator"][index]) for index in first.index]
    colours = {f"step {n}": (COLOURS[5], COLOURS[4])[n % 2] for n in first}
    figure = flame(upper + lower, bands=colours, label="nodes in the file's order (count)")
    figure.axes[0].set_xticks(range(0, count + 1, 2))
    return figure


def draw_streams(engines: dict) -> Any:
    """Draw the steps of each engine in the builder's order, a line for each stream.

    Returns the figure.

    engines  {name: `Engine`}
    """
    lanes = [(name, number) for name in engines for number in sorted(set(engines[name].streams))]
    figure, ax = canvas(9, 0.9 + 0.55 * len(lanes))
    for height, (name, number) in enumerate(lanes):
        engine = engines[name]
        for index, (step, stream) in enumerate(zip(engine.kernels, engine.streams, strict=True)):
            if stream == number:
                colour = COLOURS[0] if step.computes else GREY
                ax.barh(height, 0.92, left=index - 0.46, height=0.7, color=colour, alpha=0.6)
                ax.text(index, height, step.kind[:11], ha="center", va="center", fontsize=7.5)
    ax.set_yticks(range(len(lanes)), [f"{name}: stream {number}" for name, number in lanes])
    ax.set(xlabel="number in the builder's list", ylim=(len(lanes) - 0.5, -0.5))
    return figure


def tensor_at(address: int, shape: tuple, on_gpu: bool) -> torch.Tensor:
    """Return float32 memory at an address as a tensor, without a copy.

    on_gpu  True for an address of the GPU, False for one of the host, as in the rehearsal
    """
    if on_gpu:
        interface = {"shape": shape, "typestr": "<f4", "data": (address, False), "version": 3}
        return torch.as_tensor(_Memory(interface), device="cuda")
    numbers = (ctypes.c_float * int(np.prod(shape))).from_address(address)
    return torch.from_numpy(np.ctypeslib.as_array(numbers)).view(shape)


class _Memory:
    """GPU memory as PyTorch reads it from other libraries."""

    def __init__(self, interface):
        self.__cuda_array_interface__ = interface


def run_on_gpu(engine: Engine, *batch: torch.Tensor) -> torch.Tensor:
    """Run an engine on tensors of the host; returns its first output, on the host."""
    session = Session(tensorrt.library(), engine.plan)
    return session(*(tensor.cuda() for tensor in batch)).cpu()


def headers() -> Path | None:
    """Return the folder of TensorRT's C++ headers; None where the compiler would find none."""
    named = os.environ.get("CPATH", "").split(os.pathsep)
    usual = ("/usr/include", "/usr/include/x86_64-linux-gnu", "/usr/local/tensorrt/include")
    folders = [Path(name) for name in (*named, *usual) if name]
    return next((folder for folder in folders if (folder / "NvOnnxParser.h").is_file()), None)


def compile_and_run(source: Path, *words: Any) -> str:
    """Compile a C++ program against TensorRT and run it. Returns what it prints.

    Where a compiler or the headers are missing, or a step fails, the reason is returned.

    words  arguments of the program
    """
    folder = headers()
    if folder is None or shutil.which("g++") is None:
        return "Not compiled here: no NvOnnxParser.h in CPATH or /usr/include, or no g++."
    program = source.with_suffix("")
    libraries = [f"-l:{path.name}" for path in shared_libraries()]
    folders = sorted({str(path.parent) for path in shared_libraries()})
    search = [f"-L{name}" for name in folders] + [f"-Wl,-rpath,{name}" for name in folders]
    flags = ["-std=c++17", "-w", f"-I{folder}", "-Wl,--allow-shlib-undefined"]
    command = ["g++", *flags, str(source), *search, *libraries, "-o", str(program)]
    for step in (command, [str(program), *map(str, words)]):
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode:
            return f"{Path(step[0]).name} ended with {done.returncode}: {done.stderr.strip()[:400]}"
    return done.stdout.strip()


def shared_libraries() -> list:
    """Return the shared libraries of the TensorRT that this Python has loaded."""
    words = Path("/proc/self/maps").read_text(encoding="utf-8").split()
    pattern = r"lib(nv|tensorrt).*(infer|rtx|onnx)"
    paths = {Path(word) for word in words if re.search(pattern, word)}
    return sorted(path for path in paths if "plugin" not in path.name and ".so" in path.name)
