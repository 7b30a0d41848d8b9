"""Lets one submitted ONNX file answer the exam, in a process of its own.

The exam is a set of pictures to classify. The process checks the file, loads it beside the
reference network, and lets both answer.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

from labkit import engines
from labkit.capstone.gates import require_plain
from labkit.capstone.order import SHAPE
from labkit.errors import LabError
from labkit.export.gate import parsed, precision_of
from labkit.export.inspection import MEMORY, inspect, limit_memory
from labkit.export.runtime import answers as answers_of
from labkit.export.runtime import session as export_session
from labkit.measure.noise import other_threads_s

BATCH = 32  # pictures per call where calls are not timed
WARM_UP_CALLS = 10  # calls before the first timed one
EMPTY_NETWORK = """<ir_version: 9, opset_import: ["" : 20]>
empty (float[N, 1, 28, 28] picture) => (float[N, 10] answer)
<int64[1] first = {0}, int64[1] last = {10}, int64[1] axis = {1}>
{ flat = Flatten (picture) answer = Slice (flat, first, last, axis) }"""


@dataclass(frozen=True)
class Answers:
    """The answers and the times of a submitted file, measured in the process of the file.

    precision   the number format of the file's weights, such as "int8"
    times       {name of a session: (rounds,) seconds of computing per call}. The "submission" is
                the file; "reference" and "again" are two sessions of the reference network, whose
                difference is noise; "floor" is a network that computes nothing
    single      (rounds, 10) the submission's answers to the timed pictures, one picture per call
    batched     (2 n, 10) the submission's answers to all pictures, in batches
    as_written  (rounds, 10) answers to the timed pictures by the file in ONNX Runtime without graph
                optimizations
    """

    precision: str
    times: dict[str, list[float]]
    single: np.ndarray
    batched: np.ndarray
    as_written: np.ndarray


def answer_exam(
    path: Path, engine: str, *, reference: Path, pictures: Any, timed: Any, seed: int
) -> Answers:
    """Check a file, load it into its engine, and let it answer the exam. Returns `Answers`.

    The judge calls this in the process of the file.

    path       path of the submitted file; nothing else lies in its folder
    engine     name of the engine, such as "onnxruntime"
    reference  path of the reference network
    pictures   float32 (2 n, 1, 28, 28)
    timed      (rounds,) positions of the pictures that are also asked one per call, with the clock
               running
    seed       seed of the order in which the sessions take turns
    Raises     LabError where the file is not a plain network from (N, 1, 28, 28) to (N, 10)
    """
    openers = _openers(engine)
    if path.suffix == ".gz":
        path = _decoded(path)
    model = parsed(path)
    require_plain(model)
    inspect(path)  # from here on memory is limited
    precision = precision_of(model)

    # Load the file, two sessions of the reference network and one of the empty network, and ask.
    # The floor is measured in ONNX Runtime for every file: where the calls of another engine start
    # slowly, that counts.
    empty = path.with_name("floor.onnx")
    onnx.save(empty_network(), empty)
    sessions = {"submission": openers["submission"](path, precision)}
    for name, file in {"reference": reference, "again": reference, "floor": empty}.items():
        sessions[name] = openers["beside it"](file, "fp32")
    times, single = take_turns(sessions, pictures[timed], seed)
    as_written = _by_runtime(path, level="none")
    return Answers(
        precision,
        times,
        single,
        batched=in_batches(sessions["submission"], pictures),
        as_written=in_batches(as_written, pictures[timed]),
    )


def _decoded(path):
    """Decode a file that `labkit.compress.save` wrote. Returns the path of the ONNX file."""
    from labkit import compress

    limit_memory(MEMORY)
    model = compress.load(path)
    path = path.with_suffix("")
    path.write_bytes(model.SerializeToString())
    return path


def _openers(engine):
    """Return {"submission": function, "beside it": function}: two functions that open a network.

    "submission" opens the submitted file in its engine. "beside it" opens a network that the file
    is compared with, in ONNX Runtime. Each function takes a path and a precision, and returns a
    function from arrays (N, 1, 28, 28) to answers (N, 10).

    A submission for ONNX Runtime is called without torch, because the import of torch takes longer
    than the exam. The sessions of another engine take tensors of torch. Then ONNX Runtime is called
    through torch as well, so that a call costs the same on both sides.

    engine  name of the submission's engine
    """
    if engine == "onnxruntime":
        return {"submission": _by_runtime, "beside it": _by_runtime}
    import torch  # before the memory of this process is limited

    torch.set_num_threads(1)
    example = torch.zeros(1, *SHAPE)

    def by_engine(name, path, precision):
        session = engines.get(name).load(path, example, precision=precision, threads=1)
        return on_arrays(session)

    return {
        "submission": partial(by_engine, engine),
        "beside it": partial(by_engine, "onnxruntime"),
    }


def _by_runtime(path, precision=None, level="all"):
    """Open a file in ONNX Runtime, on one thread.

    path       path of the ONNX file
    precision  not used; every function that opens a network takes it
    level      graph optimizations of ONNX Runtime: "all" or "none"
    returns    a function from arrays (N, 1, 28, 28) to answers (N, 10)
    """
    session = export_session(path, level, threads=1)
    return lambda pictures: answers_of(session, pictures)[0]


def empty_network() -> onnx.ModelProto:
    """Return a network from (N, 1, 28, 28) to (N, 10) that computes nothing.

    Its answer is the first ten pixels of the picture.
    """
    return onnx.parser.parse_model(EMPTY_NETWORK)


def take_turns(sessions, pictures, seed):
    """Ask every session every picture, one per call, and time the calls.

    In each round all sessions get the same picture, in random order.

    sessions  {name: function from an array (1, 1, 28, 28) to an answer (1, 10)}; one name is
              "submission"
    pictures  float32 (rounds, 1, 28, 28)
    seed      seed of the random orders
    returns   ({name: [seconds of computing of each call]}, answers (rounds, 10) of the submission)
    """
    times = {name: [] for name in sessions}
    single = []
    for session in sessions.values():
        for _ in range(WARM_UP_CALLS):
            session(pictures[:1])

    # In each round every session answers the same picture, in random order.
    rng = np.random.default_rng(seed)
    for picture in pictures[:, None]:
        for name in rng.permutation(list(sessions)):
            # The clock of computing stands still while other programs have the core.
            other_threads_start = other_threads_s()
            start = time.thread_time()
            answer = sessions[name](picture)
            own_thread_s = time.thread_time() - start
            times[name].append(own_thread_s + other_threads_s() - other_threads_start)
            if name == "submission":
                single.append(np.array(answer[0]))  # an engine may use its memory again
    return times, np.array(single)


def on_arrays(session):
    """Return a function of NumPy arrays that calls the session of an engine.

    session  function from a tensor (N, 1, 28, 28) to a tensor (N, 10)
    """
    import torch

    return lambda pictures: session(torch.from_numpy(pictures)).numpy()


def in_batches(answer: Callable, pictures: np.ndarray) -> np.ndarray:
    """Return the answers (N, 10) to all pictures, asked `BATCH` at a time.

    answer    function from an array (n, 1, 28, 28) to answers (n, 10)
    pictures  float32 (N, 1, 28, 28)
    Raises    LabError where a batch of n pictures does not get n answers
    """
    answers = []
    for batch in np.array_split(pictures, math.ceil(len(pictures) / BATCH)):
        rows = np.array(answer(batch))  # an engine may use its memory again
        if len(rows) != len(batch):
            raise LabError(
                "A batch is answered in part.", found=f"{len(batch)} pictures, {len(rows)} answers"
            )
        answers.append(rows)
    return np.concatenate(answers)
