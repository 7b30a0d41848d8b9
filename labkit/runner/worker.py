"""Has papermill execute one notebook, in a process of its own, and tells the batch about each cell.

Called as `python -m labkit.runner.worker JSON`. Every line on standard output is the state as JSON: `total`, `started`
and `done` count code cells. The last line has `error`, why the run does not count, or null.
"""

import ctypes
import json
import os
import sys
from contextlib import suppress

import psutil

START_TIMEOUT_S = 120
PR_SET_CHILD_SUBREAPER = 36


def main(text):
    """Run one notebook.

    text  JSON: options of `papermill.execute_notebook` and of our engine
    """
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")  # the kernel does not inherit it
    os.dup2(2, 1)  # whatever prints from here on goes to the log
    with suppress(AttributeError):  # Linux: children whose parent died become children of this process, none slips away
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def tell(state):
        print(json.dumps(state), file=channel, flush=True)

    error = _execute(json.loads(text), tell)
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()
    tell({"error": error})


def _execute(told, tell):
    """Execute the notebook; returns why the run does not count, or None."""
    # jsonschema would build a grammar for international web addresses, half of a worker's start; none is checked.
    sys.modules.setdefault("rfc3987_syntax", None)
    import papermill

    from labkit.runner.engine import LessonEngine, LessonFailed

    papermill.engines.papermill_engines.register("labkit", LessonEngine)  # an older installation does not name it
    try:
        papermill.execute_notebook(
            **told,
            engine_name="labkit",
            kernel_name="python3",
            language="python",
            progress_bar=False,
            start_timeout=START_TIMEOUT_S,
            tell=tell,
        )
    except LessonFailed as problem:
        return str(problem)
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}".strip().splitlines()[0]
    return None


if __name__ == "__main__":
    main(sys.argv[1])
