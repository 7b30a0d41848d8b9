"""A recipe to train fast with: what is handed in to lesson 10, as data and never code."""

import dataclasses
import json
import math
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from labkit import models
from labkit.errors import LabError, require_known
from labkit.ship.order import plain
from labkit.train.config import TrainConfig, refusal

MEDALS = {"gold": 3.0, "silver": 2.0, "bronze": 1.5}  # times as fast as the reference recipe, at least
LARGEST = 10_000  # bytes of the file
MOST = {"epochs": 200, "batch": 8192, "accumulate": 64, "size": 64, "first_size": 64, "images": 70_000}
# the judge draws the seed; the others train nothing faster here, or bring weights along
_NOT_ASKED = {"seed", "pretrained", "head_only", "torchscript", "cudnn_autotuner", "workers", "pin_memory", "phases"}
_ASKED = {each.name: each.type for each in fields(TrainConfig) if each.name not in _NOT_ASKED}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How somebody wants to reach the target.

    name     for the board
    network  one of `networks()`; it begins with random weights
    images   how many of the training images it sees
    config   a `TrainConfig`
    """

    name: str
    network: str = "cnn-medium"
    images: int = 60_000
    config: TrainConfig = dataclasses.field(default_factory=TrainConfig)

    def __post_init__(self):
        object.__setattr__(self, "name", plain(self.name))
        require_known(self.network, networks(), "network")
        for name, value in {"images": self.images, **dataclasses.asdict(self.config)}.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise refusal(f"{name} is {value}.", "a finite number")
            if name in MOST and value is not None and not 1 <= value <= MOST[name]:
                raise refusal(f"{name} is {value}.", f"1 to {MOST[name]:,}")
        if self.config.batch > self.images:
            raise refusal(f"{self.images} images are not one batch of {self.config.batch}.", "more images")

    def as_json(self):
        """The recipe as one line: its network, its images, and what it sets otherwise than by default."""
        usual = dataclasses.asdict(TrainConfig())
        changed = {name: value for name, value in dataclasses.asdict(self.config).items() if value != usual[name]}
        return json.dumps({"network": self.network, "images": self.images, **changed})


def medal_of(points):
    """The best medal that a score earns, or None."""
    return next((name for name, least in MEDALS.items() if points >= least), None)


def networks():
    """The networks that a recipe can name: those for small images."""
    return tuple(name for name, each in models.RECIPES.items() if each.shape == models.SMALL)


def read_recipe(path: str | Path, name: str = "") -> Recipe:
    """The `Recipe` of a .toml file; LabError when it is none.

    The file has `network`, `images` and any of the fields of `TrainConfig` that decide how it learns or how fast. The
    name is the given one, else the file's `name`, else that of the file.
    """
    path = Path(path)
    if path.suffix != ".toml" or not path.is_file() or path.stat().st_size > LARGEST:
        raise LabError("There is no recipe.", expected=f"a .toml of at most {LARGEST:,} bytes", found=str(path)[:200])
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LabError("This file is no TOML.", found=str(error)[:200]) from error
    return recipe_of({"name": path.stem} | given | ({"name": name} if name else {}))


def recipe_of(given: dict[str, Any]) -> Recipe:
    """The `Recipe` of {field: value}, as it stands in a file; LabError for another field, type or value."""
    known = {"name": str, "network": str, "images": int} | _ASKED
    for field, value in given.items():
        require_known(field, known, "field of a recipe")
        if not _fits(value, known[field]):
            kind = getattr(known[field], "__name__", known[field])
            raise refusal(f"{field} is {value!r:.60}, of type {type(value).__name__}.", f"{kind}")
    own = {field: given[field] for field in ("name", "network", "images") if field in given}
    config = {field: value for field, value in given.items() if field in _ASKED}
    return Recipe(**own, config=TrainConfig(**config))


def _fits(value, kind):
    """Whether a value of a TOML file is of a type, such as `int | None`; a whole number is a float, too."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, kind) or (isinstance(value, int) and isinstance(0.5, kind))
