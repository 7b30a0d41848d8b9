"""What is in a built engine: its kernels, the types they compute in, and the ONNX nodes each was made from.

A builder with a VERBOSE logger and detailed profiling lists the kernels in one message that starts with `Layers:`; an
engine that was loaded on a GPU lists them to an inspector, as JSON. Both become `Kernel`s here.
"""

import json
import re
from dataclasses import dataclass

KEYS = ("Inputs", "Constants", "Outputs", "TacticName", "StreamId", "Metadata")
# Kinds that move, convert or wait; whatever else names a node is where its arithmetic happens.
HELPERS = ("shape_call", "signal", "wait", "memset", "reformat", "copy", "constant", "noop", "cjmp")
GENERATED = "kgen"  # element-wise work that TensorRT writes a kernel for
TYPES = (  # the first part found in a description, in lower case, decides
    *(("int8", "int8"), ("fp8", "fp8"), ("e4m3", "fp8"), ("bf16", "bf16"), ("bfloat16", "bf16")),
    *(("half", "fp16"), ("fp16", "fp16"), ("float16", "fp16"), ("int32", "int32"), ("int64", "int64")),
    *(("bool", "bool"), ("float", "fp32"), ("fp32", "fp32")),
)
WIDTH = {"int8": 1, "fp8": 1, "fp16": 2, "bf16": 2, "fp32": 4}


@dataclass(frozen=True)
class Kernel:
    """One step of an engine.

    kind       TensorRT's name for it: "correlation" or "CaskConvolution", "gemm", "kgen" (element-wise), ...
    inputs, constants, outputs  the types of its tensors, such as ("int8", "fp32"); constants hold the weights
    tactic     the chosen implementation; TensorRT-RTX chooses it at the first run
    stream     the number of the CUDA stream it is put on
    nodes      names of the ONNX nodes it computes
    """

    name: str
    kind: str
    inputs: tuple
    constants: tuple
    outputs: tuple
    tactic: str
    stream: int
    nodes: tuple

    @property
    def computes(self):
        """Whether it does arithmetic, rather than move data or wait."""
        return not self.kind.lower().startswith(HELPERS)

    @property
    def precision(self):
        """What it computes in: the narrowest type of its inputs, or of its weights where that is wider."""
        sides = [narrowest(side) for side in (self.inputs, self.constants)]
        known = [side for side in sides if side]
        return max(known, key=WIDTH.get) if known else "other"


def narrowest(types):
    """The smallest number format among these, or None when there is none."""
    return min((kind for kind in types if kind in WIDTH), key=WIDTH.get, default=None)


def from_log(messages):
    """The kernels as the builder's log lists them; empty when it does not (built without detailed profiling)."""
    listings = [text for text in messages if text.startswith("Layers:")]
    lines = listings[-1].split("\n\n")[0].splitlines()[1:] if listings else []
    return tuple(from_line(line) for line in lines if line.startswith("Name: "))


def from_line(line):
    """A kernel of a line `Name: ..., LayerType: ..., Inputs: [...], ..., Metadata: [ONNX Layer: a][ONNX Layer: b]`."""
    name, kind, rest = re.match(r"Name: (.*?), LayerType: ([^,]*)(.*)", line, flags=re.DOTALL).groups()
    parts = {}
    for key, after in zip(KEYS, (*KEYS[1:], None), strict=True):
        until = rf", {after}: |$" if after else "$"
        found = re.search(rf", {key}: (.*?)(?={until})", rest, flags=re.DOTALL)
        parts[key] = found[1] if found else ""
    types = {key: tuple(map(type_name, re.findall(r"Datatype: ([^,}]*)", parts[key]))) for key in KEYS[:3]}
    return Kernel(
        name=name,
        kind=kind,
        inputs=types["Inputs"],
        constants=types["Constants"],
        outputs=types["Outputs"],
        tactic=parts["TacticName"],
        stream=int(re.match(r"\d+", parts["StreamId"])[0]) if parts["StreamId"][:1].isdigit() else 0,
        nodes=onnx_nodes(parts["Metadata"]),
    )


def from_inspector(text):
    """The kernels of the JSON that an engine's inspector gives; names alone when it was built without details."""
    entries = json.loads(text).get("Layers", [])
    entries = [{"Name": entry} if isinstance(entry, str) else entry for entry in entries]
    return tuple(
        Kernel(
            name=entry.get("Name", ""),
            kind=entry.get("LayerType", "unknown"),
            inputs=tensor_types(entry.get("Inputs", ())),
            constants=tensor_types(entry.get("Constants", ())) or weights_type(entry),
            outputs=tensor_types(entry.get("Outputs", ())),
            tactic=str(entry.get("TacticName", "")),
            stream=int(entry.get("StreamId", 0)),
            nodes=onnx_nodes(entry.get("Metadata", "")),
        )
        for entry in entries
    )


def tensor_types(tensors):
    return tuple(type_name(tensor.get("Datatype") or tensor.get("Format/Datatype", "")) for tensor in tensors)


def weights_type(entry):
    weights = entry.get("Weights")
    return (type_name(weights["Type"]),) if isinstance(weights, dict) and "Type" in weights else ()


def type_name(text):
    """ "Half", or "Channel major FP16 format where channel % 8 == 0", as "fp16"."""
    text = text.lower()
    return next((kind for part, kind in TYPES if part in text), text.strip() or "unknown")


def onnx_nodes(metadata):
    """("a", "b") of "[ONNX Layer: a][ONNX Layer: b]", with any separator."""
    return tuple(dict.fromkeys(re.findall(r"\[ONNX Layer: ([^\]]*)\]", metadata)))
