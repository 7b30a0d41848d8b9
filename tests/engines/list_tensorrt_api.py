"""Writes tensorrt_api.txt: every name the real TensorRT bindings offer, by version. Run it when a
new version matters:

    python tests/engines/list_tensorrt_api.py 10.16.1.11 11.4.0.106

It downloads the wheels of the bindings (2 MB each), compiles an empty stand-in for the libraries
they link (nine C symbols), imports the bindings on it, and lists their classes, members and
signatures. No GPU and no library is needed.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

SYMBOLS = (
    *("createInferBuilder_INTERNAL", "createInferRefitter_INTERNAL", "createInferRuntime_INTERNAL"),
    *(
        "createNvOnnxParserRefitter_INTERNAL",
        "createNvOnnxParser_INTERNAL",
        "getNvOnnxParserVersion",
    ),
    *("getBuilderPluginRegistry", "getPluginRegistry", "initLibNvInferPlugins"),
)
LIBRARIES = ("nvinfer", "nvinfer_plugin", "nvonnxparser")
LISTING = """
import tensorrt_bindings as trt
for name in dir(trt):
    thing = getattr(trt, name)
    layers = name.startswith("I") and name.endswith("Layer") and name != "ILayer"
    if name.startswith("_") or type(thing).__name__ == "module" or layers or "Plugin" in name:
        continue
    print(name)
    if isinstance(thing, type):
        print(*(f"{name}.{member}" for member in dir(thing) if not member.startswith("_")), sep="\\n")
"""


def names(version, folder):
    """The public names of one version of the bindings, such as "Builder.create_network", sorted."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
    subprocess.run([*command, f"tensorrt-cu13-bindings=={version}"], check=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(folder)
    code = "".join(f"void {symbol}(void) {{}}\n" for symbol in SYMBOLS)
    for library in LIBRARIES:
        file = f"lib{library}.so.{version.split('.')[0]}"
        compiler = [
            "gcc",
            "-shared",
            "-fPIC",
            "-x",
            "c",
            "-",
            "-o",
            str(folder / file),
            f"-Wl,-soname,{file}",
        ]
        subprocess.run(compiler, input=code, text=True, check=True)
    places = {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", LISTING],
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted({line for line in done.stdout.split() if line})


def main(versions):
    """Write the list of the names of these versions."""
    having = {}
    for version in versions:
        with tempfile.TemporaryDirectory() as folder:
            for name in names(version, Path(folder)):
                having.setdefault(name, []).append(version)
    target = Path(__file__).with_name("tensorrt_api.txt")
    target.write_text("\n".join(lines(having, versions)) + "\n", encoding="utf-8")
    print(f"{len(having)} names in {target.name}")


def lines(having, versions):
    """`Class: member member@version ...`, a line a class; a name that some versions lack says
    which have it.
    """
    classes = {}
    for name, found in sorted(having.items()):
        where = "" if found == list(versions) else "@" + ",".join(found)
        owner, _, member = name.partition(".")
        classes.setdefault(owner, []).append(member + where)
    yield f"# the names of tensorrt-cu13-bindings {' '.join(versions)}, by list_tensorrt_api.py"
    for owner, members in classes.items():
        yield f"{owner}{members[0]}: {' '.join(members[1:])}".rstrip(" :")


if __name__ == "__main__":
    main(sys.argv[1:])
