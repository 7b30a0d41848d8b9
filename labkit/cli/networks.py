"""Commands for networks: view, bench, search, train."""

import dataclasses
import inspect
import tomllib
from itertools import product
from pathlib import Path
from typing import Annotated

from typer import Context, Option, echo

from labkit.cli.app import app, described, path_of
from labkit.engines import PRECISIONS, names
from labkit.errors import LabError, require_known
from labkit.train.config import TrainConfig


@app.command()
def view(
    models: list[Path],
    save: Path | None = None,
    browser: bool = True,
):
    """Draw ONNX files with netron, offline.

    The page holds everything, and opens in any browser.

    models   ONNX files; several stand side by side.
    save     The page to write; in artifacts/views when not given.
    browser  Open it in a browser tab, where there is a display.

    Example: labkit view model.onnx quantized.onnx
    """
    from labkit.files import artifacts, write_text
    from labkit.lesson.netron_view import open_tab, whole_page

    target = save or artifacts() / "views" / f"{'-'.join(model.stem for model in models)}.html"
    write_text(target, whole_page(*models))
    echo(path_of(target))
    if browser:
        open_tab(target.resolve().as_uri())


@app.command()
def bench(
    model: list[str],
    engine: Annotated[list[str], Option(help=f"{', '.join(names())} or all, repeatable: several race.")] = ("eager",),
    batch: Annotated[list[int], Option(min=1, max=999_999)] = (1,),
    precision: Annotated[
        str | None, Option(help=f"{', '.join(PRECISIONS)}; fp32, or what the file holds, when none is given.")
    ] = None,
    threads: Annotated[int | None, Option(min=1)] = None,
    seconds: float = 3.0,
):
    """Measure a network's latency and throughput.

    The rows go to the ledger. Several engines, or files of one network, are then timed in turn, beside a second session
    of the first of them: its difference is the noise floor of the ratios. Inputs are random; what a file in INT8 keeps
    of the answers to pictures, `labkit quantize` says.

    model    A network of the course, such as cnn-large, or an .onnx file; or more.
    batch    Images per call, repeatable.
    threads  CPU threads; as many as torch uses by default.
    seconds  Time for each batch size.

    Example: labkit bench resnet18.onnx resnet18-int8.onnx --engine onnxruntime --engine openvino --batch 1
    """
    from labkit.engines.bench import bench as measured
    from labkit.engines.bench import opened, race
    from labkit.engines.fidelity import misfits
    from labkit.measure import Plan

    settings = {"precision": precision, "threads": threads, "plan": Plan(seconds=seconds)}
    able = []
    chosen = names() if "all" in engine else dict.fromkeys(engine)
    for one, each in product(map(opened, dict.fromkeys(model)), chosen):
        rows = measured(one, batch, engine=each, **settings)
        for reason in misfits(one.graph, each):
            echo(f"{one.name} does not fit {each}: {reason}")
        for number, size in enumerate(batch, start=1):
            echo(f"{number}/{len(batch)} {one.name} {each}, batch {size} ...")
            row = next(rows)
            echo(f"    {_with_noise_below(row)}")
        if row.p50_ms:
            able.append((one, each))
    if len(able) > 1:
        for size, found in zip(batch, race(able, batch, **settings), strict=True):
            echo(f"in turn, batch {size}:\n{_with_noise_below(found)}")


def _with_noise_below(measured):
    """The facts of a row in a line, and what disturbed it in the next."""
    return measured.summary().replace(" · noise: ", "\n    noise: ")


@app.command()
def search(
    question: str,
    count: Annotated[int, Option(min=1, max=100)] = 5,
):
    """Find what the course says about a question.

    It shows the paragraphs that come nearest. MiniLM compares meanings, so the words need not be the same. The first
    call reads the whole course, about half a minute; it is read again when a lesson has changed.

    question  What you want to know, in your own words.
    count     How many paragraphs to show.

    Example: labkit search "why does a small batch waste the processor?"
    """
    from labkit.text import course_index

    for hit in course_index().search(question, count):
        echo(f"{hit.cosine:.2f}  {hit.paragraph.lesson}\n      {hit.paragraph.text}")


# what published training scripts call these options
PUBLISHED = {
    "epochs": ["--n-epochs"],
    "batch": ["--batch-size"],
    "workers": ["--num-workers"],
    "torchscript": ["--use-torchscript"],
}


def _with_all_settings(command):
    """Decorate a command: each field of `TrainConfig` becomes an option, with what its docstring says about the field.

    It is named as the field and, where there is one, by the published name.
    """
    *parameters, collecting = inspect.signature(command).parameters.values()
    for field in dataclasses.fields(TrainConfig):
        names = ["--" + field.name.replace("_", "-"), *PUBLISHED.get(field.name, ())]
        option = Option(*names, help=described(TrainConfig.__doc__)[field.name])
        kind = Annotated[field.type, option]
        parameters.append(
            inspect.Parameter(field.name, collecting.KEYWORD_ONLY, default=field.default, annotation=kind)
        )
    command.__signature__ = inspect.Signature(parameters)
    return command


def _read_recipe(context: Context, path: Path | None):
    """Take the settings of a file as the defaults of a command: what is typed after it counts more."""
    if path is None:
        return
    known = [each.name for each in context.command.params if each.expose_value and each.name != "recipe"]
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LabError(
            f"The recipe {path} cannot be read.",
            expected='a TOML file with lines such as epochs = 3 and schedule = "cosine"',
            found=str(error),
        ) from error
    settings = {name.replace("-", "_"): value for name, value in settings.items()}
    for name in settings:
        require_known(name, known, f"setting of {path.name}")
    context.default_map = settings


@app.command()
@_with_all_settings
def train(
    model: str = "cnn-medium",
    dataset: str = "fashion-mnist",
    limit: Annotated[int | None, Option(min=1)] = None,
    recipe: Annotated[Path | None, Option(is_eager=True, callback=_read_recipe)] = None,
    name: str | None = None,
    profile: str = "cprofile",
    resume: bool = False,
    dry_run: bool = False,
    **fields,
):
    """Train a network.

    Ends with a checkpoint, a profile and the validation accuracy.

    model    A network of the course, such as resnet18.
    dataset  A set of `labkit data list`, or folder:PATH.
    limit    Use only so many training images.
    recipe   A TOML file of these options; those typed count more.
    name     Keeps two trainings of one network apart.
    profile  Which profile to write: cprofile, torch or none.
    resume   Go on from the last checkpoint.
    dry_run  One step, and nothing is written.

    Example: labkit train --model cnn-large --recipe recipe.toml --optimizer lamb --name with-lamb
    """
    from labkit.train.by_name import training

    require_known(profile, ("cprofile", "torch", "none"), "profile")
    config = TrainConfig(**fields)
    work = training(model, dataset, config, limit=limit, name=name)
    echo(f"{model} on {work.train}, {config.epochs} epochs of batch {config.batch} on {work.device}")
    for switch, reason in config.idle(work.device).items():
        echo(f"--{switch.replace('_', '-')} has no effect here: {reason}")
    if dry_run:
        echo(f"Dry run: one step took {work.dry_run().seconds:.2f} s; nothing was written.")
        return
    history, checkpoint, written = work.run(resume=resume, profile=None if profile == "none" else profile)
    if history.restored == config.epochs:
        echo("Nothing was left to train: the checkpoint holds all epochs. Without --resume it starts over.")
    echo(f"{history.steps} steps in {history.seconds:.1f} s")
    echo(f"Checkpoint: {path_of(checkpoint)}")
    if written:
        opens = "`snakeviz FILE`, which pip installs" if written.suffix == ".prof" else "ui.perfetto.dev"
        echo(f"Profile: {path_of(written)} (opens with {opens})")
    echo(f"Validation accuracy: {history.accuracy[-1]:.4f} ({len(work.test):,} images of {work.test.name})")
