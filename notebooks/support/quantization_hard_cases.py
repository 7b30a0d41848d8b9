"""For the lesson on hard cases of quantization: pictures, fake quantizers, formats.

Nothing here trains or judges; the lesson does.
"""

import ml_dtypes
import numpy as np
import pandas as pd
import torch
from IPython.display import display

from labkit.plots import COLOURS, GREY, canvas, log_axis
from labkit.quantize.integer_grid import sqnr_db

GOAL = 1.0  # points that may be lost


def draw_board(board):
    """Draw the points that each row lost, with its interval. Shows the picture and returns it.

    board  {name: Interval of points}
    """
    figure, ax = canvas(7.5, 0.9 + 0.34 * len(board))
    ax.axvline(0, color=GREY, lw=1)
    ax.axvline(GOAL, color=GREY, ls=":", lw=1)
    for row, (name, lost) in enumerate(board.items()):
        colour = COLOURS[2] if lost.high <= GOAL else COLOURS[1]
        ax.plot([lost.low, lost.high], [row, row], color=colour, lw=4, alpha=0.6)
        ax.plot(lost.median, row, "o", color=colour, label=name)
        beside = {"xycoords": ("axes fraction", "data"), "va": "center"}
        ax.annotate(f"{lost.median:.2f}", (1.02, row), fontsize=8, **beside)
    ax.set_yticks(range(len(board)), list(board))
    ax.set(ylim=(len(board) - 0.5, -0.5), xlabel="points lost (green: the goal is reached)")
    display(figure)
    return figure


def draw_noise(noise, names):
    """Draw how much noise each layer makes alone. Shows the picture.

    noise  {name of a layer: per cent of the outputs' power}
    names  {name of a layer: what it is called in the text}
    """
    figure, ax = canvas(6.5, 2.8)
    bars = ax.barh([names[layer] for layer in noise], list(noise.values()), color=COLOURS[0])
    ax.bar_label(bars, fmt="%.2g", padding=2, fontsize=8)
    ax.set(xlabel="noise in the outputs if this layer alone is rounded (% of their power)")
    ax.margins(x=0.12)
    ax.invert_yaxis()
    display(figure)


def draw_channels(layers, names, bits=8):
    """Draw the largest weight of each channel, and half a step of one grid for the layer.

    layers  {name: a layer with weights}
    names   {name of a layer: what it is called in the text}
    bits    of the grid
    """
    figure, ax = canvas(8, 2.9)
    for place, (name, layer) in enumerate(layers.items()):
        largest = layer.weight.detach().flatten(1).abs().amax(1).sort()[0]
        depthwise = "depthwise" in names[name]
        x = place + np.linspace(-0.25, 0.25, len(largest))
        ax.plot(x, largest, ".", color=COLOURS[int(depthwise)])
        half = largest.max() / (2**bits - 2)
        ax.plot([place - 0.4, place + 0.4], [half, half], color=GREY, lw=2)
    ax.plot([], [], color=GREY, label="half a step of one grid for the layer")
    log_axis(ax, "y", "{:g}".format)
    labels = [names[name].replace(" ", "\n") for name in layers]
    ax.set_xticks(range(len(layers)), labels, fontsize=8)
    ax.set(ylabel="largest weight of a channel")
    ax.legend(frameon=False, loc="upper right", fontsize=8)
    display(figure)


def draw_groups(lost, rows):
    """Draw points lost against the bits that a weight takes. Shows the picture.

    lost  {weights that share a scale: `Interval` of points}
    rows  `Interval` of points with one scale for each row
    """
    figure, ax = canvas(6, 2.9)
    bits = [4 + 16 / size for size in lost]
    middle = [interval.median for interval in lost.values()]
    ax.plot(bits, middle, "o-", color=COLOURS[0], label="groups, a scale of 16 bits each")
    for x, (size, interval) in zip(bits, lost.items(), strict=True):
        ax.plot([x, x], [interval.low, interval.high], color=COLOURS[0], lw=3, alpha=0.4)
        above = {"xytext": (0, 3), "textcoords": "offset points", "ha": "center"}
        ax.annotate(f"{size}", (x, interval.high), fontsize=8, **above)
    ax.axhspan(rows.low, rows.high, color=COLOURS[1], alpha=0.2)
    ax.axhline(rows.median, color=COLOURS[1], label="one scale for each row")
    ax.set(xlabel="bits of a weight, with its share of the scale", ylabel="points lost")
    ax.set_ylim(min(0, *middle) - 0.3, None)
    ax.legend(frameon=False, fontsize=8)
    display(figure)


# --- fake quantizers ------------------------------------------------------------------------------


def as_nodes(x, scale, low, high):
    """Return x rounded on a grid, as nodes of an exported file: integers and DequantizeLinear.

    scale      a tensor: one number for activations, one for each channel for weights and biases
    low, high  the ends of the grid, in steps
    """
    symbolic = torch.onnx.ops.symbolic  # an ONNX operator, by its name
    if scale.ndim:  # the integers are computed at once
        kind = torch.int8 if high < 128 else torch.int32
        integers = (x / scale).round().clamp(low, high).to(kind)
        scale, axis = scale.flatten(), {"axis": 0}
        zero = torch.zeros(len(scale), dtype=kind)
    else:
        axis, zero = {}, torch.tensor(-low, dtype=torch.uint8)
        inputs = (x, scale, zero)
        integers = symbolic("QuantizeLinear", inputs, dtype=torch.uint8, shape=x.shape)
    inputs = (integers, scale, zero)
    return symbolic("DequantizeLinear", inputs, axis, dtype=torch.float32, shape=x.shape)


def observed(layer, network, calibration):
    """Return the smallest and the largest number that enters a layer; 0.0 counts as one of them.

    calibration  a batch of inputs of the network
    """
    smallest, largest = [0.0], [0.0]

    def observe(layer, arguments):
        smallest.append(arguments[0].min().item())
        largest.append(arguments[0].max().item())

    hook = layer.register_forward_pre_hook(observe)
    network(calibration)
    hook.remove()
    return min(smallest), max(largest)


# --- number formats -------------------------------------------------------------------------------


def formats_table(long_rows, *, seed):
    """Compare number formats on a trained matrix and on random numbers with a few large ones.

    long_rows  (rows, columns) trained weights, columns a multiple of 32
    returns    a DataFrame, a row per format: weight, scale, bits, SQNR of rounding in dB
    """
    random = torch.distributions.StudentT(torch.tensor(3.0))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        heavy_tails = random.sample(long_rows.shape)
    table = {}
    for name, (rounded, weight, scale, bits) in FORMATS.items():
        decibels = [sqnr_db(w, rounded(w)) for w in (long_rows, heavy_tails)]
        table[name] = (weight, scale, f"{bits:g}", f"{decibels[0]:.1f}", f"{decibels[1]:.1f}")
    columns = ["a weight", "a scale", "bits per weight"]
    columns += ["SQNR, trained (dB)", "SQNR, heavy tails (dB)"]
    return pd.DataFrame(table, index=columns).T


def _in_blocks(form, size):
    """Return a function that rounds a whole matrix, from one that rounds blocks (n, size).

    size  numbers of a block; None: a block is a row
    """
    return lambda w: form(w.reshape(-1, size or w.shape[1])).view_as(w)


def _largest(blocks):
    """Return the largest absolute value of each block, (n, 1)."""
    return blocks.abs().amax(1, keepdim=True).clamp_min(1e-30)


def _as_type(x, kind):
    """Return x rounded to a number format of NumPy or ml_dtypes, as float32."""
    return torch.from_numpy(x.numpy().astype(kind).astype(np.float32))


def _e2m1(x):
    return _as_type(x.clamp(-6, 6), ml_dtypes.float4_e2m1fn)


def _int8(blocks):
    scales = _largest(blocks) / 127
    return (blocks / scales).round() * scales


def _int4(blocks):
    scales = (_largest(blocks) / 7).half().float()
    return (blocks / scales).round().clamp(-7, 7) * scales


def _mxfp4(blocks):
    scales = torch.exp2(torch.floor(torch.log2(_largest(blocks).double())) - 2).float()
    return _e2m1(blocks / scales) * scales


def _nvfp4(blocks):
    whole = blocks.abs().max() / (6 * 448)
    scales = _as_type(_largest(blocks) / 6 / whole, ml_dtypes.float8_e4m3fn) * whole
    return _e2m1(blocks / scales) * scales


def _fp8(blocks):
    scales = _largest(blocks) / 448
    return _as_type(blocks / scales, ml_dtypes.float8_e4m3fn) * scales


E2M1 = "0, ±0.5, ±1, ±1.5, ±2, ±3, ±4, ±6"
FORMATS = {
    "INT8": (_in_blocks(_int8, None), "-127 to 127", "fp32 per row", 8),
    "FP8 (E4M3)": (_in_blocks(_fp8, None), "a float, up to 448", "fp32 per row", 8),
    "INT4, rows": (_in_blocks(_int4, None), "-7 to 7", "fp16 per row", 4),
    "INT4, groups of 32": (_in_blocks(_int4, 32), "-7 to 7", "fp16 per 32", 4.5),
    "MXFP4": (_in_blocks(_mxfp4, 32), E2M1, "a power of two per 32", 4.25),
    "NVFP4": (_in_blocks(_nvfp4, 16), E2M1, "FP8 per 16", 4.5),
}
