"""Submissions that must not get a medal: `CHEATS` look better than they are, `HOSTILE` do harm.

Each is made from a small honest one: a linear classifier. `make_all(folder)` writes them and says what the reason of
each refusal must hold.
"""

import base64
import functools
import textwrap

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from labkit.data import load

SHAPE = ["batch", 1, 28, 28]


@functools.cache
def linear():
    """(784, 10) weights and (10,) shifts of a linear classifier, by least squares."""
    images, labels = pixels("train", 4000)
    rows = np.hstack([images, np.ones((len(images), 1), np.float32)])
    target = np.eye(10, dtype=np.float32)[labels]
    found = np.linalg.solve(rows.T @ rows + 300 * np.eye(785), rows.T @ target).astype(np.float32)
    return found[:-1], found[-1]


def pixels(split, count=None):
    """((n, 784) float32 as a network sees them, (n,) labels)."""
    data = load("fashion-mnist", split, limit=count)
    return np.concatenate([batch.flatten(1).numpy() for batch, _ in data.batches(1000)]), data.labels.numpy()


def graph(nodes, tensors, *, opset=20):
    """A model from `pictures` to `logits`."""
    given = [helper.make_tensor_value_info("pictures", TensorProto.FLOAT, SHAPE)]
    answered = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])]
    kept = [numpy_helper.from_array(np.asarray(values), name) for name, values in tensors.items()]
    made = helper.make_graph([helper.make_node(kind, *ports, **more) for kind, *ports, more in nodes], "net", given,
                             answered, kept)  # fmt: skip
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def honest(last="logits"):
    """The nodes and tensors of the linear classifier."""
    weight, shift = linear()
    nodes = [("Flatten", ["pictures"], ["flat"], {}), ("Gemm", ["flat", "weight", "shift"], [last], {})]
    return nodes, {"weight": weight, "shift": shift}


def honest_file():
    return graph(*honest())


def thumbnails():
    """The labels of the nearest test image, by thumbnails of 7 x 7: it holds the test set."""
    images, labels = pixels("test")
    small = images.reshape(-1, 7, 4, 7, 4).mean((2, 4)).reshape(-1, 49)
    nodes = [
        ("AveragePool", ["pictures"], ["small"], {"kernel_shape": [4, 4], "strides": [4, 4]}),
        ("Flatten", ["small"], ["flat"], {}),
        ("Gemm", ["flat", "known", "half"], ["near"], {}),
        ("ArgMax", ["near"], ["which"], {"axis": 1, "keepdims": 0}),
        ("Gather", ["labels", "which"], ["logits"], {"axis": 0}),
    ]
    half = -(small**2).sum(1) / 2
    return graph(nodes, {"known": small.T.copy(), "half": half, "labels": np.eye(10, dtype=np.float32)[labels]})


def exact_matches():
    """The linear classifier; but a picture that is a test image, bit for bit, gets the label that is stored."""
    images, labels = pixels("test")
    marks = np.random.default_rng(0).normal(size=(784, 6)).astype(np.float32) / 28
    known = images @ marks
    nodes, tensors = honest("plain")
    nodes += [
        ("MatMul", ["flat", "marks"], ["mark"], {}),
        ("Gemm", ["mark", "known", "half"], ["near"], {}),
        ("ArgMax", ["near"], ["which"], {"axis": 1, "keepdims": 0}),
        ("Gather", ["rows", "which"], ["closest"], {"axis": 0}),
        ("Sub", ["mark", "closest"], ["off"], {}),
        ("ReduceL2", ["off", "last"], ["distance"], {"keepdims": 1}),
        ("Less", ["distance", "close"], ["same"], {}),
        ("Gather", ["labels", "which"], ["stored"], {"axis": 0}),
        ("Where", ["same", "stored", "plain"], ["logits"], {}),
    ]
    tensors |= {"marks": marks, "known": known.T.copy(), "half": -(known**2).sum(1) / 2, "rows": known}
    tensors |= {"last": np.array([1]), "close": np.float32(0.05), "labels": 5 * np.eye(10, dtype=np.float32)[labels]}
    return graph(nodes, tensors)


def at_random():
    nodes, tensors = honest("plain")
    nodes += [("RandomUniformLike", ["plain"], ["dice"], {}), ("Add", ["plain", "dice"], ["logits"], {})]
    return graph(nodes, tensors)


def first_for_all():
    """Every picture of a batch gets the answer of the first one."""
    nodes, tensors = honest("plain")
    nodes += [
        ("Gather", ["plain", "zero"], ["first"], {"axis": 0}),
        ("Shape", ["plain"], ["sides"], {}),
        ("Expand", ["first", "sides"], ["logits"], {}),
    ]
    return graph(nodes, tensors | {"zero": np.array([0])})


def by_the_picture():
    """Another branch for some pictures."""
    nodes, tensors = honest("plain")
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, ["batch", 10])
    steps = {kind: [helper.make_node(kind, ["plain"], ["out"])] for kind in ("Relu", "Neg")}
    branch = [helper.make_graph(each, kind, [], [out]) for kind, each in steps.items()]
    nodes += [
        ("ReduceMax", ["plain"], ["most"], {"keepdims": 0}),
        ("Greater", ["most", "one"], ["go"], {}),
        ("If", ["go"], ["logits"], {"then_branch": branch[0], "else_branch": branch[1]}),
    ]
    return graph(nodes, tensors | {"one": np.float32(1)})


def constant_file():
    nodes, tensors = honest()
    return graph(nodes, {name: 0 * values if name == "weight" else values for name, values in tensors.items()})


MAKE = """
import base64, threading, time, zlib
import numpy as np
import onnxruntime

def make(folder):
    (folder / "model.onnx").write_bytes(base64.b64decode(DATA))
    return "own"

def opened(path):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda pictures: session.run(None, {"pictures": pictures})[0]
"""


def source(serve):
    """A source whose `make` writes the honest file, and whose `serve` is another engine."""
    data = base64.b64encode(honest_file().SerializeToString()).decode()
    return f"{MAKE}\nDATA = {data!r}\n{textwrap.dedent(serve)}"


def known_answers():
    """Answers to the test images computed before, found by a checksum; the file answers what is not known."""
    images, labels = pixels("test")
    import zlib

    table = {zlib.crc32(image.tobytes()): int(label) for image, label in zip(images, labels, strict=True)}
    return source(f"""
        TABLE = {table!r}
        def serve(path):
            answer = opened(path)
            def call(pictures):
                found = answer(pictures)
                for row, picture in zip(found, pictures):
                    label = TABLE.get(zlib.crc32(picture.tobytes()))
                    if label is not None:
                        row[:] = 0
                        row[label] = 9
                return found
            return call
        """)


SERVES = {
    "a batch in part, the rest zeros": ("answered in part", """
        def serve(path):
            answer = opened(path)
            def call(pictures):
                found = np.zeros((len(pictures), 10), np.float32)
                found[:4] = answer(pictures[:4])
                return found
            return call
        """),
    "a batch in part, fewer rows": ("answered in part", """
        def serve(path):
            answer = opened(path)
            return lambda pictures: answer(pictures[:4])
        """),
    "an answer that is filled in later": ("timed without synchronisation", """
        def serve(path):
            answer = opened(path)
            def call(pictures):
                found = np.zeros((len(pictures), 10), np.float32)
                def fill():
                    time.sleep(0.0005)
                    found[:] = answer(pictures)
                threading.Thread(target=fill).start()
                return found
            return call
        """),
    "a promise": ("not with finished", """
        class Later(np.ndarray):
            pass
        def serve(path):
            answer = opened(path)
            return lambda pictures: answer(pictures).view(Later)
        """),
    "constant": ("same whatever", """
        def serve(path):
            return lambda pictures: np.tile(np.arange(10, dtype=np.float32), (len(pictures), 1))
        """),
    "another network where it is timed": ("Single pictures", """
        def serve(path):
            answer = opened(path)
            return lambda p: answer(p) if len(p) > 1 else -p.reshape(1, -1)[:, :10].copy()
        """),
    "another network after a while": ("different network per call", """
        asked = [0]
        def serve(path):
            answer = opened(path)
            def call(pictures):
                asked[0] += len(pictures)
                return answer(pictures) if asked[0] < 300 else -answer(pictures)
            return call
        """),
    "the answer of the last call": ("something else", """
        def serve(path):
            answer, last = opened(path), [None]
            def call(pictures):
                found = answer(pictures)
                kept, last[0] = last[0], found
                return np.resize(found if kept is None else kept, found.shape).astype(np.float32)
            return call
        """),
    "a thread that works between the calls": ("outside the timed region", """
        def serve(path):
            def work():
                while True:
                    np.linalg.svd(np.random.rand(60, 60))
            threading.Thread(target=work, daemon=True).start()
            return opened(path)
        """),
    "pictures that it remembers": ("", """
        def slowly(answer, pictures):
            end = time.thread_time() + 0.005
            while time.thread_time() < end:
                pass
            return answer(pictures)
        def serve(path):
            answer, seen = opened(path), {}
            def call(pictures):
                missing = [p for p in pictures if p.tobytes() not in seen]
                if missing:
                    seen.update(zip([p.tobytes() for p in missing], slowly(answer, np.array(missing))))
                return np.array([seen[p.tobytes()] for p in pictures])
            return call
        """),
    "its own clock": ("", """
        def serve(path):
            time.perf_counter = time.monotonic = time.time = lambda: 0.0
            answer = opened(path)
            def call(pictures):
                end = time.thread_time() + 0.005
                while time.thread_time() < end:
                    pass
                return answer(pictures)
            return call
        """),
}  # fmt: skip
FILES = {
    "labels of the nearest test image": ("labels of test images|answers of the test images", thumbnails),
    "labels of exact test images": ("labels of test images|answers of the test images", exact_matches),
    "at random": ("different network per call", at_random),
    "the first answer for a whole batch": ("another answer when it is asked again", first_for_all),
    "a branch for some pictures": ("chooses its way", by_the_picture),
    "a constant in the file": ("same whatever", constant_file),
}


def cheats(folder):
    """{what it does: (path, engine, what the reason must hold)}; an empty reason: its own clock is of no use to it."""
    found = {}
    for number, (name, (says, make)) in enumerate(FILES.items()):
        path = folder / f"cheat{number}.onnx"
        onnx.save(make(), path)
        found[name] = (path, "onnxruntime", says)
    texts = {name: (says, source(serve)) for name, (says, serve) in SERVES.items()}
    texts["answers known before"] = ("answered from memory", known_answers())
    for number, (name, (says, text)) in enumerate(texts.items()):
        path = folder / f"cheat{number}.py"
        path.write_text(text, encoding="utf-8")
        found[name] = (path, None, says)
    return found


EVERY_PIPE = "import contextlib, os\nfor n in range(3, 40):\n    with contextlib.suppress(OSError): os.write(n, "
MAKES = {
    "writes outside": ("write a file outside", "open(TARGET, 'w').write('x')"),
    "writes outside, by the system": ("", "import ctypes; ctypes.CDLL(None).open(TARGET.encode(), 0o101, 0o644)"),
    "removes a file": ("change a file outside", "import os; os.remove(KEPT)"),
    "opens a socket": ("open a socket", "import socket; socket.create_connection(('127.0.0.1', 9), 1)"),
    "opens a socket, by the system": ("", "import ctypes; assert ctypes.CDLL(None).socket(2, 1, 0) < 0; 1 / 0"),
    "forks": ("fork", "import os; os.fork()"),
    "forks, by the system": ("", "import ctypes; [ctypes.CDLL(None).fork() for _ in range(9)]; 1 / 0"),
    "starts a process": ("start a process", "import subprocess; subprocess.run(['sh', '-c', 'echo'])"),
    "sleeps": ("did not answer", "import time; time.sleep(1000)"),
    "computes for ever": ("did not answer", "while True: pass"),
    "exits": ("process ended", "import os; os._exit(0)"),
    "raises SystemExit": ("SystemExit", "raise SystemExit(0)"),
    "crashes": ("process ended", "import ctypes; ctypes.string_at(0)"),
    "allocates": ("MemoryError", "x = bytearray(200 * 2**30)"),
    "writes without end": ("OSError", "f = open(folder / 'x', 'wb')\nwhile True: f.write(bytes(2**24))"),
    "kills its parent": ("send a signal", "import os; os.kill(os.getppid(), 9)"),
    "kills its parent, by the system": ("", "import ctypes, os; ctypes.CDLL(None).kill(os.getppid(), 9); 1 / 0"),
    "reads the test images": ("PermissionError", "open(TEST, 'rb').read()"),
    "fills every pipe": ("", EVERY_PIPE + "b'\\xff' * 999)"),
    "forges an answer": ("", EVERY_PIPE + "b'\\x05\\x00\\x00\\x00[[1]]')"),
    "closes every pipe": ("process ended", "import os\nos.closerange(3, 99)"),
    "writes nothing": ("must write model.onnx", "return 'onnxruntime'"),
    "is no Python": ("SyntaxError", "this is (no Python"),
    "recurses": ("RecursionError", "f = lambda: f()\nf()"),
    "wants an engine that is none": ("no engine", "(folder / 'model.onnx').write_bytes(DATA)\nreturn '../../evil'"),
    "leaves a link": ("", "import os\nos.symlink('/etc/passwd', folder / 'model.onnx')\nreturn 'onnxruntime'"),
    "leaves a pipe": ("", "import os\nos.mkfifo(folder / 'model.onnx')\nreturn 'onnxruntime'"),
}  # fmt: skip


def hostile(folder, *, test_images):
    """{what it does: (path, engine, what the reason must hold)}; `folder / "kept"` must be whole afterwards."""
    (folder / "kept").write_text("kept", encoding="utf-8")
    found, data = {}, honest_file().SerializeToString()
    for number, (name, (says, body)) in enumerate(MAKES.items()):
        path = folder / f"hostile{number}.py"
        places = tuple(map(str, (folder / "out", folder / "kept", test_images)))
        lines = f"TARGET, KEPT, TEST, DATA = {(*places, data)!r}\ndef make(folder):\n{textwrap.indent(body, '    ')}\n"
        path.write_text(lines, encoding="utf-8")
        found[name] = (path, None, says)
    return found
