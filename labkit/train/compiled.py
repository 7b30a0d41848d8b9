"""Make sure that torch.compile compiles every step of a training, or end with an error."""

from contextlib import contextmanager

import torch
from torch import nn

from labkit.errors import Unavailable


@contextmanager
def compiled_throughout(config, feed):
    """Raise Unavailable, within the `with` block, where torch.compile fails or stops compiling.

    torch.compile may make one form of the network for each size of image.

    config  a `TrainConfig`; without `compile` this does nothing
    feed    the `Feed` of the training, which knows the sizes
    Raises  Unavailable where the compiler failed, and where torch has compiled some function as
            often as it may, and would run it eagerly from then on

    By default torch stops after 8 forms of a function (`torch.compiler.config.recompile_limit`),
    with a warning only. It counts the forms of all networks of the process together, because they
    share the functions that call them. So the limit is raised by the forms that exist and that will
    be needed.
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
        """Call the network, and count the call if Python runs it.

        While torch.compile traces this method the condition is false, so compiled code does not
        count.
        """
        if not torch.compiler.is_compiling():
            self.eager_calls += 1
        return self.network(*inputs)

    @property
    def graph_breaks(self) -> int:
        """Return how many graph breaks torch.compile has counted since; at each, Python runs."""
        return _graph_breaks() - self._breaks_before

    def require_compiled(self) -> None:
        """Raise Unavailable where calls ran eagerly without an error.

        Graph breaks without a new graph mean that only code around the network was compiled.
        Neither breaks nor graphs mean that the network was compiled before.
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
