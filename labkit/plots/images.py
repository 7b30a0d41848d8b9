"""Show images with their labels, and with the answers of networks."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from labkit.plots.canvas import COLOURS, canvas

WIDEST = 8  # images in a row


def images(pixels: Any, captions: Sequence[str], *, wrong: Sequence[bool] | None = None) -> None:
    """Show grey images with a text under each.

    pixels    (n, side * side) or (n, height, width) numbers; the larger a number, the darker the
              pixel
    captions  n texts, such as the labels, or the answers of a network
    wrong     n flags: the text under an image with a true flag is orange; None: all texts are black
    """
    pixels = np.asarray(pixels, dtype=float)
    if pixels.ndim == 2:
        side = round(pixels.shape[1] ** 0.5)
        pixels = pixels.reshape(-1, side, side)

    # A grid, with room for the longest caption under each image.
    columns = min(WIDEST, len(pixels))
    rows = -(-len(pixels) // columns)
    tallest = max(caption.count("\n") + 1 for caption in captions)
    height = 1.0 + 0.19 * tallest
    figure, axes = canvas(1.12 * columns, rows * height, columns=columns, rows=rows)

    # The last row may have empty panels.
    for number, ax in enumerate(np.atleast_1d(axes).flat):
        ax.spines[:].set_visible(False)
        ax.set(xticks=[], yticks=[])
        if number < len(pixels):
            ax.imshow(pixels[number], cmap="gray_r")
            colour = COLOURS[1] if wrong is not None and wrong[number] else "black"
            ax.set_xlabel(captions[number], fontsize=8.5, color=colour)
    _show(figure)


def answers(
    pixels: Any,
    classes: Sequence[int],
    labels: Sequence[int],
    names: Sequence[str],
    *,
    before: Sequence[int] | None = None,
    most: int = 24,
) -> None:
    """Show grey images with a network's answer under each.

    Where the answer is wrong, the true label stands under it.

    pixels   (n, 1, height, width), or as in `images`; the first `most` are shown
    classes  (n,) answers, as class numbers
    labels   (n,) true class numbers
    names    names of the classes
    before   (n,) answers of an earlier network, for images on which the two networks differ. Both
             answers and the true label then stand under the image; the text is orange if the
             earlier answer was right. None: the text is orange if the answer is wrong
    """
    pixels = np.asarray(pixels, dtype=float)[:most]
    if not len(pixels):
        print("There is no image to show.")
        return
    if pixels.ndim == 4:
        pixels = pixels[:, 0]

    # The caption of each image: the answer, the earlier one before it, the label where it is wrong.
    captions, wrong = [], []
    for number in range(len(pixels)):
        answer, label = classes[number], labels[number]
        caption = names[answer]
        if before is not None:
            caption = f"{names[before[number]]}\n→ {caption}"
        if answer != label or before is not None:
            caption += f"\n(is: {names[label]})"
        captions.append(caption)
        if before is None:
            wrong.append(answer != label)
        else:
            wrong.append(before[number] == label)
    images(pixels, captions, wrong=wrong)


def _show(figure):
    from IPython.display import display

    display(figure)
