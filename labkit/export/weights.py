"""Read weights from elsewhere: a file, or what torchvision publishes. Only tensors, no code."""

import re
from argparse import Namespace
from pathlib import Path

from labkit.errors import LabError

WRAPPERS = ("module.", "_orig_mod.")  # what DataParallel and torch.compile put before each name
COUNT = "n_averaged"  # the tensor that `torch.optim.swa_utils.AveragedModel` adds
TESTED = "tested"  # under this key a checkpoint of `labkit train` holds the network that was tested
# what files of weights call the mean and the std of pixels, and the size of pictures
PREPROCESSING_WORDS = {
    "mean": "mean",
    "std": "std",
    "size": "(?:input_size|img_size|image_size|crop_size|size)",
}


def shapes_of(state):
    """Return the shape of each tensor of a state dict: {name: shape}."""
    return {key: tuple(value.shape) for key, value in state.items()}


def published_weights(name, weights):
    """Download weights that torchvision publishes. Returns ({name: tensor}, notes), or None.

    The notes are those of `_preprocessing`. The result is None if torchvision has no weights of
    that name. Raises LabError if the download fails.
    """
    import torchvision

    try:
        entry = torchvision.models.get_model_weights(name).__members__[str(weights)]
    except (ValueError, KeyError):  # there are none of this network, or none of that name
        return None
    try:
        state = entry.get_state_dict(map_location="cpu", check_hash=True, weights_only=True)
    except (OSError, RuntimeError) as error:  # no network; another hash than in the file's name
        raise LabError(
            f"The weights {weights} of {name} cannot be fetched.",
            expected=entry.url,
            found=str(error),
            fix="fetch that file where there is a network, then: labkit export "
            f"{name} --weights FILE",
        ) from error
    return state, _preprocessing(vars(entry.transforms()))


def _preprocessing(contents):
    """Find out from the contents of a file of weights how pictures were prepared in training.

    Returns {"mean", "std", "size": text}; what the contents do not say is left out. Mean and std
    are for pixels of 0 to 1. If the file gives them for pixels up to 255, they are converted, and a
    text "scaled" says so. The words are searched for anywhere in the contents, because each library
    stores them elsewhere: timm in `pretrained_cfg`, a training script in its options.
    """
    texts = {}
    for key, words in PREPROCESSING_WORDS.items():
        match = re.search(rf"\b{words}\b\W+(\d[\d., ]*)", str(contents))
        if match:
            numbers = re.findall(r"[\d.]+", match[1])
            texts[key] = numbers[-1] if key == "size" else ",".join(numbers)
    return {**texts, **for_unit_pixels(texts)}


def for_unit_pixels(texts: dict) -> dict:
    """Convert mean and std to pixels of 0 to 1. Returns {"mean", "std": text}.

    If any number is above 1, all numbers are taken to be for pixels up to 255. Then they are
    divided by 255, and the result has a third text, "scaled".

    texts  {"mean": "123.7,116.3,103.5", "std": ...}; one of the two may be missing, other keys are
           ignored
    """
    stated = {key: texts[key] for key in ("mean", "std") if key in texts}
    scaled = {}
    largest = 0.0
    try:
        for key, text in stated.items():
            numbers = [float(number) for number in text.split(",")]
            largest = max(largest, *numbers)
            scaled[key] = ",".join(f"{number / 255:.6g}" for number in numbers)
    except ValueError:  # whoever uses them refuses them
        return stated
    if largest <= 1:
        return stated
    return {**scaled, "scaled": "from pixels up to 255"}


def read_weights(path):
    """Read a file of weights. Returns ({name: tensor}, notes).

    The notes are those of `_preprocessing`. If the file holds several networks, the key "weights"
    says which one was chosen.
    """
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file

    path = Path(path)
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                contents = load_file(path)
                description = file.metadata()
        else:
            # options of a training script, which are only data
            with torch.serialization.safe_globals([Namespace]):
                contents = torch.load(path, "cpu", weights_only=True)
                description = contents
    except Exception as error:  # a damaged file may make a reader raise anything
        raise LabError(
            f"{path.name} cannot be read as weights.",
            expected="what torch.save(network.state_dict(), FILE) wrote, or .safetensors: "
            "tensors, and no code",
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
            fix="save network.state_dict(), not the network itself",
        ) from error
    states = dict(_states(contents))
    if not states:
        raise LabError(
            f"{path.name} holds no weights.",
            expected="names with tensors",
            found=type(contents).__name__,
        )

    # Of several networks, choose the one with the most names; at a tie the tested one, else the
    # first.
    chosen = max(states, key=lambda keys: (len(states[keys]), keys[-1:] == (TESTED,)))
    not_chosen = [
        ".".join(keys) for keys, state in states.items() if _differ(state, states[chosen])
    ]
    notes = _preprocessing(description)
    if not_chosen:
        notes["weights"] = f"{'.'.join(chosen)}; the file also holds {', '.join(not_chosen)}"
    return states[chosen], notes


def _states(contents, keys=()):
    """Yield the state dicts in the contents of a file: (keys that lead to it, {name: tensor}).

    contents  a state dict, or nested dictionaries that hold some
    keys      the keys that lead to `contents`, a tuple
    """
    if not isinstance(contents, dict):
        return
    if contents and all(hasattr(value, "shape") for value in contents.values()):
        yield keys, _unwrapped(contents)
        return
    for key, value in contents.items():
        yield from _states(value, (*keys, str(key)))


def _unwrapped(state):
    """Return a state dict with the names of the network itself.

    The prefixes that DataParallel and torch.compile put before each name are removed, and so is the
    counter of torch's averaged models.
    """
    # torch's averages count their updates in one more tensor
    state = {key: value for key, value in state.items() if key != COUNT}
    for wrapper in WRAPPERS:
        if all(key.startswith(wrapper) for key in state):
            state = {key.removeprefix(wrapper): value for key, value in state.items()}
    return state


def _differ(state, second_state):
    """Return True if two state dicts have the same names and shapes, and different numbers."""
    if shapes_of(state) != shapes_of(second_state):
        return False
    return any(not state[key].equal(second_state[key]) for key in state)
