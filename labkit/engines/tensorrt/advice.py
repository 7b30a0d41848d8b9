"""What TensorRT's error messages mean, and what to do: they name a node and a source line, seldom the way out."""

import re
from dataclasses import dataclass

from labkit.errors import LabError

QUANTIZE = 'quantize again with the recipe for TensorRT: labkit.quantize.static(src, dst, data, recipe="tensorrt")'
PLUGIN = "write it with operators ONNX has (a few of them fuse into one kernel), or give TensorRT a plugin for it"
FIXES = (  # (pattern in the message, what it means, what to do)
    (
        r"Non-zero zero point",
        "a quantization with a zero point: TensorRT's integers are symmetric around 0",
        QUANTIZE,
    ),
    (
        r"with UINT8 zero_point only on DLA",
        "a quantization to unsigned integers: TensorRT would take them for signed ones, and saturate all above 127",
        QUANTIZE,
    ),
    (
        r"input has type Int32 but must have type",
        "a bias quantized to int32: TensorRT adds biases in float",
        f'{QUANTIZE}, which leaves biases in float (ONNX Runtime: "QuantizeBias": False)',
    ),
    (
        r"must have same input types|must have the same type|have types .* and",
        "two inputs of different types: in a strongly typed network nothing is cast silently",
        "export the whole model in one type (model.half()), or write the casts: labkit.quantize.to_fp16(src, dst)",
    ),
    (r"Plugin not found|plugin creator .* was not found", "an operator TensorRT does not have", PLUGIN),
    (r"^false$", "an operator TensorRT does not have", PLUGIN),
    (
        r"Failed to convert ONNX dat[ae] type|Unsupported ONNX data type",
        "a data type TensorRT does not have",
        "do that part (text, for example) before the model, in Python",
    ),
    (
        r"Failed to parse the ONNX model|Network must have at least one output",
        "the file is not a whole ONNX model",
        "export it again: labkit.export.to_onnx",
    ),
    (
        r"no optimization profile|missing dimensions in profile",
        "a dimension may vary, and no optimisation profile says between which values",
        "build(path, Settings(batches=((1, 8, 64),))): smallest, usual and largest batch",
    ),
    (
        r"Invalid optimization profiles|MIN<=OPT<=MAX",
        "an optimisation profile out of order",
        "give smallest, usual and largest batch, in this order",
    ),
    (
        r"Dimension mismatch for tensor .* and profile",
        "an optimisation profile that contradicts a fixed dimension of the model",
        "let only the batch vary in the profile",
    ),
    (
        r"OutOfMemory|Requested size was|workspace limit",
        "the memory limit is below what the network needs for its intermediate results",
        "raise Settings(workspace_bytes=...), or lower the largest batch of the profile",
    ),
    (
        r"FP32 GEMM is not supported",
        "SM75 (Turing) has no fp32 matrix product in TensorRT-RTX",
        "build this model in FP16, or leave SM75 out of the targets",
    ),
    (
        r"HW-specific datatypes: (\w+)",
        "a number format that one of the target GPUs does not have",
        "leave that GPU out of the targets (bf16 and fp8 need SM80 and SM89 or newer), or use FP16",
    ),
)


@dataclass(frozen=True)
class Problem:
    """One complaint of the parser: the ONNX node, its operator, and what was said."""

    node: str
    operator: str
    said: str

    def text(self):
        where = f"node {self.node!r} ({self.operator}): " if self.node or self.operator else ""
        return where + (meaning(self.said) or essence(self.said))


def rejected(name, problems):
    """The LabError of a graph that the parser refused. `name` is the file's."""
    first = problems[0]
    return LabError(
        f"TensorRT rejects {name}.",
        expected="operators, types and quantization that TensorRT has",
        found="; ".join(problem.text() for problem in problems[:3]) + more(problems),
        fix=fix(first.said) or "look at this node with `labkit view`, and export it another way",
    )


def failed(name, messages):
    """The LabError of a build that failed after parsing. `messages` are the errors TensorRT logged, oldest first."""
    known = [message for message in messages if fix(message)]
    chosen = (known or messages or ["no reason was given"])[0]
    return LabError(
        f"TensorRT cannot build {name}.",
        found=meaning(chosen) or essence(chosen),
        expected="a network that the chosen GPUs, memory limit and profile can hold",
        fix=fix(chosen)
        or "build once more with fewer targets and without a memory limit, to see which one is too much",
    )


def meaning(message):
    """What a message means, in words, or None when it is not known."""
    return next((means for pattern, means, _ in FIXES if re.search(pattern, message)), None)


def fix(message):
    """What to do about it, or None."""
    return next((todo for pattern, _, todo in FIXES if re.search(pattern, message)), None)


def essence(message):
    """A message without source files, line numbers and what the missing driver adds."""
    lines = [line for line in message.splitlines() if "catchCudaError" not in line]
    text = " ".join(re.sub(r"\(?In \w+ at \S+\)?", "", line).strip() for line in lines)
    return text[:300].strip(" (") or message[:300]


def more(problems):
    return f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
