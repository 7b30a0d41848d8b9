"""Serving a model, measured: accuracy, latency, throughput, energy, size, memory and cost as one row."""

from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save_model
from torch import nn

from labkit import compress, data, engines, export, measure, models, train
from labkit.files import artifacts, atomic
from labkit.ledger.rows import Deployment


@dataclass(frozen=True)
class Candidate:
    """A trained model and what does not depend on how it is served.

    accuracy    fraction of the test images, 0 to 1
    size_bytes  of its weights as a file
    """

    name: str
    model: nn.Module
    dataset: str
    accuracy: float
    size_bytes: int


def candidate(name, model, test, *, device):
    """Test a trained model on the ImageSet `test` and save its weights: a `Candidate`."""
    accuracy = train.accuracy(model, test, device=device)
    path = artifacts() / "models" / f"{test.name}-{name}.safetensors"
    with atomic(path) as temporary:
        save_model(model, str(temporary))
    return Candidate(name, model, test.name, accuracy, path.stat().st_size)


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


def deploy(candidate, images, *, engine="eager", precision="fp32", plan=None, usd_per_hour=None):
    """Serve batches like `images` and measure it: a `rows.Deployment`.

    images        (N, C, H, W) floats on the device that serves; N is the batch size
    engine        one of `engines.names()`
    plan          `measure.Plan` of the latency
    usd_per_hour  price of the machine; None leaves the cost unknown
    """
    batch = len(images)
    serve = engines.load(engine, candidate.model, images, precision=precision)
    work = {"inputs": [images.to(serve.device)], "device": serve.device, "batch": batch}
    latency = measure.latency(serve, **work, plan=plan)
    memory = measure.memory(serve, **work)
    energy = measure.energy(serve, **work)
    reasons = [energy.reason, latency.tail_reason if latency.p95_ms is None else None]
    return Deployment(
        run_key="",
        dataset=candidate.dataset,
        model=candidate.name,
        engine=engine,
        precision=precision,
        device=latency.device,
        threads=serve.threads,
        batch=batch,
        accuracy=candidate.accuracy,
        latency_p50_ms=latency.p50_ms,
        latency_p95_ms=latency.p95_ms,
        throughput_per_s=latency.throughput_per_s,
        energy_per_item_j=energy.joules_per_item,
        size_bytes=candidate.size_bytes,
        memory_bytes=_memory_in_use(candidate.model, memory),
        cost_per_million_usd=cost_per_million(usd_per_hour, latency.throughput_per_s),
        noisy=latency.noisy,
        reason="; ".join(filter(None, reasons)) or None,
    )


def _memory_in_use(model, memory):
    """Bytes while serving: the GPU allocator's peak, or weights plus the tensors alive at once on a CPU."""
    if memory.peak_bytes is not None:
        return memory.peak_bytes
    return memory.tensor_bytes + sum(tensor.nbytes for tensor in model.state_dict().values())


def cost_per_million(usd_per_hour, items_per_s):
    """Dollars for a million items on a machine rented by the hour and always busy; None when one is unknown."""
    return None if usd_per_hour is None or items_per_s is None else usd_per_hour / 3600 / items_per_s * 1e6
