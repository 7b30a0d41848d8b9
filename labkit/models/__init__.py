"""Networks of the course, one family a file; `build` makes one by name."""

from labkit.errors import LabError


def names():
    """All networks that `build` knows."""
    from labkit.models.cnn import SIZES

    return tuple(SIZES)


def build(name):
    """(an untrained network, the shape (C, H, W) of its input) by name."""
    from labkit.models.cnn import SIZES, cnn

    if name not in SIZES:
        raise LabError(
            f"There is no network {name!r}.", expected=" or ".join(names()), found=name, fix="choose one of these"
        )
    return cnn(SIZES[name]), (1, 28, 28)
