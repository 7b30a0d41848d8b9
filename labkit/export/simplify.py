"""Graph optimisations, one at a time and each into a file, so that what it does can be seen and timed."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from labkit.export.gate import checked, made_here
from labkit.export.runtime import explained, session, written
from labkit.files import atomic


def _fold_constants(model):
    """Compute what does not depend on the input, once and for all: shapes, constants, what only they lead to."""
    import onnx_ir
    from onnx_ir.passes.common import LiftConstantsToInitializersPass
    from onnxscript import optimizer

    graph = onnx_ir.from_proto(model)
    optimizer.inline(graph)
    optimizer.fold_constants(graph)
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(graph)
    optimizer.remove_unused_nodes(graph)
    return onnx_ir.to_proto(graph)


def _slim(model, *, skip):
    """What onnxslim does, but for the optimisations to skip."""
    import onnxslim

    # It infers all shapes anew, which takes most of its time. Without, ConvNeXt keeps 28 additions more.
    return onnxslim.slim(model, skip_optimizations=["constant_folding", "weight_tying", *skip])


PASSES: dict[str, Callable] = {
    "constants folded": _fold_constants,
    # what changes nothing: identity, dropout at inference, casts and reshapes to what already is
    "redundant removed": partial(_slim, skip=["graph_fusion"]),
    # and the scale and shift of batch norm, which the convolution before it takes in; other pairs of operators, too
    "batch norm fused": partial(_slim, skip=[]),
}


def simplify(src: str | Path, dst: str | Path, passes: Iterable[str] = tuple(PASSES)) -> Path:
    """Write a simpler copy of an ONNX file that computes the same: the path `dst`.

    passes   names of `PASSES`, applied in that order
    Source   onnxscript's constant folding, onnxslim's eliminations and fusions
    """
    model = checked(src)
    with explained(src, "simplified"):
        for name in passes:
            model = PASSES[name](model)
    return written(model, dst)


def runtime_graph(src: str | Path, dst: str | Path, level: str = "extended") -> Path:
    """Write the graph that ONNX Runtime makes of a file before it runs it: the path `dst`.

    level  of `LEVELS`; "all" is made for this machine's CPU and must not travel to another
    """
    model = checked(src)  # with its weights: their own files lie beside `src` and not beside `dst`
    with atomic(dst) as temporary:
        session(model, level, optimized_model_filepath=str(temporary))
    return made_here(Path(dst))
