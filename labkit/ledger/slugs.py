"""Name experiments and lessons by slugs without a number, so that renumbering loses no result.

A slug is a name in small letters and dashes, such as "compile-and-amp".
"""

import re

from labkit.ledger.rows import EDITION

THIRD = 3  # the edition of recorded files that do not name theirs

# {name in the third edition: slug}, where it is another than the name without its number
THIRD_EDITION = {
    "00_start_here": "what-limits-speed",
    "07_convnext_tiny_imagenet": "convnext-training",
}
# {study of a training: the published experiment that it rebuilds}, where the two have different
# names
STUDIES = {
    "compile-amp": "convnext-training",
    "convnext-tiny-imagenet": "convnext-training",
    "convnext-training-64": "convnext-training",
}


def slug(name: str, edition: int = EDITION) -> str:
    """Return the slug of a notebook or experiment: "compile-and-amp" for "08_compile_and_amp".

    name     name of a notebook without .ipynb, or of an experiment
    edition  edition of the course that gave the name. In another edition the same name may mean
             another lesson
    """
    if edition <= THIRD and name in THIRD_EDITION:
        return THIRD_EDITION[name]
    return re.sub(r"^\d+_", "", name).replace("_", "-")


def experiment_of(row, default):
    """Return the slug of the experiment that a measured row belongs to.

    This is the experiment that the row names. If it names none, it is the experiment of the row's
    study, or else `default`.
    """
    return row.experiment or STUDIES.get(getattr(row, "study", None)) or default
