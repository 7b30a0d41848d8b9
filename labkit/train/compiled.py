"""Make sure that torch.compile compiles every step of a training, or end with an error."""

from contextlib import contextmanager

import torch
from torch import nn

from labkit.errors import Unavailable


@contextmanager
def compiled_throughout(config, feed):
    """Raise Unavailable where torch.compile fails, or stops compiling, within the `with` block.

    torch.compile makes one form of the network for each size of image. By default it stops after 8
    forms of a function (`torch.compiler.config.recompile_limit`), with only a warning, and runs the
    function eagerly from then on. It counts the forms of all networks of the process together,
    because they share the functions that call them. So within the block the limit is raised by the
    number of forms that exist and of those that this training needs.

    config  a `TrainConfig`; without `compile` nothing is changed or checked
    feed    the `Feed` of the training, which knows the sizes of the images
    Raises  Unavailable where the compiler failed, and where a function has reached the limit
    """
    if not config.compile:
        yield
        return
    import torch.compiler.config as limits

    # torch has no public names for these exceptions
    from torch._dynamo.exc import BackendCompilerFailed, FailOnRecompileLimitHit

    forms = len(feed.sides())
    added = _graphs() + forms
    patch = limits.patch(
        recompile_limit=limits.recompile_limit + added,
        accumulated_recompile_limit=limits.accumulated_recompile_limit + added,
        fail_on_recompile_limit_hit=True,
    )
    try:
        with patch:
            yield
    except FailOnRecompileLimitHit as error:
        fix = "train without compile, or with images of one size"
        if forms == 1:
            fix = (
                "train without compile, or take out of the network's forward what changes from "
                "call to call"
            )
        raise Unavailable(
            "torch.compile gives this training up: it would go on without being compiled.",
            expected=f"{forms} forms of the network, one for each size of image",
            found=_first_lines(error),
            fix=fix,
        ) from None
    except BackendCompilerFailed as error:
        raise Unavailable(
            "The compiler behind torch.compile failed.",
            expected="kernels for this network",
            found=_first_lines(error),
            fix="train without compile; `labkit doctor` looks for a C++ compiler",
        ) from None


class Watched(nn.Module):
    """A wrapper around a network for torch.compile, which counts calls that were not compiled.

    eager_calls  number of calls that Python ran without torch.compile
    """

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network
        self.eager_calls = 0
        self._graphs_before = _graphs()
        self._breaks_before = _graph_breaks()

    def forward(self, *inputs):
        """Call the network, and count the call in `eager_calls` if Python runs this method.

        torch.compile traces this method once, and then runs code that it made from it. A call that
        is traced is not counted, and that code counts nothing.
        """
        if not torch.compiler.is_compiling():
            self.eager_calls += 1
        return self.network(*inputs)

    @property
    def graph_breaks(self) -> int:
        """Return how many graph breaks torch.compile has counted since this object was made.

        At a graph break, Python runs a piece of the network.
        """
        return _graph_breaks() - self._breaks_before

    def require_compiled(self) -> None:
        """Raise Unavailable unless torch.compile has compiled the network.

        It has not where a call of the network ran eagerly, or where there are graph breaks without
        a new graph: then only code around the network was compiled. Without graph breaks and
        without a new graph, the network was compiled before.
        """
        has_graphs = _graphs() > self._graphs_before
        if not self.eager_calls and (has_graphs or not self.graph_breaks):
            return
        raise Unavailable(
            "torch.compile compiled nothing of this network: it ran eagerly.",
            expected="at least one graph",
            found="none, and no error",
            fix="look for TORCHDYNAMO_DISABLE or TORCH_COMPILE_DISABLE in the environment, for "
            "suppress_errors, and "
            "for torch.compiler.disable around the network's forward; or train without compile",
        )


def _graphs():
    """Return how many graphs torch.compile has made in this process."""
    return _counters()["stats"]["unique_graphs"]


def _graph_breaks():
    """Return how many graph breaks torch.compile has counted in this process."""
    return sum(_counters()["graph_break"].values())


def _counters():
    """Return torch.compile's counters: {group: {name: count}}."""
    from torch._dynamo.utils import counters  # torch has no public name for them

    return counters


def _first_lines(error):
    """Return the first two lines of an error's message; in the second a compiler says why."""
    return " ".join(str(error).strip().splitlines()[:2])[:200]
