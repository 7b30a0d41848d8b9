"""INT8 on networks of today, beside the tools people use: what is lost, what runs in integers, how
fast it is.

    python benchmarks/quantization.py [--quick] [--only NAME]

About an hour and a quarter on one thread; `--quick` under a minute, with two small networks. Each
network is quantized plainly, and by `--keep auto` (`automatic`), which leaves in float what it
takes to hold the limit; beside them stand, on the same calibration data,
`onnxruntime.quantization`, and NNCF where it is installed. What is lost is that of the file as it
is written, with its paired 95 % interval: right answers, and other answers where no labels are
known. No network was trained on the images it is judged or tested on, but MiniLM may have met its
texts, and the decoder the paragraphs that its ranges are observed on.
Speed: `quantization_speed.py`.
"""

import argparse
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from figures import Figures
from quantization_foreign import CASES as FOREIGN
from quantization_networks import CASES
from quantization_peers import PEERS, run
from quantization_speed import ENGINES, OURS, speed

from labkit import text
from labkit.errors import LabError
from labkit.measure.stats import bootstrap_paired
from labkit.quantize import Limit, all_outputs, automatic, float_nodes, observe, static
from labkit.quantize.integer_grid import sqnr_db
from labkit.quantize.sensitivity import multiply_adds_by_node

# at most so many points of other answers, with at least so many % in INT8
POINTS, LEAST_IN_INT8 = 0.5, 80
AGREEMENT = 99  # % of nearest neighbours kept, for sentence vectors
# integers stay such
MOVING = ("Flatten", "Gather", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
QUICK = ("cnn-medium", "gru")
CASES |= FOREIGN


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two small networks: under a minute")
    parser.add_argument(
        "--only", choices=CASES, metavar="NAME", help="one network: " + ", ".join(CASES)
    )
    options, figures = parser.parse_args(), Figures()
    warnings.filterwarnings("ignore")
    for name, make in CASES.items():
        if options.only == name or (options.only is None and (name in QUICK or not options.quick)):
            with tempfile.TemporaryDirectory() as folder:
                figures.part(name, one, make, name, Path(folder), options.quick)
    figures.exit()


def one(figures, make, name, folder, quick):
    """All figures of one network."""
    case = make(name, folder, quick)
    whole = all_outputs(case.path, case.tested)
    exact = first(whole)
    if case.tested.labels is not None:
        figures.add(
            f"{name}_accuracy",
            100 * np.mean(exact.argmax(case.axis) == case.tested.labels),
            unit="%",
        )
    files = {"plain": static(case.path, folder / "plain.onnx", case.seen)}
    for peer in PEERS[:1] if quick else PEERS:
        try:
            run(peer, case.path, folder / f"{peer}.onnx", case.seen)
        except Exception as error:  # a peer that fails is a line, and not the end
            print(f"# {name} {peer}: {' '.join(str(error).split())[:200]}")
            continue
        files[peer] = folder / f"{peer}.onnx"
    found = {way: all_outputs(path, case.tested) for way, path in files.items()}
    for way, answers in found.items():
        told(figures, case, way, whole, answers)
    shares = {way: share_in_int8(path, case.seen) for way, path in files.items()}
    for way, share in shares.items():
        figures.add(f"{name}_{way}_in_int8", 100 * share, unit="%")
    found = {way: first(found[way]) for way in found if shares[way] > shares["plain"] - 0.01}
    beside_the_best(figures, case, exact, found)
    ours(figures, case, whole, folder / "auto.onnx")
    files = {way: path for way, path in files.items() if way in PEERS}
    for engine in ENGINES:
        if path := ours(figures, case, whole, folder / f"{OURS}{engine}.onnx", recipe=engine):
            files[path.stem] = path
    if len(whole) == 1:  # those of several outputs were not timed: an engine serves the first
        speed(figures, case, exact, files, seconds=0.5 if quick else 2)


def first(outputs):
    return next(iter(outputs.values()))


def ours(figures, case, whole, path, **recipe):
    """What `--keep auto` makes of it: its targets are those of the command.

    The path, or None where it is refused.
    """
    way = path.stem
    limit = Limit(points=POINTS, labels=case.tested.labels is not None, axis=case.axis)
    if case.vectors:
        limit = Limit(points=100, min_sqnr=25)
    try:
        automatic(case.path, path, case.seen, case.judged, limit=limit, **recipe)
    except LabError as error:
        print(f"# {case.name} {way}: {error.what} Found: {error.found}")
        figures.add(f"{case.name}_{way}_in_int8", 0, at_least=LEAST_IN_INT8, unit="%")
        return None
    share = (100 - AGREEMENT if case.vectors else POINTS) / 100
    # two standard errors of a count of so many
    slack = 200 * np.sqrt(share * (1 - share) / case.tested.count)
    told(figures, case, way, whole, all_outputs(path, case.tested), slack)
    reasons, share, _ = float_nodes(path)
    figures.add(f"{case.name}_{way}_in_int8", 100 * share, at_least=LEAST_IN_INT8, unit="%")
    for node, reason in list(reasons.items())[:3]:
        print(f"#     in float: {node}: {reason}")
    figures.add(f"{case.name}_{way}_nodes_in_float", len(reasons))
    figures.add(
        f"{case.name}_{way}_size", 100 * path.stat().st_size / case.path.stat().st_size, unit="%"
    )
    return path


def told(figures, case, way, whole, answers, slack=None):
    """SQNR of each output, right answers lost and other ones in points; or nearest neighbours kept
    in per cent.

    slack  what a sample of this size may lie off the target; None: no target
    """
    for number, output in enumerate(whole):
        name = f"{case.name}_{way}{f'_{output}' if number else ''}_sqnr"
        figures.add(name, sqnr_db(whole[output], answers[output]), unit="dB")
    exact, found = first(whole), first(answers)
    changed, labels = changes(case, exact, found), case.tested.labels
    least, most = (
        ({}, {})
        if slack is None
        else ({"at_least": AGREEMENT - slack}, {"at_most": POINTS + slack})
    )
    if case.vectors:
        with_interval(
            figures,
            f"{case.name}_{way}_same_nearest",
            changed,
            np.zeros(len(changed)),
            unit="%",
            **least,
        )
        return
    others = {} if labels is not None else most
    with_interval(
        figures, f"{case.name}_{way}_other_answers", np.zeros(len(changed)), changed, **others
    )
    if labels is not None:
        less = lost(case, exact, found)
        with_interval(
            figures, f"{case.name}_{way}_right_answers_lost", np.zeros(len(less)), less, **most
        )


def changes(case, exact, found):
    """(N,) how much each item's answer has changed, 0 to 1: another class, or other nearest
    neighbours.
    """
    if case.vectors:
        return 1 - text.agreement(torch.from_numpy(exact), torch.from_numpy(found))
    return by_item(exact.argmax(case.axis) != found.argmax(case.axis))


def by_item(answers):
    """(N,) the mean of the answers that each item has: one, or one for each pixel or cell."""
    return answers.reshape(len(answers), -1).mean(1)


def lost(case, exact, found):
    """(N,) right answers lost, -1 to 1 each; where no labels are known, answers changed."""
    if case.vectors or case.tested.labels is None:
        return changes(case, exact, found)
    before, after = (answers.argmax(case.axis) == case.tested.labels for answers in (exact, found))
    return by_item(before.astype(float) - after)


def with_interval(figures, name, before, after, *, unit="points", **target):
    """A figure for the mean of `after - before`, both (N,), in hundredths; in "%": for 100 plus
    that.
    """
    change, whole = 100 * bootstrap_paired(before, after), 100 * (unit == "%")
    figures.add(name, whole + change.median, unit=unit, **target)
    print(f"#     95 % interval {whole + change.low:.2f} to {whole + change.high:.2f} {unit}")


def share_in_int8(path, data):
    """Share of the multiply-adds, 0 to 1, of the nodes of a file that read two factors from
    integers.
    """
    model = onnx.load(path)
    work = multiply_adds_by_node(model, observe(model, data.first(64)))
    back = set()
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" or (node.op_type in MOVING and node.input[0] in back):
            back.update(node.output)
    done = {node.name for node in model.graph.node if back.issuperset(node.input[:2])}
    return sum(work[name] for name in work if name in done) / sum(work.values())


def beside_the_best(figures, case, exact, found):
    """As much in INT8: how much more ours loses than the peer that loses least; 0 must be
    possible.
    """
    losses = {way: lost(case, exact, answers) for way, answers in found.items()}
    best = min(
        (way for way in losses if way in PEERS), key=lambda way: losses[way].mean(), default=None
    )
    if best is not None:
        more = 100 * bootstrap_paired(losses[best], losses["plain"])
        figures.add(f"{case.name}_plain_loses_more_than_{best}", more.median, unit="points")
        print(f"#     95 % interval {more.low:.2f} to {more.high:.2f} points")
        figures.add(f"{case.name}_plain_called_worse", more.low > 0, at_most=0)


if __name__ == "__main__":
    main()
