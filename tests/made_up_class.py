"""A class of thirty that hands in lessons 03 and 01: right, wrong, and everything that could
stop a grading.
"""

import json

from labkit.lesson import exercises
from labkit.lesson.syllabus import lessons

TASKS = tuple(task.id for task in exercises.of("03_what_limits_speed"))
# grading takes time
LEFT_OUT = tuple(task for task in TASKS if task not in ("image-bytes", "least-seconds"))
HEAD = "def image_bytes(images, height, width, bytes_per_value):\n"
CHECK = '\n\n\nimage_bytes = exercise("image-bytes").check(image_bytes)'
RIGHT = "return images * height * width * bytes_per_value"
FORK = (
    "import os\n    if not os.fork():\n        {}\n    return images * height * width * "
    "bytes_per_value"
)

# {student: (the body of image_bytes, the verdict, words of the reason)}
ANSWERS = {
    "ada": (RIGHT, "passed", ""),
    "bo": ("import math\n    return math.prod((images, height, width, "
           "bytes_per_value))", "passed", ""),
    "cy": ("total = bytes_per_value\n    for side in (images, height, width):\n        total *= "
           "side\n    return total",
           "passed", ""),
    "di": ("return images * height * width", "wrong", "expected 188,160,000"),
    "eve": ("return str(images)", "wrong", "expected a number"),
    "fay": ("...  # your code", "unsolved", "Nothing here yet"),
    "gus": ("raise NotImplementedError", "unsolved", "Not written yet"),
    "hal": ("while True:\n        pass", "wrong", "had not finished after"),
    "ida": ("return sum(iter(int, 1))", "wrong", "Does a call in it never end"),  # hears no signal
    "jo": ("import time\n    time.sleep(10**6)", "wrong", "What does it wait for"),
    "kim": ("return len(bytearray(30 * 2**30))", "wrong", "MemoryError"),
    "lea": ("held = []\n    while True:\n        "
            "held.append(bytes(2**26))", "wrong", "MemoryError"),
    "max": ("import sys\n    sys.exit()", "wrong", "SystemExit"),
    "ned": ("import os\n    os._exit(0)", "wrong", "ended the process"),
    "ora": (FORK.format("pass"), "passed", ""),
    "pam": (FORK.format("while True:\n            pass"), "passed", ""),
    "quy": ("while True:\n        print('?' * 10**6)", "wrong", "had not finished after"),
    "ray": ("import os\n    while True:\n        os.write(1, b'[]' * "
            "10**6)", "wrong", "had not finished"),
    "sue": ("return image_bytes(images, height, width, "
            "bytes_per_value)", "wrong", "RecursionError"),
    "tim": ("import os\n    os.kill(os.getpid(), 9)", "not graded", "stopped by a signal"),
    "uma": ("import ctypes\n    return ctypes.string_at(0)", "wrong", "ended the process"),
    "vic": ("import sys\n    print('\\ud800', file=sys.stderr)\n    return 1 / "
            "0", "wrong", "ZeroDivisionError"),
    "wim": ("return images * * 2", "wrong", "SyntaxError"),
    "xia": ("raise Exception('z' * 10**7)", "wrong", "Exception"),
}  # fmt: skip


def _page(number):
    """A notebook of the course with all exercises solved, as JSON."""
    lesson = lessons()[number]
    page = json.loads(lesson.path.read_text(encoding="utf-8"))
    for cell in page["cells"]:
        cell["source"] = exercises.fill("".join(cell["source"]))
    return lesson.path.name, page


def _without(page, *names):
    return page | {
        "cells": [
            cell for cell in page["cells"] if not {*names} & {*exercises.ids_in(cell["source"])}
        ]
    }


def _with(page, body):
    """The notebook with another answer to `image-bytes`."""
    return page | {
        "cells": [
            cell | {"source": HEAD + "    " + body + CHECK}
            if "image-bytes" in exercises.ids_in(cell["source"])
            else cell
            for cell in page["cells"]
        ]
    }


def write_class(folder, names=None):
    """Write what each student hands in: {(student, exercise): (verdict, words)} where it does
    not pass.
    """
    (first, page), (second, other) = _page(3), _page(1)
    page = _without(page, *LEFT_OUT)
    papers = {
        name: {first: json.dumps(_with(page, body))} for name, (body, _, _) in ANSWERS.items()
    }
    expected = {
        (name, "image-bytes"): (verdict, words) for name, (_, verdict, words) in ANSWERS.items()
    }
    expected |= {
        (name, task): ("missing", "its cell is gone") for name in ANSWERS for task in LEFT_OUT
    }
    papers["yan"] = {first: json.dumps(_without(page, *TASKS))}
    papers["zoe"] = {first: "{ no notebook"}
    papers["abe"] = {first: ""}
    papers["ben"] = {first: "[" * 10**6}
    papers["cleo"] = {first: json.dumps(page), "03_what_limits_speed (1).ipynb": json.dumps(page)}
    papers["don"] = {}
    expected |= {("yan", task): ("missing", "its cell is gone") for task in TASKS}
    for name, words in {
        "zoe": "JSON",
        "abe": "JSON",
        "ben": "RecursionError",
        "cleo": "Several notebooks",
    }.items():
        expected |= {(name, task): ("not graded", words) for task in TASKS}
    expected |= {("don", task): ("missing", "No notebook") for task in TASKS}
    for name in names or papers:
        for paper, text in (papers[name] | {second: json.dumps(other)}).items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / paper).write_text(text, encoding="utf-8")
    return {about: found for about, found in expected.items() if about[0] in (names or papers)}
