"""Image sets: `load` one (an `ImageSet`), `fetch` one from its publisher, ask for their `names` and
`status`. Text: the `paragraphs` of the lessons; `load("course-text")` is all of them as a set to
train on.

    train = load("fashion-mnist", "train")
    for images, labels in train.batches(128, device=device, seed=epoch, augment=True):
        ...

Nothing heavy is imported before a set is loaded.
"""
# ruff: noqa: F401 (what is offered here)

from labkit.data._imageset import ImageSet
from labkit.data._load import load
from labkit.data._published import fetch, names, status
from labkit.data._small import small_images
from labkit.data._text import Paragraph, paragraphs
from labkit.data._transforms import crop
