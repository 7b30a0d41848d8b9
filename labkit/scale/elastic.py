"""Workers that begin again when one of them dies: the agent of torchrun, on this machine.

The agent cannot save what a worker knew: `function` writes checkpoints, and begins with the newest.
"""

import contextlib
import faulthandler
import logging
import os
import signal
import tempfile
from pathlib import Path

from labkit.errors import LabError
from labkit.scale.processes import join
from labkit.train.workers import begin, context

HANDLED = [number for number in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT") if hasattr(signal, number)]


def run(function, *args, workers=2, restarts=2, deadline_s=60):
    """{rank: function(*args)} from `workers` processes under one agent, as `torchrun --max-restarts` runs a script.

    When one dies or raises, the agent ends the others and begins all of them again, `restarts` times at most. They
    can send each other tensors, like those of a `Team`.

    deadline_s  a worker that takes longer is ended
    Raises      LabError when they fail more often than that
    """
    import cloudpickle
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    with tempfile.TemporaryDirectory(prefix="labkit-elastic-") as folder, _handlers_kept(), _quiet():
        call = cloudpickle.dumps((function, args))
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=workers,
            run_id="labkit",
            rdzv_backend="c10d",
            rdzv_endpoint="127.0.0.1:0",
            local_addr="127.0.0.1",
            max_restarts=restarts,
            monitor_interval=0.1,
            start_method=context().get_start_method(),
            signals_to_handle=",".join(HANDLED),
            logs_specs=DefaultLogsSpecs(log_dir=folder),
        )
        try:
            return elastic_launch(config, _work)(call, folder, deadline_s)
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            raise LabError(
                f"The workers failed {restarts + 1} times.",
                found=f"worker {rank}: {_words(failure.message)}",
                fix="mend the function, or allow more restarts",
            ) from None


def attempt():
    """In a worker: how often they have begun again."""
    return int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def _work(call, folder, deadline_s):
    """In a worker: join the others of this attempt, and call the function that was sent."""
    import cloudpickle
    import torch.distributed as dist

    begin()
    faulthandler.dump_traceback_later(deadline_s, exit=True)
    # A file for each attempt: in the agent's own store the addresses of workers that have died can still be found.
    join(str(Path(folder) / f"meeting-{attempt()}"), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    function, args = cloudpickle.loads(call)
    answer = function(*args)
    dist.destroy_process_group()
    return answer


def _words(message):
    """What a worker raised; torch wraps it in a dictionary, where it knows more than the exit code."""
    return message.get("message", message) if isinstance(message, dict) else message


@contextlib.contextmanager
def _handlers_kept():
    """Put the signal handlers back that the agent replaces."""
    kept = {number: signal.getsignal(number) for number in (getattr(signal, name) for name in HANDLED)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _quiet():
    """Without the agent's log: a worker that dies is what it is for, and a failure is raised in words."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
