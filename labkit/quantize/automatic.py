"""Partial quantization: INT8 that leaves as little in float as the answers allow.

What     the network is smoothed (`smoothing`), or its outliers are multiplied in float (`outliers`), where that pays;
         each layer is put into INT8 alone and its noise in the answers is measured; those with the most noise per
         multiply-add stay in float, as many as it takes; then each of them is tried in INT8 once more
When     all layers in INT8 change too many answers: few channels, depthwise convolutions, attention
Cost     one quantization and one run of the network per layer, a minute or more; float layers give up their speed
Not when half of the multiply-adds would stay in float: FP16 is simpler then, and closer
Source   Wu et al. 2020, arXiv:2004.09602, section 6
"""

import json
import math
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from labkit.errors import LabError
from labkit.export.operators import HEAVY, QUANTIZED
from labkit.export.runtime import explained, notes, written
from labkit.ledger.shown import shown
from labkit.quantize.limit import Limit
from labkit.quantize.numbers import sqnr_db
from labkit.quantize.observed import observe
from labkit.quantize.outliers import outliers_apart
from labkit.quantize.ptq import BETWEEN, in_int8, left_in_float, prepared
from labkit.quantize.sensitivity import all_outputs, logits, multiply_adds_by_node, sensitivity
from labkit.quantize.smoothing import smoothed

SCANNED = 64  # examples that the noise of a single layer is measured on
RETRIED = 12  # layers in float that are tried in INT8 once more, those with the most multiply-adds
KEPT, SHARE, JUDGED = "kept_in_float", "multiply_adds_in_int8", "judged"  # keys of the file's metadata
# Ways to make a network easier to quantize: what the file says of it, the change, decibels that it must win.
WAYS = (
    ("smoothed", "alpha 0.5", smoothed, 1.0),  # it may bring multiplications of its own
    ("smoothed", "alpha 0.8", partial(smoothed, alpha=0.8), 1.0),  # some transformers want more than the usual 0.5
    ("outliers", "in float", outliers_apart, 2.0),  # products in float cost time in each call
)


def automatic(src, dst, data, held_out, *, limit=None, **settings):
    """Quantize an ONNX file to INT8 and keep in float what it takes to hold the limit: the path `dst`.

    data      a `Calibration`: ranges and the noise of single layers are measured on it
    held_out  another one, of other examples, which the network was not trained on: the limit is judged on it
    limit     a `Limit`; None: its defaults. Answers are counted in the first output, decibels in each
    settings  of `in_int8`: recipe, method
    The file's metadata says what stays in float, with a reason per layer: `float_nodes` reads it.
    Raises    LabError: no layer bears INT8 within the limit; labels that do not fit
    """
    limit = limit or Limit()
    model = prepared(src)
    with explained(src, "quantized"):
        network = _Network(model, observe(model, data), settings)
        first, *others = (exact := all_outputs(model, held_out))
        labels = limit.labels_of(held_out, exact[first])

        def holds(network, in_float=()):
            found = all_outputs(network.in_int8(in_float), held_out)
            near = all(sqnr_db(exact[name], found[name]) >= limit.min_sqnr for name in others)
            return near and limit.holds(exact[first], found[first], labels)

        reasons = {}
        if not holds(network):
            network = _easier(network, data)
            table = sensitivity(network.model, network.seen, data.first(SCANNED), **settings)
            reasons = _fewest(network.model, partial(holds, network), table)
    work = multiply_adds_by_node(network.model, network.seen)
    reasons |= _never_in_integers(network.model, work)
    if set(work) <= set(reasons):
        heavy = [node for node in network.model.graph.node if node.name in work]
        raise LabError(
            f"No layer of {Path(src).name} bears INT8 within the limit.",
            expected=str(limit),
            found=f"every {', '.join(sorted({node.op_type for node in heavy}))} would stay in float",
            fix="allow more with --loss and --min-sqnr, calibrate on more images with --count, or use --precision fp16",
        )
    share = 1 - sum(work.get(name, 0) for name in reasons) / sum(work.values())
    known = "which the network was not trained on" if limit.unseen else "which it may have been trained on: unknown"
    about = {KEPT: json.dumps(reasons), SHARE: f"{share:.4f}", JUDGED: f"{held_out.note}, {known}"}
    return written(network.in_int8(reasons), dst, **{"smoothed": "no", **network.notes, **about})


@dataclass(frozen=True)
class _Network:
    """A network that is quantized again and again, with other nodes in float.

    model     a `prepared` ModelProto
    seen      what `observe` returned for it
    settings  of `in_int8`
    notes     what the file shall say of how the network was changed
    """

    model: Any
    seen: dict
    settings: dict
    notes: dict = field(default_factory=dict)

    def in_int8(self, in_float=()):
        return in_int8(self.model, self.seen, in_float=in_float, **self.settings)


def float_nodes(path: str | Path) -> tuple:
    """({node: why it stayed in float}, share of the multiply-adds in INT8, on what that was judged) of a file."""
    import onnx

    found = notes(onnx.load(path, load_external_data=False))
    return json.loads(found.get(KEPT, "{}")), float(found.get(SHARE, "nan")), found.get(JUDGED, "unknown")


def _easier(network, data):
    """The network, changed in one of the `WAYS` where that wins decibels enough, on calibration data."""
    some = data.first(SCANNED)
    exact = logits(network.model, some)

    def decibels(network):
        return sqnr_db(exact, logits(network.in_int8(), some))

    before = decibels(network)
    found = [(0.0, network)]
    for key, how, change, least_gain in WAYS:
        model = change(network.model, data)
        changed = replace(network, model=model, seen=observe(model, data))
        gain = decibels(changed) - before
        found.append((gain - least_gain, replace(changed, notes={key: f"{how}, {gain:.1f} dB better"})))
    _, best = max(found, key=lambda each: each[0])
    return best


def _fewest(model, holds, table):
    """{node to leave in float: reason}: the fewest multiply-adds, found by noise per multiply-add and then by trying.

    holds  names of nodes in float -> whether the limit holds
    table  what `sensitivity` says of each layer alone
    """
    noise = 10 ** (-table["sqnr_db"] / 10)
    ranked = table["layer"][(-noise / table["share_of_work"]).argsort()].tolist()
    between = [] if holds(ranked) else [node.name for node in model.graph.node if node.op_type in BETWEEN]
    count = bisect_left(range(len(ranked)), True, key=lambda count: holds([*between, *ranked[:count]]))
    in_float = ranked[:count]
    work = dict(zip(table["layer"], table["share_of_work"], strict=True))
    for name in sorted(in_float, key=work.get, reverse=True)[:RETRIED]:
        fewer = [other for other in in_float if other != name]
        if holds([*between, *fewer]):
            in_float = fewer
    reasons = _reasons(model, table)
    found = {name: reasons[name] for name in in_float}
    return found | dict.fromkeys(between, "between two layers, and it multiplies nothing")


def _reasons(model, table):
    """{layer of the scan: a sentence, what INT8 for it alone costs}"""
    noise = 10 ** (-table["sqnr_db"] / 10)
    grouped = {node.name for node in model.graph.node for each in node.attribute if each.name == "group" and each.i > 1}
    found = {}
    for row, part in zip(table.itertuples(), noise / noise.sum(), strict=True):
        kind = "depthwise or grouped convolution" if row.layer in grouped else row.kind
        cost = f"{shown(100 * row.share_of_work, '%')} of the multiply-adds"
        found[row.layer] = f"{kind}: alone it makes {shown(100 * part, '%')} of the noise, with {cost}"
    return found


def _never_in_integers(model, work):
    """{heavy node that no recipe quantizes: reason}"""
    products = left_in_float(model)
    found = {}
    for node in model.graph.node:
        share = f"{shown(100 * work.get(node.name, math.nan) / sum(work.values()), '%')} of the multiply-adds"
        if node.op_type in HEAVY and node.op_type not in QUANTIZED:
            found[node.name] = f"{node.op_type}: no recipe puts it into integers; {share}"
        elif node.name in products and node.op_type in HEAVY:
            found[node.name] = f"product of outliers: they reach much further than the other channels; {share}"
    return found
