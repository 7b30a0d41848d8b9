"""Command that trains a network, with an option for each setting."""

import dataclasses
import inspect
import tomllib
from pathlib import Path
from typing import Annotated

from typer import Context, Option, echo

from labkit.cli.app import app, path_of
from labkit.errors import LabError, require_known
from labkit.train.config import TrainConfig

# what published training scripts call these options
PUBLISHED = {
    "epochs": ["--n-epochs"],
    "batch": ["--batch-size"],
    "workers": ["--num-workers"],
    "torchscript": ["--use-torchscript"],
}


def _with_all_settings(command):
    """Give a command an option for each field of `TrainConfig`, with the help of that field.

    The option is named after the field. Some options have a second name, which published training
    scripts use: `--batch` is also `--batch-size`.
    """
    *parameters, collecting = inspect.signature(command).parameters.values()
    for field in dataclasses.fields(TrainConfig):
        names = ["--" + field.name.replace("_", "-"), *PUBLISHED.get(field.name, ())]
        option = Option(*names, help=field.metadata["help"])
        kind = Annotated[field.type, option]
        parameters.append(
            inspect.Parameter(
                field.name, collecting.KEYWORD_ONLY, default=field.default, annotation=kind
            )
        )
    command.__signature__ = inspect.Signature(parameters)
    return command


def _read_recipe(context: Context, path: Path | None):
    """Read a TOML file whose settings become the defaults of a command's options.

    An option that the user typed has precedence. typer calls this function for the option --recipe.

    path    path of the file, or None: nothing is done
    Raises  LabError where the file is no TOML or has an unknown setting
    """
    if path is None:
        return
    options = context.command.params
    setting_names = [
        option.name for option in options if option.expose_value and option.name != "recipe"
    ]
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
        require_known(name, setting_names, f"setting of {path.name}")
    context.default_map = settings


@app.command()
@_with_all_settings
def train(
    model: Annotated[str, Option(help="A network of the course, such as resnet18.")] = "cnn-medium",
    dataset: Annotated[
        str, Option(help="A set of `labkit data list`, or folder:PATH.")
    ] = "fashion-mnist",
    limit: Annotated[int | None, Option(min=1, help="Use only so many training images.")] = None,
    recipe: Annotated[
        Path | None,
        Option(
            is_eager=True,
            callback=_read_recipe,
            help="A TOML file of these options; those typed count more.",
        ),
    ] = None,
    name: Annotated[str | None, Option(help="Keeps two trainings of one network apart.")] = None,
    profile: Annotated[
        str, Option(help="Which profiler writes its file: cprofile, torch or none.")
    ] = "cprofile",
    resume: Annotated[
        bool, Option(help="Go on from the last checkpoint; with more epochs, too.")
    ] = False,
    dry_run: Annotated[bool, Option(help="One step, and nothing is written.")] = False,
    **fields,
):
    """Train a network.

    Ends with a checkpoint, the profile file of a profiler, and the validation accuracy.

    Example: labkit train --model cnn-large --recipe recipe.toml --optimizer lamb --name with-lamb
    """
    from labkit.train.by_name import training
    from labkit.train.checkpoint import length_remarks

    require_known(profile, ("cprofile", "torch", "none"), "profiler")
    config = TrainConfig(**fields)
    job = training(model, dataset, config, limit=limit, name=name)
    echo(f"{model} on {job.train}, {config.epochs} epochs of batch {config.batch} on {job.device}")
    for switch, reason in config.idle(job.device).items():
        echo(f"--{switch.replace('_', '-')} has no effect here: {reason}")
    for remark in job.remarks():
        echo(remark)
    if dry_run:
        echo(
            f"Dry run: one step took {sum(job.dry_run().epoch_seconds):.2f} s; nothing was written."
        )
        return

    # Train, and say what came of it.
    earlier = None if resume else job.checkpoint_to_resume()
    try:
        history, checkpoint, profile_path = job.run(
            resume=resume, profile=None if profile == "none" else profile
        )
    except KeyboardInterrupt:
        echo(_what_is_left(job.checkpoint_to_resume(), earlier), err=True)
        raise
    if history.restored == config.epochs:
        echo(
            "Nothing was left to train: the checkpoint holds all epochs. Without --resume it "
            "starts over."
        )
    for remark in length_remarks(history, config):
        echo(remark)
    echo(f"{history.steps} steps in {history.seconds:.1f} s")
    if history.compiled:
        cuts = ""
        if history.graph_breaks:
            cuts = f", with {history.graph_breaks} graph breaks: there Python runs in between"
        echo(f"Compiled: {history.compiled} of {config.epochs - history.restored} epochs{cuts}")
    echo(f"Checkpoint: {path_of(checkpoint)}")
    if profile_path:
        viewer = "ui.perfetto.dev"
        if profile_path.suffix == ".prof":
            viewer = "`snakeviz FILE`, which pip installs"
        echo(f"Profile file: {path_of(profile_path)} (opens with {viewer})")
    echo(
        f"Validation accuracy: {history.accuracy[-1]:.4f} ({len(job.test):,} images of "
        f"{job.test.name})"
    )


def _what_is_left(checkpoint, earlier):
    """Return a sentence that says what remains of a training that the user stopped.

    Both arguments are results of `Training.checkpoint_to_resume`: (path, time of writing) or None.

    checkpoint  result after the training was stopped
    earlier     result before the training began: the checkpoint of an earlier training
    """
    if checkpoint is None:
        return "No epoch has ended: nothing of this training is kept."
    if checkpoint == earlier:
        return (
            "No epoch of this training has ended: nothing of it is kept, and the checkpoint of an "
            "earlier one stays. --resume would go on from that one."
        )
    return "The epochs that have ended are kept: the same command with --resume goes on after them."
