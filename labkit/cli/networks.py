"""Commands for networks: view, bench, search."""

from itertools import product
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from labkit.cli.app import app, path_of, require_use
from labkit.engines import PRECISIONS, names


@app.command()
def view(
    models: Annotated[list[Path], Argument(help="ONNX files; several stand side by side.")],
    save: Annotated[
        Path | None, Option(help="The page to write; in artifacts/views when not given.")
    ] = None,
    browser: Annotated[
        bool, Option(help="Open it in a browser tab, where there is a display.")
    ] = True,
):
    """Draw ONNX files with netron, offline.

    The page holds everything, and opens in any browser.

    Example: labkit view model.onnx quantized.onnx
    """
    from labkit.files import artifacts, require_other_file, write_text
    from labkit.lesson.netron_view import open_tab, whole_page

    target = save or artifacts() / "views" / f"{'-'.join(model.stem for model in models)}.html"
    for model in models:
        require_other_file(model, target)
    write_text(target, whole_page(*models))
    echo(path_of(target))
    if browser:
        open_tab(target.resolve().as_uri())


@app.command()
def bench(
    model: Annotated[
        list[str],
        Argument(help="A network of the course, such as cnn-large, or an .onnx file; or more."),
    ],
    engine: Annotated[
        list[str], Option(help=f"{', '.join(names())} or all, repeatable: several race.")
    ] = ("eager",),
    batch: Annotated[list[int], Option(min=1, max=999_999, help="Images per call, repeatable.")] = (
        1,
    ),
    precision: Annotated[
        str | None,
        Option(help=f"{', '.join(PRECISIONS)}; fp32, or what the file holds, when none is given."),
    ] = None,
    threads: Annotated[
        int | None, Option(min=1, help="CPU threads; as many as torch uses by default.")
    ] = None,
    seconds: Annotated[float, Option(help="Time for each batch size.")] = 3.0,
    data: Annotated[
        str | None,
        Option(help="Inputs that are not random: a data set, a folder of pictures, or an .npz."),
    ] = None,
    size: Annotated[
        int | None, Option(min=8, help="Pixels a side, where MODEL leaves them open.")
    ] = None,
    mean: Annotated[
        str | None, Option(help="What training subtracted from pixels, as for `labkit quantize`.")
    ] = None,
    std: Annotated[str | None, Option(help="What training then divided by, likewise.")] = None,
):
    """Measure a network's latency and throughput.

    The rows go to the ledger. An engine that answers something else than a file means gets a reason
    and no time. Several engines, or files of one network, are then timed in series in turn, beside
    a second session of the first of them: its difference is the noise floor of the ratios. Where
    calls that alternate have another ratio, it is given too. Inputs are random, without `--data`;
    what a file in INT8 keeps of the answers, `labkit quantize` says.

    Example: labkit bench resnet18.onnx resnet18-int8.onnx --engine onnxruntime --engine openvino
    --batch 1
    """
    from labkit.engines.bench import bench as bench_network
    from labkit.engines.misfit import misfits
    from labkit.engines.opening import opened
    from labkit.engines.racing import race
    from labkit.measure import Plan

    require_use(
        {"--data": data is not None}, {"--data": {"--size": size, "--mean": mean, "--std": std}}
    )
    files = [opened(name, data, size=size, mean=mean, std=std) for name in dict.fromkeys(model)]
    on_files = [network.inputs_in_words() for network in files if network.graph is not None]
    for sentence in dict.fromkeys(on_files):
        echo(sentence)
    settings = {"precision": precision, "threads": threads, "plan": Plan(seconds=seconds)}
    # Each network in each engine by itself; those with a time at the last batch size may race.
    contenders = []
    chosen = names() if "all" in engine else dict.fromkeys(engine)
    for network, engine_name in product(files, chosen):
        rows = bench_network(
            network, batch, engine=engine_name, among_others=len(chosen) > 1, **settings
        )
        for reason in misfits(network.graph, engine_name):
            echo(f"{network.name} does not fit {engine_name}: {reason}")
        for number, size in enumerate(batch, start=1):
            echo(f"{number}/{len(batch)} {network.name} {engine_name}, batch {size} ...")
            row = next(rows)
            echo(f"    {_with_noise_below(row)}")
        if row.p50_ms:
            contenders.append((network, engine_name))

    # Then all of them in turn.
    if len(contenders) > 1:
        for size, comparison in zip(batch, race(contenders, batch, **settings), strict=True):
            echo(f"in turn, batch {size}:\n{_with_noise_below(comparison)}")


def _with_noise_below(row):
    """Return the summary of a comparison, with its note on noise on a line of its own.

    row  a comparison of `race`, with the method `summary`
    """
    return row.summary().replace(" · noise: ", "\n    noise: ")


# "--dry-run" is a question, too: an option that is not one of these two is a word of it
@app.command(context_settings={"ignore_unknown_options": True})
def search(
    question: Annotated[list[str], Argument(help="What you want to know, in your own words.")],
    count: Annotated[int, Option(min=1, max=100, help="How many paragraphs to show.")] = 5,
):
    """Find what the course says about a question.

    It shows what comes nearest: paragraphs of lessons and of the pages on commands, installing and
    a network of your own, terms of the glossary, published experiments. MiniLM compares meanings,
    so the words need not be the same. The first call reads the whole course, about half a minute;
    it is read again when one of these has changed.

    Example: labkit search "why does a small batch waste the processor?"
    """
    from labkit.text import course_index

    for hit in course_index().search(" ".join(question), count):
        echo(f"{hit.cosine:.2f}  {hit.paragraph.location}\n      {hit.paragraph.text}")
