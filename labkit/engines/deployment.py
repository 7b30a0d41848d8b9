"""A network by its name, or a trained one from its file, as an ONNX file that was compared with it."""

from pathlib import Path

from labkit import compress, data, export, models, train


def export_by_name(
    source: str,
    out: str | Path | None = None,
    *,
    opset: int | None = None,
    weights: str | Path | None = None,
    size: int | None = None,
) -> tuple[Path, dict, dict]:
    """Write a network as an ONNX file and compare: (path, notes in the file, {what the inputs were: `export.Parity`}).

    source  the name of a network (untrained, but for efficientnet-lite0), or the path of a checkpoint (.pt) or of a
            compressed network (.small)
    out     where to; None: the network's name in the current folder
    weights of one's own for the network `source`, or published ones, as in `export.network_with`; size: pixels a side
    The inputs are random ones, and for a trained network test images of its data set, at three batch sizes each.
    """
    suffix, notes, real = Path(source).suffix, {}, {}
    if weights:
        (network, shape, notes), name = export.network_with(source, weights, size=size), Path(weights).stem
    elif suffix in (".pt", ".small"):
        network, name, dataset, shape = compress.load(source) if suffix == ".small" else train.restored(source)
        test = data.load(dataset, "test", limit=74) if dataset else None
        if test:  # in batches of 64 and what is left, with the channels and the size that the network takes
            batches = test.batches(64, size=shape[-1])
            real = {f"{dataset} test images": [images.expand(-1, shape[0], -1, -1) for images, _ in batches]}
            notes = {"mean": ",".join(map(str, test.mean)), "std": ",".join(map(str, test.std))}
    else:
        (network, shape), name = models.build(source), source
    first, *random = (models.example(name, batch, seed=batch, shape=shape) for batch in (2, 1, 2, 7))
    settings = {"opset_version": opset} if opset else {}
    path = export.to_onnx(network, first, out or f"{name}.onnx", notes=notes, **settings)
    inputs = {"random inputs": random, **real}
    return path, notes, {what: export.parity(network, path, batches) for what, batches in inputs.items()}
