"""Commands for the course: doctor, run, list, progress, new-lesson, lab, reset, report."""

import shutil
import textwrap
from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Exit, Option, echo

from labkit.cli.app import app, path_of
from labkit.errors import LabError


@app.command()
def doctor():
    """Say what this machine can and cannot do.

    Each line has the reason and the fix. Ends with 1 when something is missing that the course
    needs.

    Example: labkit doctor
    """
    from labkit.doctor import examine, verdict

    checks = examine()
    indent = " " * 27
    # what is piped somewhere is left in one line
    columns = shutil.get_terminal_size(fallback=(10_000, 24)).columns
    hanging = textwrap.TextWrapper(
        columns, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
    for check in checks:
        echo(hanging.fill(f"{_mark_of(check)} {check.name:22} {check.detail}"))
        if not check.ok and check.fix:
            echo(f"{indent}next: {check.fix}")  # never broken: it may be a command to copy
    echo("\n" + textwrap.fill(verdict(checks), columns, break_on_hyphens=False))
    lacking = any(check.needed and not check.ok for check in checks)
    raise Exit(1 if lacking else 0)


def _mark_of(check):
    """Return the three characters at the beginning of a check's line: "ok ", "NO " or "-  ".

    "NO " marks what the course needs, "-  " what it can do without.
    """
    if check.ok:
        return "ok "
    return "NO " if check.needed else "-  "


@app.command()
def run(
    notebooks: Annotated[
        list[str] | None, Argument(help="Numbers, names or paths; all by default.")
    ] = None,
    profile: Annotated[str, Option(help="How long: quick, lab or paper.")] = "quick",
    parameter: Annotated[
        list[str], Option("--parameter", "-p", help="NAME=VALUE, repeatable.")
    ] = (),
    seeds: Annotated[
        str, Option(help="Run each notebook once per seed: 0:5 for 0 to 4, or 1,7.")
    ] = "",
    cluster: Annotated[
        str | None, Option(help="On dask workers: tcp://HOST:PORT, or local for two here.")
    ] = None,
    fresh: Annotated[
        bool, Option(help="Start over instead of resuming a run of notebooks that was cut short.")
    ] = False,
    solutions: Annotated[
        bool, Option(help="Fill the reference answers into the exercises.")
    ] = False,
    check_exercises: Annotated[
        bool, Option(help="Run each exercise as it is given, then check its answer.")
    ] = False,
    strict: Annotated[
        bool, Option(help="An unsolved or wrong exercise fails its notebook.")
    ] = False,
    together: Annotated[
        int | None, Option(min=1, help="So many at a time; what they measure means nothing.")
    ] = None,
    deeper: Annotated[
        bool, Option("--deeper", help="Run the notebooks of notebooks/deeper after them.")
    ] = False,
    against: Annotated[
        Path | None, Option(help="List what recorded runs said otherwise: artifacts/recorded.")
    ] = None,
):
    """Execute notebooks headlessly and write artifacts/report.html.

    Ends with 1 when a notebook failed. A run that was cut short is taken up where it stopped.

    --strict grades afterwards, as `labkit grade` does: each exercise cell alone, with the
    notebook's imports.

    On a cluster, lessons that measure run alone on each machine; docs/cluster.md says how to start
    one.

    --against compares verdicts and answers with recorded runs of this kind of machine, profile and
    seed.

    Example: labkit run 00 01 --profile lab --seeds 0:5
    """
    from labkit.files import deeper_notebooks
    from labkit.files import notebooks as lessons
    from labkit.runner import run_batch
    from labkit.runner.tasks import seeds_of

    # Without names: all lessons, and those of notebooks/deeper after them where they are asked for.
    if deeper:
        notebooks = [*(notebooks or map(str, lessons())), *map(str, deeper_notebooks())]
    result = run_batch(
        notebooks,
        profile=profile,
        parameters=dict(map(_split_parameter, parameter)),
        seeds=seeds_of(seeds) if seeds else (),
        cluster=cluster,
        fresh=fresh,
        solutions="both" if check_exercises else solutions,
        strict=strict,
        together=together,
    )
    if against:
        from labkit.ledger.claims import flips

        flipped, compared = flips([attempt.run_key for attempt in result.attempts], against)
        for line in flipped:
            echo(line)
        echo(f"{len(flipped)} of {compared} recorded verdicts and answers are other ones here.")
    echo("Writing the report ...")
    report()
    raise Exit(0 if result.ok else 1)


def _split_parameter(text):
    """Split the text of a parameter, NAME=VALUE. Returns (name, value): ("seed", 1) for "seed=1".

    The value is parsed as JSON; a value that is no JSON stays a text.

    Raises  LabError for a text without "="
    """
    import json

    name, equals, value = text.partition("=")
    if not equals:
        raise LabError(
            f"The parameter {text!r} has no value.", expected="NAME=VALUE", fix="-p seed=1"
        )
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


@app.command("list")
def _list():
    """List the lessons, what each asks, and its exercises.

    Example: labkit list
    """
    from labkit.lesson.syllabus import lessons

    for lesson in lessons():
        echo(f"{lesson.name}\n    {lesson.question}")
        for task in lesson.exercises:
            echo(f"    exercise {task.id}: difficulty {task.difficulty} of 3, {task.minutes} min")


@app.command()
def progress():
    """Say how far you are, and how near your guesses were.

    Counted is what you did yourself: runs by hand, your first answer to each question, and your own
    exercises.

    Example: labkit progress
    """
    from labkit.lesson.progress import progress as progress_of_reader

    reader = progress_of_reader()
    for step in reader.steps:
        guesses = ""
        if step.near + step.off:
            guesses = f"{step.near} of {step.near + step.off} predictions near"
        echo(
            f"{step.name:28} {step.state:6} {step.solved} of {step.exercises} "
            f"exercises  {guesses}".rstrip()
        )
    for line in (reader.summary(), *reader.leanings):
        echo(line)
    if reader.following:
        echo(f"Next: {reader.following}, with `labkit lab`.")


@app.command("new-lesson")
def _begin_lesson(
    number: Annotated[str, Argument(help="Two digits, such as 20.")],
    name: Annotated[str, Argument(help="Words joined by underscores.")],
):
    """Begin a lesson: its notebook and its exercises.

    They are made from a template that keeps the rules of CONTRIBUTING.md.

    Example: labkit new-lesson 21 a_lesson_of_mine
    """
    from labkit.lesson.syllabus import new_lesson

    for path in new_lesson(number, name):
        echo(path_of(path))
    echo(
        "Next: write it; then a line in the table of README.md, and its claims in "
        "labkit/lesson/claims.toml."
    )


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(
    context: Context,
    originals: Annotated[bool, Option(help="The course's own lessons, for their authors.")] = False,
):
    """Open JupyterLab on your own copies of the lessons.

    They lie in my-lessons/, which no update of the course touches. A copy that you have not changed
    is renewed when the course changes; one that you have changed stays, and you are told. Further
    options go to JupyterLab.

    Example: labkit lab --port 9999
    """
    from labkit.classroom import copies, jupyter
    from labkit.files import my_lessons, notebooks

    lessons = notebooks()[0].parent  # without any there is nothing to copy
    if originals:
        raise Exit(jupyter.serve(lessons, context.args))
    for line in copies.renew():
        echo(line)
    echo(f"Your copies of the lessons: {path_of(my_lessons())}")
    raise Exit(jupyter.serve(my_lessons(), context.args))


@app.command()
def reset(lessons: Annotated[list[str], Argument(help="Numbers or names.")]):
    """Give fresh copies of lessons, and keep your old ones.

    The old copy goes to my-lessons/old/.

    Example: labkit reset 05
    """
    from labkit.classroom import copies
    from labkit.files import my_lessons
    from labkit.runner.sources import find

    for notebook in find([Path(name).name for name in lessons]):
        old_copy = copies.reset(notebook.path)
        fresh_copy = my_lessons() / notebook.path.name
        sentence = f"{path_of(fresh_copy)} is fresh."
        if old_copy:
            sentence += f" Yours is {path_of(old_copy)}."
        echo(sentence)


@app.command()
def report():
    """Write artifacts/report.html from what the ledger holds.

    Example: labkit report
    """
    from labkit.report import write_report

    echo(path_of(write_report()))
