"""A network by its name, or a trained one from its file, as an ONNX file that was compared with it."""

from pathlib import Path

from labkit import compress, data, export, models, train


def export_by_name(source, out=None, *, opset=None, weights=None, size=None):
    """Write a network as an ONNX file and compare: (path, {what the inputs were: `export.Parity`}).

    source  the name of a network (untrained, but for efficientnet-lite0), or the path of a checkpoint (.pt) or of a
            compressed network (.small)
    out     where to; None: the network's name in the current folder
    weights path of weights of one's own for the network `source`, as in `export.network_with`; size: its pixels a side
    The inputs are random ones, and for a trained network test images of its data set, at three batch sizes each.
    """
    suffix = Path(source).suffix
    if weights:
        (network, shape), name, real = export.network_with(source, weights, size=size), Path(weights).stem, {}
    elif suffix in (".pt", ".small"):
        network, name, dataset, shape = compress.load(source) if suffix == ".small" else train.restored(source)
        test = data.load(dataset, "test", limit=74) if dataset else None
        real = {f"{dataset} test images": _real_batches(test, shape)} if test else {}
    else:
        (network, shape), name, real = models.build(source), source, {}
    first, *random = (models.example(name, batch, seed=batch, shape=shape) for batch in (2, 1, 2, 7))
    path = export.to_onnx(network, first, out or f"{name}.onnx", opset=opset)
    inputs = {"random inputs": random, **real}
    return path, {what: export.parity(network, path, batches) for what, batches in inputs.items()}


def _real_batches(test, shape):
    """Test images in batches of 64 and what is left, with the channels and the size a network takes."""
    channels, _, side = shape
    return [images.expand(-1, channels, -1, -1) for images, _ in test.batches(64, size=side)]
