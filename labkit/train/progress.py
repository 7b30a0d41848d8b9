"""A progress bar where somebody is looking."""

import os
import sys


def progress_bar(total, done):
    """A tqdm bar of `total` steps, `done` of them already; silent in headless runs and in pipes."""
    from tqdm.auto import tqdm

    watched = "ipykernel" in sys.modules or sys.stderr.isatty()
    silent = os.environ.get("LABKIT_HEADLESS") == "1" or not watched
    return tqdm(total=total, initial=done, disable=silent, leave=False, unit="step")
