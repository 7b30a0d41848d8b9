"""Run a server in this process, or start one in a process of its own."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from labkit import device
from labkit.errors import LabError, require_known

if TYPE_CHECKING:
    from labkit.serve.server import Limits

MODELS = ("decoder-medium", "decoder-small", "random")


def run(
    model: str,
    *,
    host: str,
    port: int,
    limits: "Limits",
    threads: int | None,
    cores: Sequence[int],
) -> None:
    """Run a server until Ctrl-C or SIGTERM.

    model    one of `MODELS`; "random" has 76 million random weights, for measuring times
    host     address to listen on, such as "127.0.0.1"
    port     port to listen on; 0: any free port
    limits   the `Limits` of the server
    threads  threads of torch; None: torch's default
    cores    cores on which the process may run; (): all
    Raises   LabError for an unknown model, and for a `host` that needs a token (`Server.listen`);
             the environment variable LABKIT_SERVE_TOKEN holds the token
    """
    require_known(model, MODELS, "model to serve")
    pin(cores)
    from labkit.models.decoder import decoder_large, packed
    from labkit.models.trained import trained
    from labkit.serve.server import Server

    if model == "random":
        decoder = decoder_large()
    else:
        decoder, _ = trained(model)
    server = Server(
        packed(decoder),
        name=model,
        limits=limits,
        token=os.environ.get("LABKIT_SERVE_TOKEN") or None,
    )

    def say_where(address):
        print(f"{model} on {address}; Ctrl-C ends it", flush=True)

    # The event loop ends when a signal sets the event.
    async def until_stopped():
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for stop_signal in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(stop_signal, stop.set)
        await server.listen(host, port, stop=stop, ready=say_where)

    with device.using_threads(threads or device.threads()):
        asyncio.run(until_stopped())
    print("ended", flush=True)


def pin(cores):
    """Restrict this process to some cores, on Linux; () changes nothing."""
    if cores:
        os.sched_setaffinity(0, cores)


@contextlib.contextmanager
def running(
    model: str = "decoder-medium", *, cores: Sequence[int] = (), **settings: Any
) -> Iterator[str]:
    """Run a server in a process of its own while a `with` block runs; yield the server's address.

    The server has a free port and needs no token.

    model     one of `MODELS`
    cores     cores on which the server may run; (): all
    settings  options of `labkit serve`, such as rows=4, threads=1
    Raises    LabError where the server does not start
    """
    options = [f"--{name}={value}" for name, value in settings.items()]
    options += [f"--core={core}" for core in cores]
    command = [
        sys.executable,
        "-m",
        "labkit.cli",
        "serve",
        "--model",
        model,
        "--port",
        "0",
        *options,
    ]
    environment = {
        name: value for name, value in os.environ.items() if name != "LABKIT_SERVE_TOKEN"
    }
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=environment, text=True, start_new_session=True
    ) as process:
        try:
            first_line = process.stdout.readline()  # type: ignore[union-attr]
            if " on http" not in first_line:
                raise LabError(
                    "The server did not begin.",
                    found=first_line.strip() or f"exit code {process.wait()}",
                )
            yield first_line.split(" on ")[1].split(";")[0]
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
