"""What a result belongs to: the slug of an experiment or a lesson, without a number, so that
renumbering loses none.
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
    """The slug of a notebook or of an experiment: "08_compile_and_amp" is compile-and-amp in any
    edition.

    edition  of the course that gave the name: the same name may mean another lesson in another
             edition
    """
    if edition <= THIRD and name in THIRD_EDITION:
        return THIRD_EDITION[name]
    return re.sub(r"^\d+_", "", name).replace("_", "-")


def experiment_of(row, default):
    """The experiment that a measured row belongs to: the one it names, that of its study, else
    the default.
    """
    return row.experiment or STUDIES.get(getattr(row, "study", None)) or default
