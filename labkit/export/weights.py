"""A network with weights from elsewhere: a file of weights, and the name of the architecture that they belong to."""

import importlib
import sys
from pathlib import Path

from labkit import models
from labkit.errors import LabError

WRAPPERS = ("module.", "_orig_mod.")  # what DataParallel and torch.compile put before each name
SIDE = 224  # pixels, where a network does not say how large its images are


def network_with(name, weights, *, size=None):
    """(network in eval mode, the shape of its input without the batch) of an architecture and a file of weights.

    name     of a network of the course or of torchvision: the one that fits counts; or module:function, whose code
             is run, and which returns a network
    weights  a path: a state dict, a dict with one inside, or safetensors. Only tensors are read, never code
    size     pixels a side; None: as the network is known
    Raises   LabError: no such file or network; weights of another one, and then which names differ
    """
    state = _read_weights(weights)
    nearest = None
    for network, shape in _candidates(name, state):
        found = {key: tuple(value.shape) for key, value in state.items()}
        wanted = {key: tuple(value.shape) for key, value in network.state_dict().items()}
        differ = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
        if not differ:
            network.load_state_dict(state)
            return network.eval(), (shape[0], size, size) if size else shape
        if nearest is None or len(differ) < len(nearest[0]):
            nearest = differ, wanted, found
    raise _another(name, weights, nearest)


def _read_weights(path):
    """{name: tensor} of a file of weights."""
    import torch
    from safetensors.torch import load_file

    path = Path(path)
    try:
        read = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
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
    return state


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


def _another(name, weights, nearest):
    """The error of weights that belong to another network than was named."""
    differ, wanted, found = nearest

    def told(shapes):
        listed = [f"{key} {shapes.get(key, 'missing')}" for key in differ[:4]]
        return ", ".join(listed) + (f" and {len(differ) - 4} more" if len(differ) > 4 else "")

    return LabError(
        f"{Path(weights).name} holds the weights of another network than {name}.",
        expected=told(wanted),
        found=told(found),
        fix="name the network that was trained; one of your own as module:function",
    )
