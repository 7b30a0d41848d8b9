"""Every TensorRT name the code uses is in the bindings of TensorRT 10.16 and 11 and in the
installed TensorRT-RTX.
"""

import ast
from pathlib import Path

import pytest

from labkit.files import root

PACKAGE = root() / "labkit" / "engines" / "tensorrt"
LIST = Path(__file__).with_name("tensorrt_api.txt")
# How the code calls its TensorRT objects, and the class each is.
OBJECTS = {
    "builder": "Builder",
    "network": "INetworkDefinition",
    "tensor": "ITensor",
    "config": "IBuilderConfig",
    "profile": "IOptimizationProfile",
    "parser": "OnnxParser",
    "error": "ParserError",
    "runtime": "Runtime",
    "engine": "ICudaEngine",
    "context": "IExecutionContext",
}
RTX_ONLY = {
    *(
        "ComputeCapability",
        "IBuilderConfig.num_compute_capabilities",
        "IBuilderConfig.set_compute_capability",
    ),
}
FILES = {"builder.py": set(OBJECTS), "run.py": {"engine", "context", "runtime"}}


def names_used(source, objects):
    """TensorRT names in a source text, such as "IBuilderConfig.set_flag" or
    "MemoryPoolType.WORKSPACE".
    """
    for node in ast.walk(ast.parse(source)):
        parts = dotted(node)
        parts = parts[1:] if parts[:1] in (["self"], ["tensorrt"]) else parts
        if any(part.startswith("__") for part in parts[1:]):  # Python's own
            continue
        if len(parts) > 1 and parts[0] == "trt":
            yield ".".join(parts[1:3])
        elif len(parts) > 1 and parts[0] in objects:
            yield f"{OBJECTS[parts[0]]}.{parts[1]}"


def dotted(node):
    """["a", "b", "c"] of the expression a.b.c, else []."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return [*before, node.attr] if before else []
    return []


def offered():
    """{name: whether every version of the list has it}."""
    found = {}
    for line in LIST.read_text(encoding="utf-8").splitlines()[1:]:
        owner, _, members = line.partition(":")
        found[owner.partition("@")[0]] = "@" not in owner
        for member in members.split():
            name, at, _ = member.partition("@")
            found[f"{owner.partition('@')[0]}.{name}"] = not at
    return found


USED = {
    (path.name, name)
    for path in PACKAGE.glob("*.py")
    for name in names_used(path.read_text(encoding="utf-8"), FILES.get(path.name, set()))
}


def test_the_check_sees_the_calls():
    seen = {name for _, name in USED}
    assert {"Builder", "OnnxParser", "IBuilderConfig.add_optimization_profile"} <= seen
    assert {"IExecutionContext.execute_async_v3", "Runtime", "ICudaEngine.get_tensor_dtype"} <= seen
    assert len(seen) >= 40


@pytest.mark.parametrize(("file", "name"), sorted(USED))
def test_a_name_exists_in_tensorrt_10_16_and_11(file, name):
    assert offered().get(name) or name in RTX_ONLY or name.split(".")[0] in RTX_ONLY, (
        f"{name} in {file}"
    )


@pytest.mark.parametrize("name", sorted({name for _, name in USED}))
def test_a_name_exists_in_the_installed_tensorrt_rtx(name):
    trt = pytest.importorskip("tensorrt_rtx_bindings", exc_type=ImportError)
    owner, _, member = name.partition(".")
    assert hasattr(getattr(trt, owner), member) if member else hasattr(trt, owner)


@pytest.mark.parametrize(
    "source",
    [
        "config.set_flag(trt.BuilderFlag.FP16)",
        "trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH",
        "config.int8_calibrator = 1",
        "context.execute_async_v2()",
    ],
)
def test_a_call_that_newer_versions_lost_is_noticed(source):
    known = offered()
    assert not all(known.get(name) for name in names_used(source, set(OBJECTS)))
