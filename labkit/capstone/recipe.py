"""A recipe for a fast training, which a reader hands in to lesson 11 as a TOML file of settings."""

import dataclasses
import json
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from labkit import models
from labkit.capstone.order import one_line
from labkit.errors import LabError, brief, require_known
from labkit.train.config import TrainConfig, refusal

MAX_FILE_BYTES = 10_000
LIMITS = {
    "epochs": 200,
    "batch": 8192,
    "accumulate": 64,
    "size": 64,
    "first_size": 64,
    "images": 70_000,
}
# the judge draws the seed; the others train nothing faster here, or bring weights along
_EXCLUDED = {
    "seed",
    "pretrained",
    "head_only",
    "torchscript",
    "cudnn_autotuner",
    "workers",
    "pin_memory",
    "phases",
}
# {field of a `TrainConfig` that a recipe may set: its type}
_CONFIG_TYPES = {
    field.name: field.type for field in fields(TrainConfig) if field.name not in _EXCLUDED
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a reader wants to reach the target accuracy of lesson 11.

    name     name on the leaderboard
    network  one of `networks()`; the judge trains it from random weights
    images   number of training images that the recipe uses
    config   a `TrainConfig`
    Raises   LabError for an unknown network or a setting beyond `LIMITS`
    """

    name: str
    network: str = "cnn-medium"
    images: int = 60_000
    config: TrainConfig = dataclasses.field(default_factory=TrainConfig)

    def __post_init__(self):
        object.__setattr__(self, "name", one_line(self.name))
        require_known(self.network, networks(), "network")
        settings = {"images": self.images, **dataclasses.asdict(self.config)}
        for name, value in settings.items():
            if name in LIMITS and value is not None and not 1 <= value <= LIMITS[name]:
                raise refusal(f"{name} is {brief(value)}.", f"1 to {LIMITS[name]:,}")
        if self.config.batch > self.images:
            raise refusal(
                f"{self.images} images are fewer than one batch of {self.config.batch}.",
                "more images",
            )

    def as_json(self):
        """Return the recipe as JSON in one line.

        It has the network, the number of images, and all settings that differ from their defaults.
        """
        defaults = dataclasses.asdict(TrainConfig())
        settings = dataclasses.asdict(self.config)
        changed = {name: value for name, value in settings.items() if value != defaults[name]}
        return json.dumps({"network": self.network, "images": self.images, **changed})


def networks():
    """Return the names of the networks that a recipe may use: those for small images."""
    return tuple(name for name, network in models.RECIPES.items() if network.shape == models.SMALL)


def read_recipe(path: str | Path, name: str = "") -> Recipe:
    """Return the `Recipe` of a .toml file.

    The file may have the fields `name`, `network` and `images`, and most fields of a `TrainConfig`.
    It may not have those that the judge sets, such as `seed`, or that would not make a training
    faster or would begin with trained weights, such as `workers` and `pretrained`.

    name    name of the recipe; "": the field `name` of the file, or, without it, the name of the
            file
    Raises  LabError where the file is missing, too large, no TOML, or no recipe
    """
    path = Path(path)
    if path.suffix != ".toml" or not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
        expected = f"a .toml of at most {MAX_FILE_BYTES:,} bytes"
        raise LabError("There is no recipe.", expected=expected, found=str(path)[:200])
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    # the former also for a number of more than 4,300 digits
    except (ValueError, RecursionError) as error:
        raise LabError("This file is no TOML.", found=str(error)[:200]) from error
    if name:
        entries["name"] = name
    return recipe_of({"name": path.stem} | entries)


def recipe_of(entries: dict[str, Any]) -> Recipe:
    """Return the `Recipe` that {field: value} describes, the content of a TOML file.

    Raises  LabError for an unknown field, a wrong type or a value beyond `LIMITS`
    """
    types = {"name": str, "network": str, "images": int} | _CONFIG_TYPES
    recipe_fields = {}
    config_fields = {}
    for field, value in entries.items():
        require_known(field, types, "field of a recipe")
        if not _fits(value, types[field]):
            expected = getattr(types[field], "__name__", types[field])
            raise refusal(
                f"{field} is {brief(value)}, of type {type(value).__name__}.", f"{expected}"
            )
        if field in _CONFIG_TYPES:
            config_fields[field] = value
        else:
            recipe_fields[field] = value
    return Recipe(**recipe_fields, config=TrainConfig(**config_fields))


def _fits(value, expected_type):
    """Return whether a value of a TOML file has a type, such as `int | None`.

    A whole number fits `float` as well.
    """
    if isinstance(value, bool):
        return expected_type is bool
    return isinstance(value, expected_type) or (
        isinstance(value, int) and isinstance(0.5, expected_type)
    )
