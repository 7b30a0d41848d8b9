"""Export a network as an ONNX file, and make sure that the file answers like the network."""

from pathlib import Path

from labkit import data, export, models, train
from labkit.files import draft, require_other_file


def export_by_name(
    source: str,
    out: str | Path | None = None,
    *,
    opset: int | None = None,
    weights: str | Path | None = None,
    size: int | None = None,
    inputs: str | Path | None = None,
) -> tuple[Path, dict, dict]:
    """Write a network as an ONNX file, and compare the file's answers with the network's.

    They are compared on random inputs of several batch sizes; for a trained network, also on test
    images of its data set. If `inputs` is given, they are compared on the items of that file only:
    on all items, on the first item, and on all items twice.

    source   the name of a network (untrained, except for efficientnet-lite0), the path of a
             checkpoint (.pt), or module:function, whose code is run
    out      path of the ONNX file; None: the network's name in the current folder
    opset    version of the ONNX operators; None: that of `export.to_onnx`
    weights  path of a file of weights for the network `source`, or the name of published weights,
             as in `export.network_with`
    size     pixels a side, for module:function and published weights
    inputs   path of a file for `export.inputs_from`, for a network that takes no pictures
    Returns  (path of the ONNX file, {key: text} of the notes in it, {kind of inputs:
             `export.Parity`})
    Raises   LabError: the answers differ. Then no file is written
    """
    network, name, shape, notes, test_images = _network_of(source, weights, size)
    path = Path(out or f"{name}.onnx")
    require_other_file(source, path)
    require_other_file(weights or source, path)

    # One example to export with, three batches to compare on.
    if inputs is None:
        example = models.example(name, 2, seed=2, shape=shape)
        random_images = [
            models.example(name, batch, seed=batch, shape=shape) for batch in (1, 2, 7)
        ]
        batches_by_kind = {"random inputs": random_images, **test_images}
    else:
        require_other_file(inputs, path)
        example = export.inputs_from(inputs, network)
        batches_by_kind = {f"the inputs of {Path(inputs).name}": _batches_of(example)}
    settings = {"opset_version": opset} if opset else {}
    with draft(path) as temporary:
        export.to_onnx(network, example, temporary, notes=notes, **settings)
        parities = {}
        for kind, batches in batches_by_kind.items():
            parities[kind] = export.parity(network, temporary, batches)
        for parity in parities.values():
            parity.require()
    return path, notes, parities


def _batches_of(example):
    """Return three batches made from one: the batch itself, its first item, and the batch twice.

    example  a batch: a tuple of tensors, one for each input of the network
    """
    import torch

    first = tuple(tensor[:1] for tensor in example)
    twice = tuple(torch.cat([tensor, tensor]) for tensor in example)
    return [example, first, twice]


def _network_of(source, weights, size):
    """Return the network that `export_by_name` shall write, and what it needs for the export.

    Returns a tuple of five:
    - the network, a torch module
    - its name
    - the shape of an image
    - {key: text} of the notes for the file
    - {name of test images: their batches}; {} if there are none

    source, weights, size  as in `export_by_name`
    """
    function = source.partition(":")[2] if ":" in str(source) else ""
    if weights or function:
        network, shape, notes = export.network_with(source, weights, size=size)
        return network, Path(weights or function).stem, shape, notes, {}
    if Path(source).suffix != ".pt":
        network, shape = models.build(source)
        return network, source, shape, {}, {}
    network, name, dataset, shape = train.restored(source)
    if not dataset:
        return network, name, shape, {}, {}
    test = data.load(dataset, "test", limit=74)
    notes = {"mean": ",".join(map(str, test.mean)), "std": ",".join(map(str, test.std))}
    # of 64 images and of the other 10, with the channels and the size that the network takes
    batches = []
    for images, _ in test.batches(64, size=shape[-1]):
        batches.append(images.expand(-1, shape[0], -1, -1))
    return network, name, shape, notes, {f"{dataset} test images": batches}
