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
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from labkit.errors import LabError
from labkit.export.operators import HEAVY, QUANTIZED
from labkit.export.runtime import explained, written
from labkit.ledger.shown import shown
from labkit.quantize.numbers import sqnr_db
from labkit.quantize.observed import observe
from labkit.quantize.outliers import outliers_apart
from labkit.quantize.ptq import BETWEEN, in_int8, left_in_float, prepared
from labkit.quantize.sensitivity import logits, multiply_adds, sensitivity
from labkit.quantize.smoothing import smoothed

AUTO = "auto"
ALPHAS = (0.5, 0.7, 0.85)  # of smoothing; 0.5 is the paper's, and some transformers want more
WORTH = 1.0  # dB that smoothing must win: it may bring multiplications of its own
SCANNED = 64  # examples that the noise of a single layer is measured on
RETRIED = 12  # layers in float that are tried in INT8 once more, those with the most multiply-adds
KEPT, SHARE = "kept_in_float", "multiply_adds_in_int8"  # keys of the file's metadata


@dataclass(frozen=True)
class Limit:
    """What INT8 may lose on held-out examples.

    points  most that may be lost, in points of a hundred: items whose largest output moves to another place. It counts
            only where a network puts out (N, classes). One standard error of what was found is added to it: of many
            choices that are tried, the best looks better than it is
    db      least SQNR of the outputs
    labels  count the right answers lost instead, where the examples have labels. INT8 turns wrong answers into right
            ones, too, so this allows more
    """

    points: float = 0.5
    db: float = 15.0
    labels: bool = False

    @property
    def counted(self):
        return "right answers lost" if self.labels else "other answers"

    def holds(self, exact, found, labels=None):
        """Whether `found` may stand for `exact`, both (N, ...); labels (N,) the right answers."""
        least_db = sqnr_db(exact, found) >= self.db
        if exact.ndim != 2:
            return bool(least_db)
        before, after = exact.argmax(-1), found.argmax(-1)
        lost = 1.0 * (before == labels) - (after == labels) if self.labels else before != after
        return bool(least_db and 100 * (np.mean(lost) + np.std(lost) / math.sqrt(len(lost))) <= self.points)

    def answers_to(self, data, exact):
        """The labels of a `Calibration` that are to be counted, (N,), or None.

        exact   what the network puts out for it
        Raises  LabError: there are none, or the network does not answer with them
        """
        if not self.labels or exact.ndim != 2:
            return None
        expected = "the right answer to each example, as the number of an output"
        if data.labels is None:
            raise LabError("Right answers cannot be counted.", expected=expected, found="no labels", fix=_UNLABELLED)
        right, usual = np.mean(exact.argmax(-1) == data.labels), np.bincount(data.labels).max() / len(data.labels)
        if right <= usual:
            found = f"{right:.0%} right; always the same answer would be right in {usual:.0%}"
            what = "The network does not answer with these labels."
            raise LabError(what, expected=expected, found=found, fix=_UNLABELLED)
        return data.labels


_UNLABELLED = "count other answers: without --labels, in Python Limit(labels=False)"


def automatic(src, dst, data, held_out, *, limit=None, **settings):
    """Quantize an ONNX file to INT8 and keep in float what it takes to hold the limit: the path `dst`.

    data      a `Calibration`: ranges and the noise of single layers are measured on it
    held_out  another one, of other examples, which the network was not trained on: the limit is judged on it
    limit     a `Limit`; None: its defaults
    settings  of `in_int8`: recipe, method
    The file's metadata says what stays in float, with a reason per layer: `kept` reads it.
    Raises    LabError: no layer bears INT8 within the limit; labels that do not fit
    """
    model, limit = prepared(src), limit or Limit()
    with explained(Path(src).name, "quantized"):
        seen, exact = observe(model, data), logits(model, held_out)
        labels = limit.answers_to(held_out, exact)

        def holds(keep):
            found = logits(in_int8(model, seen, keep=keep, **settings), held_out)
            return limit.holds(exact, found, labels)

        reasons, notes = {}, {}
        if not holds(()):
            model, seen, notes = _flatter(model, seen, data, settings)
            alone = sensitivity(model, seen, data.first(SCANNED), **settings)
            reasons = _fewest(model, holds, multiply_adds(model, seen), alone)
    work = multiply_adds(model, seen)
    reasons |= dict(_never_in_integers(model, work))
    if set(work) <= set(reasons):
        raise _refused(src, limit, {node.op_type for node in model.graph.node if node.name in work})
    made = in_int8(model, seen, keep=reasons, **settings)
    props = {entry.key: entry.value for entry in made.metadata_props} | {"smoothed": "no"} | notes
    share = 1 - sum(work.get(name, 0) for name in reasons) / sum(work.values())
    return written(made, dst, **props, **{KEPT: json.dumps(reasons), SHARE: f"{share:.4f}"})


def _flatter(model, seen, data, settings):
    """(the model, what was observed, notes): smoothed, or its outliers multiplied in float, where that wins `WORTH` dB
    on calibration data, or as it is. Products in float cost time in each call, so they must win twice as much."""
    some = data.first(SCANNED)
    exact = logits(model, some)

    def db(*pair):
        return sqnr_db(exact, logits(in_int8(*pair, **settings), some))

    before, found = db(model, seen), []
    ways = [("smoothed", f"alpha {alpha}", partial(smoothed, alpha=alpha)) for alpha in ALPHAS]
    for key, how, way in (*ways, ("outliers", "in float", outliers_apart)):
        flat = way(model, data)
        flat_seen = observe(flat, data)
        gain = db(flat, flat_seen) - before
        score = gain - WORTH * (2 if way is outliers_apart else 1)
        found.append((score, flat, flat_seen, {key: f"{how}, {gain:.1f} dB better"}))
    score, *best = max(found, key=lambda each: each[0])
    return best if score >= 0 else (model, seen, {})


def kept(path):
    """({node: why it stayed in float}, share of the multiply-adds in INT8) of a file that `automatic` wrote."""
    import onnx

    found = {entry.key: entry.value for entry in onnx.load(path, load_external_data=False).metadata_props}
    return json.loads(found.get(KEPT, "{}")), float(found.get(SHARE, "nan"))


def _fewest(model, holds, work, table):
    """{node to keep in float: reason}: the fewest multiply-adds, found by noise per multiply-add and then by trying.

    table  what `sensitivity` says of each layer alone
    """
    reasons = dict(zip(table["layer"], _reasons(model, table), strict=True))
    noise = 10 ** (-table["sqnr_db"] / 10)
    ranked = table["layer"][(-noise / table["multiply_adds"]).argsort()].tolist()
    between = [node.name for node in model.graph.node if node.op_type in BETWEEN]
    free = [] if holds(ranked) else between  # they multiply nothing: all or none
    low, high = 0, len(ranked)  # more than `low` layers stay in float, at most `high`
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds([*free, *ranked[:middle]]) else (middle, high)
    keep = ranked[:high]
    for name in sorted(keep, key=work.get, reverse=True)[:RETRIED]:
        fewer = [other for other in keep if other != name]
        keep = fewer if holds([*free, *fewer]) else keep
    return {name: reasons[name] for name in keep} | dict.fromkeys(free, "between two layers, and it multiplies nothing")


def _reasons(model, table):
    """A sentence per layer of the scan: what INT8 for it alone costs."""
    noise = 10 ** (-table["sqnr_db"] / 10)
    groups = {node.name: attribute.i for node in model.graph.node for attribute in node.attribute
              if attribute.name == "group" and attribute.i > 1}  # fmt: skip
    for row, part in zip(table.itertuples(), noise / noise.sum(), strict=True):
        kind = "depthwise or grouped convolution" if row.layer in groups else row.kind
        cost = f"{shown(100 * row.multiply_adds, '%')} of the multiply-adds"
        yield f"{kind}: alone it makes {shown(100 * part, '%')} of the noise, with {cost}"


def _never_in_integers(model, work):
    """(node, reason) of each heavy operator that no recipe quantizes."""
    left = left_in_float(model)
    for node in model.graph.node:
        share = f"{shown(100 * work.get(node.name, math.nan) / sum(work.values()), '%')} of the multiply-adds"
        if node.op_type in HEAVY and node.op_type not in QUANTIZED:
            yield node.name, f"{node.op_type}: no recipe puts it into integers; {share}"
        elif node.op_type in HEAVY and node.name in left:
            yield node.name, f"product of outliers: they reach much further than the other channels; {share}"


def _refused(src, limit, kinds):
    return LabError(
        f"No layer of {Path(src).name} bears INT8 within the limit.",
        expected=f"at most {limit.points:g} points of {limit.counted} and at least {limit.db:g} dB",
        found=f"every {', '.join(sorted(kinds))} would stay in float",
        fix="allow more with --loss and --limit, calibrate on more images with --count, or use --precision fp16",
    )
