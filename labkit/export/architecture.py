"""Build a network of a named architecture, with weights from a file or from torchvision."""

import importlib
import sys
from pathlib import Path

from labkit import models
from labkit.errors import LabError
from labkit.export.weights import published_weights, read_weights, shapes_of

SIDE = 224  # pixels, where a network does not say how large its images are


def network_with(name, weights=None, *, size=None):
    """Build a network of a named architecture, and load weights into it.

    Returns (network in eval mode, shape of its input without the batch, notes). The notes are a
    dictionary of texts. Each key is there only if something is known:

    mean, std  the mean and std by which pictures were normalised in training, for pixels of 0 to 1
    pictures   the size and the normalisation of pictures, in words
    weights    the name of the chosen network, if the file holds several

    name     name of a network of the course or of torchvision. If both have a network of this name,
             the one that fits the weights is taken. Or module:function: this code is run, and must
             return a network
    weights  path of a file: a state dict, a dictionary that holds one, or safetensors. Only tensors
             are read, and no code is run. Or the name that torchvision gives to published weights,
             such as DEFAULT: they are downloaded, checked and stored. None, only with
             module:function: the function's network has its weights already
    size     pixels a side; None: the size that the weights state, or else the usual size of the
             network
    Raises   LabError: there is no such file or network; the weights are those of another network,
             and the message says which names differ

    A file may hold several networks. The one with the most tensors is taken. If several have as
    many, the one that `labkit train` tested is taken, or else the first of them.
    """
    if weights is None:
        network = _made_by(name)
        side = size or SIDE
        return network.eval(), (_channels_of(network), side, side), {}

    state, notes = published_weights(name, weights) or read_weights(weights)
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
    """Find the architecture that a state dict fits. Returns (network, shape of its input).

    The weights are not loaded yet. Raises LabError if the state dict fits no architecture of this
    name.

    name       as in `network_with`
    state      the state dict: {name: tensor}
    file_name  name of the file of weights, for the message
    """
    file_shapes = shapes_of(state)

    # Of the architectures of this name, the one from which the fewest names and shapes differ.
    candidates = []
    differing = []
    for network, shape in _candidates(name, state):
        network_shapes = shapes_of(network.state_dict())
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


def _candidates(name, state):
    """Yield (network, shape of its input) for each architecture of a name.

    A name may be known to both the course and torchvision. Each network has as many classes as the
    weights.

    name    as in `network_with`
    state   the state dict: {name: tensor}
    Raises  LabError: there is no network of this name
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

    It is the number of input channels of the first convolution, or 3 if there is no convolution.
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
