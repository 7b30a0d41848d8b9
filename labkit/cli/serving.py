"""The command `serve`, which serves a decoder over HTTP."""

from typing import Annotated

from typer import Option

from labkit.cli.app import app


@app.command()
def serve(
    model: Annotated[
        str, Option(help="decoder-medium or decoder-small, which come trained, or random.")
    ] = "decoder-medium",
    host: Annotated[
        str, Option(help="Another than 127.0.0.1 needs a token in LABKIT_SERVE_TOKEN.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="0: a free one.")] = 8017,
    rows: Annotated[int, Option(min=1, max=256, help="Texts that are written at once.")] = 16,
    waiting: Annotated[
        int, Option(min=1, help="Requests that may wait; more are turned away.")
    ] = 64,
    threads: Annotated[
        int | None, Option(min=1, help="CPU threads; as many as torch uses by default.")
    ] = None,
    core: Annotated[list[int], Option(help="Run on these cores only, repeatable (Linux).")] = (),
):
    """Serve a decoder to many users over HTTP.

    It listens on this machine only. A client of the OpenAI package works as it is, with
    OpenAI(base_url="http://127.0.0.1:8017/v1", api_key="none").completions.create(model=...,
    prompt=...). What the server cannot do (chat, logprobs, suffix, penalties, a logit_bias) it
    refuses in words. Ctrl-C ends it.

    Example: labkit serve --model decoder-medium --port 8017
    """
    from labkit.serve import run
    from labkit.serve.server import Limits

    limits = Limits(rows=rows, waiting=waiting)
    run(model, host=host, port=port, limits=limits, threads=threads, cores=core)
