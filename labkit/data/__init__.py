"""Data sets: images and text in memory, and their batches.

`load` returns an image set as an `ImageSet`. `fetch` downloads a set from its publisher. `names`
returns the names of the published sets, and `status` says which of them are on this machine.
`paragraphs` returns the text of the lessons; `load("course-text")` returns that text as a set to
train on.

    train = load("fashion-mnist", "train")
    for images, labels in train.batches(128, device=device, seed=epoch, augment=True):
        ...

Nothing slow is imported before a set is loaded.
"""
# ruff: noqa: F401 (what is offered here)

from labkit.data._imageset import ImageSet
from labkit.data._load import load
from labkit.data._published import fetch, names, status
from labkit.data._small import small_images
from labkit.data._text import Paragraph, paragraphs
from labkit.data._transforms import crop
