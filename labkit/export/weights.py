"""Build a network of a named architecture, and load weights from elsewhere into it."""

import importlib
import re
import sys
from argparse import Namespace
from pathlib import Path

from labkit import models
from labkit.errors import LabError

WRAPPERS = ("module.", "_orig_mod.")  # what DataParallel and torch.compile put before each name
COUNT = "n_averaged"  # the tensor that `torch.optim.swa_utils.AveragedModel` adds
TESTED = "tested"  # under this key a checkpoint of `labkit train` holds the network that was tested
SIDE = 224  # pixels, where a network does not say how large its images are
# what files of weights call the mean and the std of pixels, and the size of pictures
PREPROCESSING_WORDS = {
    "mean": "mean",
    "std": "std",
    "size": "(?:input_size|img_size|image_size|crop_size|size)",
}


def network_with(name, weights=None, *, size=None):
    """Build a network of a named architecture with its weights.

    Returns (network in eval mode, shape of its input without the batch, notes). The notes are a
    dict:
    mean, std  as texts, for pixels of 0 to 1, where the weights say how pictures were scaled
    pictures   the size and the scaling of pictures, in words
    weights    which weights were taken, where the file holds others of the same names

    name     name of a network of the course or of torchvision: the one that fits the weights is
             taken; or module:function, whose code is run, and which returns a network
    weights  path of a file: a state dict, a dict with one inside, or safetensors. Only tensors are
             read, never code. Of several networks in a file the one with the most names is taken,
             at a tie the one that `labkit train` tested, else the first. Or the name that
             torchvision gives to weights it publishes, such as DEFAULT: they are fetched, checked
             and kept. None: module:function returns its network with the right weights in it
    size     pixels a side; None: the size that the weights name, or the usual size of the network
    Raises   LabError: no such file or network; weights of another network, and then which names
             differ
    """
    if weights is None:
        network = _made_by(name)
        side = size or SIDE
        return network.eval(), (_channels_of(network), side, side), {}

    state, notes = _published(name, weights) or _read_weights(weights)
    network, shape = _best_candidate(name, state, Path(weights).name)
    network.load_state_dict(state)

    # The side of the images, and in words how they are made ready.
    side = size or int(notes.pop("size", shape[-1]))
    scaling = [f"{key} {text}" for key, text in notes.items() if key != "weights"]
    scaling_text = ", ".join(scaling) or "nothing of mean and std"
    notes["pictures"] = f"{side} pixels; {Path(weights).name} says {scaling_text}"
    if len(shape) == 3:
        shape = (shape[0], side, side)
    return network.eval(), shape, notes


def _best_candidate(name, state, file_name):
    """Return (network, shape of its input) of the architecture that a state dict fits.

    Raises LabError where it fits no architecture of that name.

    state      the state dict: {name: tensor}
    file_name  name of the file of weights, for the message
    """
    file_shapes = _shapes(state)

    # Of the architectures of this name, the one from which the fewest names and shapes differ.
    candidates = []
    differing = []
    for network, shape in _candidates(name, state):
        network_shapes = _shapes(network.state_dict())
        candidates.append((network, shape, network_shapes))
        differing.append(len(network_shapes.items() ^ file_shapes.items()))
    network, shape, network_shapes = candidates[differing.index(min(differing))]

    differ = sorted({key for key, _ in network_shapes.items() ^ file_shapes.items()})
    if differ:
        raise LabError(
            f"{file_name} holds the weights of another network than {name}: "
            f"{len(differ)} names differ.",
            expected=", ".join(f"{key} {network_shapes.get(key, 'missing')}" for key in differ[:4]),
            found=", ".join(f"{key} {file_shapes.get(key, 'missing')}" for key in differ[:4]),
            fix="name the network that was trained; one of your own as module:function",
        )
    return network, shape


def _shapes(state):
    """Return the shape of each tensor of a state dict: {name: shape}."""
    return {key: tuple(value.shape) for key, value in state.items()}


def _published(name, weights):
    """Fetch weights that torchvision publishes.

    Returns ({name: tensor}, notes) as `_read_weights` does; None where there are no weights of that
    name.
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
    """Return how pictures were made ready in training, as far as a file of weights says.

    Returns {"mean", "std", "size": text}. Mean and std are for pixels of 0 to 1; there is a text
    "scaled" where the file has them for pixels up to 255. The words may stand anywhere in the file:
    in timm's `pretrained_cfg`, in the options of a training script, in JSON.
    """
    texts = {}
    for key, words in PREPROCESSING_WORDS.items():
        match = re.search(rf"\b{words}\b\W+(\d[\d., ]*)", str(contents))
        if match:
            numbers = re.findall(r"[\d.]+", match[1])
            texts[key] = numbers[-1] if key == "size" else ",".join(numbers)
    return {**texts, **for_unit_pixels(texts)}


def for_unit_pixels(texts: dict) -> dict:
    """Return {"mean", "std": text} for pixels of 0 to 1.

    Where a given number is above 1, all are for pixels up to 255: they are divided by 255, and the
    result has a text "scaled".

    texts  {"mean", "std": such as "123.7,116.3,103.5"}; one of them may be missing, and other keys
           are left out
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


def _read_weights(path):
    """Read a file of weights. Returns ({name: tensor}, notes).

    The notes are those of `_preprocessing`, and under "weights" the name of the chosen network,
    where the file holds several.
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
    """Yield each dict of tensors in a file: (the keys that lead to it, {name: tensor}).

    contents  what the file holds: such a dict, or dicts that hold it
    keys      the keys that lead to these contents
    """
    if not isinstance(contents, dict):
        return
    if contents and all(hasattr(value, "shape") for value in contents.values()):
        yield keys, _unwrapped(contents)
        return
    for key, value in contents.items():
        yield from _states(value, (*keys, str(key)))


def _unwrapped(state):
    """Return a state dict with the network's own names, without the prefixes of its wrappers."""
    # torch's averages count their updates in one more tensor
    state = {key: value for key, value in state.items() if key != COUNT}
    for wrapper in WRAPPERS:
        if all(key.startswith(wrapper) for key in state):
            state = {key.removeprefix(wrapper): value for key, value in state.items()}
    return state


def _differ(state, second_state):
    """Return True if two state dicts have the same names and shapes, and different numbers."""
    if _shapes(state) != _shapes(second_state):
        return False
    return any(not state[key].equal(second_state[key]) for key in state)


def _candidates(name, state):
    """Yield (network, shape of its input) of each architecture of this name.

    The network gets as many classes as the weights have.
    """
    if ":" in name:
        network = _made_by(name)
        yield network, (_channels_of(network), SIDE, SIDE)
        return
    tensors = list(state.values())
    first, last = tensors[0], tensors[-1]
    channels = first.shape[1] if first.ndim > 1 else 3
    classes = last.shape[0] if last.ndim else None
    import torchvision

    # those that take images and return classes
    published = torchvision.models.list_models(module=torchvision.models)
    if name not in (*models.names(), *published):
        raise LabError(
            f"There is no network {name!r}.",
            expected="a network of the course, one of torchvision.models, or module:function",
            found=name,
            fix="labkit export --help; for a network of your own: my_file:my_function",
        )
    if name in models.names():
        yield models.build(name, classes=classes, like=(channels, 28, 28))
    if name in published:
        yield torchvision.models.get_model(name, weights=None, num_classes=classes), (3, SIDE, SIDE)


def _channels_of(network):
    """Return how many channels the pictures of a network have.

    They are the inputs of its first convolution; 3 without a convolution.
    """
    from torch import nn

    for module in network.modules():
        if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            return module.in_channels
    return 3


def _made_by(name):
    """Return the network that a function of the user makes. This runs the user's code.

    name    module:function
    Raises  LabError where the function does not return a network
    """
    from torch import nn

    module, _, function = name.partition(":")
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        network = getattr(importlib.import_module(module), function)()
    except Exception as error:  # the user's code may fail in any way
        raise LabError(
            f"{name} did not return a network.",
            expected=f"a function {function} without arguments in {module}.py of this folder",
            found=f"{type(error).__name__}: {error}",
            fix="try it in Python first",
        ) from error
    finally:
        sys.path.remove(folder)
    if not isinstance(network, nn.Module):
        raise LabError(
            f"{name} did not return a network.",
            expected="a torch.nn.Module",
            found=type(network).__name__,
            fix="return the network itself, not its weights",
        )
    return network
