"""A network by its name, or a trained one from its file, as an ONNX file that was compared with it."""

from pathlib import Path

from labkit import compress, data, export, models, train


def export_by_name(source, out=None, *, opset=None):
    """Write a network as an ONNX file and compare: (path, {what the inputs were: `export.Parity`}).

    source  the name of a network (untrained, but for efficientnet-lite0), or the path of a checkpoint (.pt) or of a
            compressed network (.small)
    out     where to; None: the network's name in the current folder
    The inputs are random ones, and for a trained network test images of its data set, at three batch sizes each.
    """
    suffix = Path(source).suffix
    if suffix in (".pt", ".small"):
        network, name, dataset, shape = compress.load(source) if suffix == ".small" else train.restored(source)
        test = data.load(dataset, "test", limit=74) if dataset else None
        real = {f"{dataset} test images": _real_batches(test, shape)} if test else {}
    else:
        (network, shape), name, real = models.build(source), source, {}
    path = export.to_onnx(network, models.example(name, 2, shape=shape), out or f"{name}.onnx", opset=opset)
    random = [models.example(name, batch, seed=batch, shape=shape) for batch in (1, 2, 7)]
    inputs = {"random inputs": random, **real}
    return path, {what: export.parity(network, path, batches) for what, batches in inputs.items()}


def _real_batches(test, shape):
    """Test images in batches of 64 and what is left, with the channels and the size a network takes."""
    channels, _, side = shape
    return [images.expand(-1, channels, -1, -1) for images, _ in test.batches(64, size=side)]
