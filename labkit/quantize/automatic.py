"""Partial quantization: INT8 for as many layers as the limit on lost answers allows.

What     the network is smoothed (`smoothing`), or its outliers are multiplied in float
         (`outliers`), if one of these improves the answers. Then each layer is put into INT8 alone,
         to measure the noise that it adds to the answers. The layers are ranked by noise per
         multiply-add. Layers stay in float in the order of this ranking, the worst first, until the
         limit is met. At the end some of these layers, those with the most multiply-adds, are tried
         in INT8 once more
When     all layers in INT8 change too many answers: few channels, depthwise convolutions, attention
Cost     one quantization and one run of the network per layer, a minute or more in total; layers in
         float are not faster than before
Not when half of the multiply-adds would stay in float: then FP16 is simpler and loses less
Source   Wu et al. 2020, arXiv:2004.09602, section 6
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from labkit.errors import LabError
from labkit.export.operators import HEAVY, QUANTIZED
from labkit.export.runtime import explained, notes
from labkit.export.variation import likeness
from labkit.export.write import write_model
from labkit.format import shown
from labkit.quantize.activation_ranges import observe
from labkit.quantize.integer_grid import sqnr_db
from labkit.quantize.limit import Limit
from labkit.quantize.outliers import outliers_apart
from labkit.quantize.preparation import prepared_for_quantizer
from labkit.quantize.ptq import LIGHT, in_int8, outlier_products
from labkit.quantize.sensitivity import all_outputs, logits, multiply_adds_by_node, sensitivity
from labkit.quantize.smoothing import smoothed

SCAN_EXAMPLES = 64  # number of examples on which the noise of a single layer is measured
# number of layers in float that are tried in INT8 once more: those with the most multiply-adds
RETRIED_LAYERS = 12

# Keys of the file's metadata.
FLOAT_NODES_KEY = "kept_in_float"
INT8_SHARE_KEY = "multiply_adds_in_int8"
JUDGED_ON_KEY = "judged"


class Transformation(NamedTuple):
    """A change of the network that may make it easier to quantize.

    metadata_key  key of the file's metadata under which the change is noted
    description   the setting of the change in words, such as "alpha 0.5", for that note
    apply         function (ModelProto, `Calibration`) -> the changed ModelProto
    min_gain_db   the change is made only if it raises the SQNR of the answers by more than this
    """

    metadata_key: str
    description: str
    apply: Callable
    min_gain_db: float


TRANSFORMATIONS = (
    # Smoothing may add multiplications to the network.
    Transformation("smoothed", "alpha 0.5", smoothed, 1.0),
    # Some transformers need more than the usual 0.5.
    Transformation("smoothed", "alpha 0.8", partial(smoothed, alpha=0.8), 1.0),
    # Products in float take time in each call.
    Transformation("outliers", "in float", outliers_apart, 2.0),
)


def automatic(src, dst, data, held_out, *, limit=None, **settings):
    """Quantize an ONNX file to INT8 with as few layers in float as a limit allows.

    src, dst  paths of the file and of the quantized file
    data      a `Calibration`. The ranges of the activations and the noise of each layer are
              measured on it
    held_out  a `Calibration` of other examples, which the network was not trained on. The lost
              answers are counted on it
    limit     a `Limit`: the most that may be lost. Answers are counted in the first output; the
              least SQNR must be reached by every output. None: `Limit()`
    settings  keyword arguments of `in_int8`: recipe, method, weight_bits
    returns   the path `dst`
    Raises    LabError: within the limit no layer can be in INT8; the labels of `held_out` do not
              fit the network

    The file's metadata names the nodes that stay in float, with a reason for each. `float_nodes`
    reads them.
    """
    limit = limit or Limit()
    model = prepared_for_quantizer(src)
    with explained(src, "quantized"):
        network = _Network(model, observe(model, data), settings)
        exact = all_outputs(model, held_out)
        first_output, *further_outputs = exact
        labels = limit.labels_of(held_out, exact[first_output])

        def within_limit(network, in_float=()):
            outputs = all_outputs(network.in_int8(in_float), held_out)
            for name in further_outputs:
                close_enough = likeness(exact[name], outputs[name]).lowest_db >= limit.min_sqnr
                if not close_enough:  # NaN is not close, either
                    return False
            return limit.holds(exact[first_output], outputs[first_output], labels)

        # If INT8 everywhere is too much, transform the network and choose layers to leave in float.
        reasons = {}
        if not within_limit(network):
            network = _transformed(network, data)
            table = sensitivity(
                network.model, network.histograms, data.first(SCAN_EXAMPLES), **settings
            )
            reasons = _choose_float_layers(network.model, partial(within_limit, network), table)

    # Add the nodes that no recipe quantizes, and refuse a file in which nothing is left to
    # quantize.
    work = multiply_adds_by_node(network.model, network.histograms)
    reasons |= _reasons_of_unquantized(network.model, work)
    if set(work) <= set(reasons):
        raise _nothing_in_int8(src, network.model, work, limit)

    # Write what was done into the file.
    share_in_float = sum(work.get(name, 0) for name in reasons) / sum(work.values())
    if limit.unseen:
        judged_on = f"{held_out.description}, which the network was not trained on"
    else:
        judged_on = f"{held_out.description}, which it may have been trained on: unknown"
    metadata = {
        "smoothed": "no",
        **network.metadata,
        FLOAT_NODES_KEY: json.dumps(reasons),
        INT8_SHARE_KEY: f"{1 - share_in_float:.4f}",
        JUDGED_ON_KEY: judged_on,
    }
    return write_model(network.in_int8(reasons), dst, **metadata)


def _nothing_in_int8(src, model, work, limit):
    op_types = {node.op_type for node in model.graph.node if node.name in work}
    return LabError(
        f"No layer of {Path(src).name} bears INT8 within the limit.",
        expected=str(limit),
        found=f"every {', '.join(sorted(op_types))} would stay in float",
        fix="allow more with --loss and --min-sqnr, calibrate on more images with --count, or use "
        "--precision fp16",
    )


@dataclass(frozen=True)
class _Network:
    """A network that is quantized several times, with different nodes in float.

    model       a ModelProto that `prepared_for_quantizer` returned
    histograms  result of `observe` for the model
    settings    keyword arguments of `in_int8`
    metadata    {key: text} for the quantized file: how the network was transformed
    """

    model: Any
    histograms: dict
    settings: dict
    metadata: dict = field(default_factory=dict)

    def in_int8(self, in_float=()):
        return in_int8(self.model, self.histograms, in_float=in_float, **self.settings)


def float_nodes(path: str | Path) -> tuple:
    """Read from a file which nodes the function `automatic` left in float.

    Returns a tuple of three:
    - the reasons, {name of a node in float: sentence}
    - the share of the multiply-adds that are in INT8, 0 to 1
    - a description of the held-out data, on which the limit was checked

    For a file that `automatic` did not write, these are {}, NaN and "unknown".
    """
    import onnx

    metadata = notes(onnx.load(path, load_external_data=False))
    reasons = json.loads(metadata.get(FLOAT_NODES_KEY, "{}"))
    share = float(metadata.get(INT8_SHARE_KEY, "nan"))
    return reasons, share, metadata.get(JUDGED_ON_KEY, "unknown")


def _transformed(network, data):
    """Return the `_Network` after the best of the `TRANSFORMATIONS`.

    The best transformation is the one whose gain exceeds its `min_gain_db` by most. If there is
    none, the network is returned unchanged. The gain is the increase of the SQNR of the first
    output, with all layers in INT8, on the first examples of `data`.

    data  a `Calibration`
    """
    examples = data.first(SCAN_EXAMPLES)
    exact = logits(network.model, examples)
    original_db = sqnr_db(exact, logits(network.in_int8(), examples))

    best = network
    best_advantage = 0.0  # decibels above the gain that the transformation must have
    for transformation in TRANSFORMATIONS:
        model = transformation.apply(network.model, data)
        candidate = replace(network, model=model, histograms=observe(model, data))
        gain = sqnr_db(exact, logits(candidate.in_int8(), examples)) - original_db
        advantage = gain - transformation.min_gain_db
        if advantage > best_advantage:
            best_advantage = advantage
            note = f"{transformation.description}, {gain:.1f} dB better"
            best = replace(candidate, metadata={transformation.metadata_key: note})
    return best


def _choose_float_layers(model, within_limit, table):
    """Choose layers that stay in float so that the network meets the limit.

    Returns {node: reason}. The chosen layers have few multiply-adds in total.

    model         the ModelProto
    within_limit  function (list of nodes that stay in float) -> True if the network then meets the
                  limit
    table         result of `sensitivity`: the noise that each layer adds when it alone is in INT8
    """
    # Rank the layers by noise per multiply-add, the worst first.
    noise = 10 ** (-table["sqnr_db"] / 10)
    order = (-noise / table["share_of_work"]).argsort()
    ranked = table["layer"][order].tolist()

    # If all layers in float do not suffice, the light operators between them stay in float, too.
    light_nodes = []
    if not within_limit(ranked):
        light_nodes = [node.name for node in model.graph.node if node.op_type in LIGHT]

    # Binary search for the shortest beginning of the ranking that suffices. Each try quantizes and
    # runs the network.
    fewest = 0
    most = len(ranked)
    while fewest < most:
        count = (fewest + most) // 2
        if within_limit([*light_nodes, *ranked[:count]]):
            most = count
        else:
            fewest = count + 1
    in_float = ranked[:fewest]

    # Try to put each of them into INT8 again, those with the most multiply-adds first.
    work = dict(zip(table["layer"], table["share_of_work"], strict=True))
    for layer in sorted(in_float, key=work.get, reverse=True)[:RETRIED_LAYERS]:
        without_layer = [name for name in in_float if name != layer]
        if within_limit([*light_nodes, *without_layer]):
            in_float = without_layer

    layer_reasons = _reasons_by_layer(model, table)
    reasons = {layer: layer_reasons[layer] for layer in in_float}
    for name in light_nodes:
        reasons[name] = "between two layers, and it multiplies nothing"
    return reasons


def _reasons_by_layer(model, table):
    """Return {layer: sentence} for all layers in the result of `sensitivity`.

    The sentence says the layer's share of the noise and of the multiply-adds.
    """
    # Convolutions of several groups get a name of their own.
    grouped = set()
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "group" and attribute.i > 1:
                grouped.add(node.name)

    # The share of the noise, from decibels to power.
    noise = 10 ** (-table["sqnr_db"] / 10)
    noise_shares = noise / noise.sum()
    reasons = {}
    for row, noise_share in zip(table.itertuples(), noise_shares, strict=True):
        kind = row.kind
        if row.layer in grouped:
            kind = "depthwise or grouped convolution"
        noise_percent = shown(100 * noise_share, "%")
        work_percent = shown(100 * row.share_of_work, "%")
        reasons[row.layer] = (
            f"{kind}: alone it makes {noise_percent} of the noise, with {work_percent} of the "
            "multiply-adds"
        )
    return reasons


def _reasons_of_unquantized(model, work):
    """Return {node: reason} for the heavy nodes that stay in float in any case.

    These are the operators without integer kernels, such as a GRU, and the products of outliers.

    work  {heavy node: its multiply-adds}
    """
    products = outlier_products(model)
    total = sum(work.values())
    reasons = {}
    for node in model.graph.node:
        if node.op_type not in HEAVY:
            continue
        percent = shown(100 * work.get(node.name, math.nan) / total, "%")
        if node.op_type not in QUANTIZED:
            reasons[node.name] = (
                f"{node.op_type}: no recipe puts it into integers; {percent} of the multiply-adds"
            )
        elif node.name in products:
            reasons[node.name] = (
                f"product of outliers: they reach much further than the other channels; {percent} "
                "of the multiply-adds"
            )
    return reasons
