"""Coding for the lesson on pruning: shared weights, and a file that gives them back bit for bit.

The file holds, layer by layer:

    codebook  the number of shared values (one byte), then the values (float32)
    gaps      Huffman-coded: how many zeros stand before each weight that is not 0
    indices   Huffman-coded: which value of the codebook each of these weights has

Then all other parameters (batch norm, biases, embeddings) follow in float16. The file does not say
which network it is of: its reader has a network of the same layers.
Source  Han et al. 2016, arXiv:1510.00149
"""

import copy
import heapq
import io
import struct
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from labkit.errors import LabError
from labkit.methods import Hooks

MAX_SHARED_VALUES = 16
GAP_GOES_ON = 255  # the symbol for 255 zeros, after which the same gap goes on
MAX_ROUNDS = 200  # of k-means, which ends sooner when nothing changes


# ---- weight sharing ----


def coded_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return {name: weight} of the weights that are shared and coded: two or more dimensions.

    They are the weights of convolutions, of linear layers, and of attention. Embeddings are left
    out, for each of their rows is read alone. Norms and biases have one dimension. A dimension of
    size 1 does not count, so that the scales of a layer's channels, (n, 1, 1), are left out too.
    """
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    weights = {}
    for name, parameter in model.named_parameters():
        if parameter.squeeze().dim() > 1 and id(parameter) not in tables:
            weights[name] = parameter
    return weights


def k_means(numbers, count=MAX_SHARED_VALUES):
    """Cluster numbers. Returns (centroids, index of the centroid that each number has).

    numbers  (n,) finite floats, at least one
    returns  (count,) float64 and (n,) int64. The centroids begin at equal distances from the
             smallest number to the largest; a centroid without numbers stays where it is
    """
    numbers = numbers.double()
    centroids = torch.linspace(numbers.min(), numbers.max(), count, dtype=torch.double)
    for _ in range(MAX_ROUNDS):
        middles = (centroids[1:] + centroids[:-1]) / 2
        nearest = torch.bucketize(numbers, middles, right=True)
        sizes = nearest.bincount(minlength=count)
        sums = nearest.bincount(numbers, minlength=count)
        means = torch.where(sizes > 0, sums / sizes.clamp(min=1), centroids)
        if torch.equal(means, centroids):
            break
        centroids = means
    return centroids, nearest


@torch.no_grad()
def share(model: nn.Module, count: int = MAX_SHARED_VALUES) -> nn.Module:
    """Replace the weights of each layer, except zeros, by at most `count` shared values.

    Returns the model, which is changed in place.
    """
    for weight in coded_weights(model).values():
        nonzero = weight != 0
        if len(weight[nonzero].unique()) > count:
            centroids, nearest = k_means(weight[nonzero].cpu(), count)
            weight[nonzero] = centroids[nearest].to(weight)
    return model


class SharedWeights(Hooks):
    """Hooks of `fit` that share the weights, then train the shared values.

    fit(..., hooks={"share": SharedWeights(16)})

    The gradient of a shared value is the sum of the gradients of its weights. An optimizer that
    treats each weight by itself (adamw, sgd) then moves the shared values.
    """

    def __init__(self, count=MAX_SHARED_VALUES):
        super().__init__(count)

    def begin(self, model):
        share(model, self.value)
        self.groups = {}
        for name, weight in coded_weights(model).items():
            nonzero = weight.detach() != 0
            _, group = weight.detach()[nonzero].unique(return_inverse=True)
            self.groups[name] = (nonzero, group)
        return model

    @torch.no_grad()
    def before_update(self, model):
        """Give each weight the gradient of its shared value, and a pruned weight none."""
        for name, weight in coded_weights(model).items():
            nonzero, group = self.groups[name]
            sums = torch.bincount(group, weight.grad[nonzero])
            weight.grad.zero_()
            weight.grad[nonzero] = sums.to(weight)[group]

    @torch.no_grad()
    def after_update(self, model):
        """Give each group of weights its mean.

        The optimizer may round equal weights differently.
        """
        for name, weight in coded_weights(model).items():
            nonzero, group = self.groups[name]
            means = torch.bincount(group, weight[nonzero].double()) / torch.bincount(group)
            weight[nonzero] = means.to(weight)[group]

    def state_dict(self):
        return {"groups": self.groups}

    def load_state_dict(self, state):
        for name, (nonzero, group) in state["groups"].items():
            device = self.groups[name][0].device
            self.groups[name] = (nonzero.to(device), group.to(device))


# ---- the network as it is written ----


@torch.no_grad()
def folded(model: nn.Module) -> nn.Module:
    """Return a copy for inference: batch norm as scale and shift, all but the weights in 16 bits.

    Test this network: it is the one that the file gives back exactly. Do not train it.
    """
    model = copy.deepcopy(model).eval()
    for layer in model.modules():
        is_norm = isinstance(layer, nn.modules.batchnorm._BatchNorm)
        if is_norm and layer.affine and layer.track_running_stats:
            _fold(layer)
    weights = coded_weights(model)
    for name, tensor in model.state_dict().items():
        if name in weights:
            tensor += 0.0  # -0.0, which masks leave behind, becomes 0.0
        elif tensor.is_floating_point() and tensor.half().isfinite().all():
            tensor.copy_(tensor.half())
    return model


def _fold(norm):
    """Move the statistics of a batch norm into its scale and shift: mean 0 and variance 1 stay."""
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    norm.bias -= norm.running_mean * scale
    norm.weight.copy_(scale * (1 + norm.eps) ** 0.5)
    norm.running_mean.zero_()
    norm.running_var.fill_(1)
    norm.num_batches_tracked.zero_()


# ---- Huffman codes ----


def huffman_lengths(counts: dict[int, int]) -> dict[int, int]:
    """Return the lengths of Huffman codes: {symbol: count} -> {symbol: bits of its code}."""
    heap = [(count, symbol, {symbol: 0}) for symbol, count in counts.items()]
    heapq.heapify(heap)
    while len(heap) > 1:
        # join the two rarest into one: the codes of all symbols inside get one bit longer
        rarest_count, _, rarest = heapq.heappop(heap)
        second_count, symbol, second = heapq.heappop(heap)
        joined = {member: bits + 1 for member, bits in {**rarest, **second}.items()}
        heapq.heappush(heap, (rarest_count + second_count, symbol, joined))
    if not heap:
        return {}
    _, _, lengths = heap[0]
    return {symbol: max(bits, 1) for symbol, bits in lengths.items()}


def codes_of(lengths: dict[int, int]) -> dict[int, str]:
    """Return the codes of these lengths: {symbol: bits} -> {symbol: its code, such as "0110"}.

    Each code is the one before plus 1, made longer by zeros:
    {7: 1, 3: 2, 0: 2} -> {7: "0", 0: "10", 3: "11"}
    """
    codes = {}
    code = -1
    bits_before = 0
    for symbol, bits in sorted(lengths.items(), key=lambda item: (item[1], item[0])):
        code = (code + 1) << (bits - bits_before)
        bits_before = bits
        codes[symbol] = f"{code:0{bits}b}"
    return codes


def write_symbols(file: io.BytesIO, symbols: np.ndarray) -> None:
    """Write symbols, (n,) whole numbers from 0 on, to a file.

    First the lengths of the codes up to the largest symbol, then how many symbols there are, how
    many bytes they take, and their codes.
    """
    counts = np.bincount(symbols).tolist()
    lengths = huffman_lengths({symbol: count for symbol, count in enumerate(counts) if count})
    codes = codes_of(lengths)
    bits = "".join(codes[symbol] for symbol in symbols.tolist()).encode()
    packed = np.packbits(np.frombuffer(bits, np.uint8) - ord("0")).tobytes()
    file.write(struct.pack("<H", len(counts)))
    file.write(bytes(lengths.get(symbol, 0) for symbol in range(len(counts))))
    file.write(struct.pack("<II", len(symbols), len(packed)))
    file.write(packed)


def read_symbols(file: io.BytesIO, decode: Callable) -> np.ndarray:
    """Read the symbols that `write_symbols` wrote.

    decode  (bits as text, {symbol: code}, count) -> the list of the first `count` symbols
    """
    (symbol_count,) = struct.unpack("<H", file.read(2))
    lengths = {symbol: bits for symbol, bits in enumerate(file.read(symbol_count)) if bits}
    count, packed_bytes = struct.unpack("<II", file.read(8))
    bits = np.unpackbits(np.frombuffer(file.read(packed_bytes), np.uint8)) + ord("0")
    return np.array(decode(bits.tobytes().decode(), codes_of(lengths), count), int)


# ---- the file ----


def layer_symbols(weight: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (codebook, symbols of the gaps, indices) of a layer's weight.

    [0, 0, 0.5, 0, 0.1, 0.5] -> [0.1, 0.5], [2, 1, 0], [1, 0, 1]
    A gap of 600 zeros takes three symbols: 255, 255, 90.
    """
    flat = weight.detach().flatten().numpy()
    positions = np.flatnonzero(flat)
    codebook, indices = np.unique(flat[positions], return_inverse=True)
    gaps = np.diff(positions, prepend=-1) - 1
    ends = np.cumsum(gaps // GAP_GOES_ON + 1) - 1  # where each gap ends among the symbols
    symbols = np.full(ends.max(initial=-1) + 1, GAP_GOES_ON)
    symbols[ends] = gaps % GAP_GOES_ON
    return codebook, symbols, indices


def write_layer(file: io.BytesIO, weight: torch.Tensor) -> None:
    """Write a layer's weight: codebook, gaps, indices.

    Raises LabError for more than 16 values besides 0
    """
    codebook, gap_symbols, indices = layer_symbols(weight)
    if len(codebook) > MAX_SHARED_VALUES:
        raise LabError(
            "A layer has too many different weights for a codebook.",
            expected=f"at most {MAX_SHARED_VALUES} besides 0",
            found=f"{len(codebook):,}",
            fix="share(network) first",
        )
    file.write(struct.pack("<B", len(codebook)))
    file.write(codebook.astype("<f4").tobytes())
    write_symbols(file, gap_symbols)
    write_symbols(file, indices)


def read_layer(file: io.BytesIO, weight: torch.Tensor, decode: Callable) -> None:
    """Read the weight that `write_layer` wrote into the weight of a layer of the same shape.

    decode  the decoder, as in `read_symbols`
    """
    codebook = np.frombuffer(file.read(4 * file.read(1)[0]), "<f4")
    gap_symbols = read_symbols(file, decode)
    ends = gap_symbols != GAP_GOES_ON
    # A gap of 2 leads three places on, to the weight behind it; the symbol 255 leads 255 places on.
    positions = (np.cumsum(gap_symbols + ends) - 1)[ends]
    flat = np.zeros(weight.numel(), np.float32)
    flat[positions] = codebook[read_symbols(file, decode)]
    weight.data = torch.from_numpy(flat).view_as(weight)


def other_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return all parameters that are not coded: batch norm, biases, embeddings."""
    weights = coded_weights(model)
    return [parameter for name, parameter in model.named_parameters() if name not in weights]


def write_network(model: nn.Module) -> bytes:
    """Return the bytes of the file of a network.

    model   a network that went through `share` and `folded`
    Raises  LabError: too many different weights in a layer, or a number beyond 16 bits
    """
    file = io.BytesIO()
    for weight in coded_weights(model).values():
        write_layer(file, weight)
    for parameter in other_parameters(model):
        numbers = parameter.detach().half()
        if not torch.equal(numbers.float(), parameter):
            raise LabError(
                "A parameter does not fit into 16 bits.",
                expected="a network that was folded",
                found=f"numbers of up to {parameter.abs().max().item():g}",
                fix="folded(network) first",
            )
        file.write(numbers.numpy().astype("<f2").tobytes())
    return file.getvalue()


def read_network(data: bytes, blank: nn.Module, decode: Callable) -> nn.Module:
    """Return a copy of `blank` with the parameters that the file holds.

    blank   a folded network of the same layers, with any numbers
    decode  the decoder, as in `read_symbols`
    """
    file = io.BytesIO(data)
    model = copy.deepcopy(blank)
    for weight in coded_weights(model).values():
        read_layer(file, weight, decode)
    for parameter in other_parameters(model):
        numbers = np.frombuffer(file.read(2 * parameter.numel()), "<f2").astype(np.float32)
        parameter.data = torch.from_numpy(numbers).view_as(parameter)
    return model


def entropy_bits(symbols: np.ndarray) -> float:
    """Return Shannon's bound in bits.

    No code for independent symbols of these counts takes fewer bits.
    """
    counts = np.unique(symbols, return_counts=True)[1]
    return float((counts * np.log2(len(symbols) / counts)).sum())
