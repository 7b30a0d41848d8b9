"""Commands for networks as ONNX files: view."""

from pathlib import Path
from typing import Annotated

import typer

from labkit.cli.app import app, shown


@app.command()
def view(
    models: Annotated[list[Path], typer.Argument(help="ONNX files; several stand side by side.")],
    save: Annotated[Path | None, typer.Option(help="Write the page to this file instead of serving it.")] = None,
    port: Annotated[int, typer.Option(help="A port of this machine; any free one when not given.")] = 0,
    minutes: Annotated[float, typer.Option(help="End when nobody asked for the page so long.")] = 30,
    browser: Annotated[bool, typer.Option(help="Open a browser tab, where there is a display.")] = True,
):
    """Draw ONNX files with netron, offline: served to this machine only, or written to one file.

    Example: labkit view model.onnx quantized.onnx
    """
    from labkit.files import atomic
    from labkit.netron_view import open_tab, serve, whole_page

    if save:
        with atomic(save) as temporary:
            temporary.write_bytes(whole_page(*models))
        typer.echo(shown(save))
        return
    with serve(*models, port=port, idle_seconds=60 * minutes) as server:
        typer.echo(server.url)
        typer.echo(f"To look from another machine, first: ssh -L {server.port}:127.0.0.1:{server.port} THIS-MACHINE")
        typer.echo("Ctrl-C ends it; a page that is open stays.")
        if browser:
            open_tab(server.url)
        try:
            server.thread.join()
        except KeyboardInterrupt:
            typer.echo("\nEnded.")
