"""The command that serves a decoder: serve."""

from typing import Annotated

from typer import Option

from labkit.cli.app import app


@app.command()
def serve(
    model: str = "decoder-medium",
    host: str = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535)] = 8017,
    rows: Annotated[int, Option(min=1, max=256)] = 16,
    waiting: Annotated[int, Option(min=1)] = 64,
    threads: Annotated[int | None, Option(min=1)] = None,
    core: list[int] = (),
):
    """Serve a decoder to many users over HTTP.

    It listens on this machine only. POST /v1/completions takes JSON with prompt, max_tokens, temperature, seed, stop
    and stream. Ctrl-C ends it.

    model    decoder-medium or decoder-small, which come trained, or random.
    host     Another than 127.0.0.1 needs a token in LABKIT_SERVE_TOKEN.
    port     0: a free one.
    rows     Texts that are written at once.
    waiting  Requests that may wait; more are turned away.
    threads  CPU threads; as many as torch uses by default.
    core     Run on these cores only, repeatable (Linux).

    Example: labkit serve --model decoder-medium --port 8017
    """
    from labkit.serve import run
    from labkit.serve.server import Limits

    limits = Limits(rows=rows, waiting=waiting)
    run(model, host=host, port=port, limits=limits, threads=threads, cores=core)
