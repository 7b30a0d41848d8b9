"""A network with weights from elsewhere: a file of weights, and the name of the architecture that they belong to."""

import importlib
import re
import sys
from argparse import Namespace
from pathlib import Path

from labkit import models
from labkit.errors import LabError

WRAPPERS = ("module.", "_orig_mod.")  # what DataParallel and torch.compile put before each name
SIDE = 224  # pixels, where a network does not say how large its images are
# what files of weights call the mean and the std of pixels, and the size of pictures
TOLD = {"mean": "mean", "std": "std", "size": "(?:input_size|img_size|image_size|crop_size|size)"}


def network_with(name, weights, *, size=None):
    """(network in eval mode, the shape of its input without the batch, notes) of an architecture and its weights.

    name     of a network of the course or of torchvision: the one that fits counts; or module:function, whose code
             is run, and which returns a network
    weights  a path: a state dict, a dict with one inside, or safetensors. Only tensors are read, never code. Or the
             name that torchvision gives to weights it publishes, such as DEFAULT: they are fetched, checked and kept
    size     pixels a side; None: as the weights say, or as the network is known
    notes    {"mean", "std": numbers, where the weights say how pictures were scaled; "pictures": all of it in words}
    Raises   LabError: no such file or network; weights of another one, and then which names differ
    """
    state, told = _published(name, weights) or _read_weights(weights)
    found = _shapes(state)
    tried = [(network, shape, _shapes(network.state_dict())) for network, shape in _candidates(name, state)]
    network, shape, wanted = min(tried, key=lambda each: len(each[2].items() ^ found.items()))
    differ = sorted({key for key, _ in wanted.items() ^ found.items()})
    if differ:
        shown = [", ".join(f"{key} {each.get(key, 'missing')}" for key in differ[:4]) for each in (wanted, found)]
        raise LabError(
            f"{Path(weights).name} holds the weights of another network than {name}: {len(differ)} names differ.",
            expected=shown[0],
            found=shown[1],
            fix="name the network that was trained; one of your own as module:function",
        )
    network.load_state_dict(state)
    side = size or int(told.pop("size", shape[-1]))
    known = ", ".join(f"{key} {text}" for key, text in told.items()) or "nothing of mean and std"
    notes = told | {"pictures": f"{side} pixels; {Path(weights).name} says {known}"}
    return network.eval(), (shape[0], side, side) if len(shape) == 3 else shape, notes


def _shapes(state):
    return {key: tuple(value.shape) for key, value in state.items()}


def _published(name, weights):
    """What `_read_weights` returns, of weights that torchvision publishes; None where none has that name."""
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
            fix=f"fetch that file where there is a network, then: labkit export {name} --weights FILE",
        ) from error
    return state, _told(vars(entry.transforms()))


def _told(read):
    """{"mean", "std", "size": text}: how pictures were made ready in training, as far as what was read says.

    It may stand anywhere: in timm's `pretrained_cfg`, in the options of a training script, in JSON.
    """
    found = {}
    for key, words in TOLD.items():
        if said := re.search(rf"\b{words}\b\W+(\d[\d., ]*)", str(read)):
            numbers = re.findall(r"[\d.]+", said[1])
            found[key] = numbers[-1] if key == "size" else ",".join(numbers)
    return found


def _read_weights(path):
    """({name: tensor}, what `_told` finds) of a file of weights."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file

    path = Path(path)
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                read, about = load_file(path), file.metadata()
        else:
            with torch.serialization.safe_globals([Namespace]):  # options of a training script, which are only data
                read = about = torch.load(path, "cpu", weights_only=True)
    except Exception as error:  # a damaged file may make a reader raise anything
        raise LabError(
            f"{path.name} cannot be read as weights.",
            expected="what torch.save(network.state_dict(), FILE) wrote, or .safetensors: tensors, and no code",
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
            fix="save network.state_dict(), not the network itself",
        ) from error
    state = _largest_state(read)
    if not state:
        raise LabError(f"{path.name} holds no weights.", expected="names with tensors", found=type(read).__name__)
    for wrapper in WRAPPERS:
        if all(key.startswith(wrapper) for key in state):
            state = {key.removeprefix(wrapper): value for key, value in state.items()}
    return state, _told(about)


def _largest_state(read):
    """The dict of tensors in what was read: itself, or the largest one that lies in it."""
    if not isinstance(read, dict):
        return {}
    if read and all(hasattr(value, "shape") for value in read.values()):
        return read
    return max((_largest_state(value) for value in read.values()), key=len, default={})


def _candidates(name, state):
    """Yield (network, shape of its input) of each architecture of this name, with as many classes as the weights."""
    first, *_, last = state.values()
    channels, classes = first.shape[1] if first.ndim > 1 else 3, last.shape[0] if last.ndim else None
    if ":" in name:
        yield _made_by(name), (channels, SIDE, SIDE)
        return
    import torchvision

    published = torchvision.models.list_models(module=torchvision.models)  # those that take images and return classes
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


def _made_by(name):
    """The network that a function of the user returns. This runs the user's code."""
    module, _, function = name.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), function)()
    except Exception as error:  # the user's code may fail in any way
        raise LabError(
            f"{name} did not return a network.",
            expected=f"a function {function} without arguments in {module}.py of this folder",
            found=f"{type(error).__name__}: {error}",
            fix="try it in Python first",
        ) from error
    finally:
        sys.path.remove(here)
