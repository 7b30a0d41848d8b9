"""What the tests of a lesson's last section share: the section's cells, and networks of several
kinds to run it on.
"""

import io
import sys
import warnings
from contextlib import redirect_stdout
from types import ModuleType

import nbformat
import pytest
import torch
from torch import nn

from labkit.files import root

# {kind: (shape of an input, source that sets mine.network)}, for sections that run in a Python of
# their own
SMALL_NETWORKS = {
    "a transformer encoder": (
        "(5, 8)",
        "layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)\n"
        "mine.network = nn.Sequential(nn.TransformerEncoder(layer, 1), nn.Flatten(), "
        "nn.Linear(40, 3))",
    ),
    "two outputs": (
        "(6,)",
        "class Two(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.first, self.second = nn.Linear(6, 3), nn.Linear(6, 1)\n"
        "    def forward(self, x):\n"
        "        return self.first(x), self.second(x)\n"
        "mine.network = Two()",
    ),
}

_WITHOUT_LABKIT = """import sys, types
import torch
from torch import nn

class NoLabkit:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "labkit":
            raise ImportError("the cells of Yours import no labkit")

sys.meta_path.insert(0, NoLabkit())
torch.manual_seed(0)
torch.set_num_threads(1)
mine = types.ModuleType("mine")
mine.labels = torch.randint(3, (COUNT,))
mine.inputs = torch.randn(COUNT, *SHAPE) + CONTRAST * mine.labels.view(-1, *[1] * len(SHAPE))
sys.modules["mine"] = mine
"""


def without_labkit(shape, contrast, count=400):
    """The beginning of a script in which labkit cannot be imported and `mine` has inputs and labels
    of 3 classes.

    shape     source of the shape of an input, such as "(6,)"
    contrast  how far apart the classes lie; the noise has a standard deviation of 1
    count     of the inputs
    """
    texts = {"SHAPE": shape, "CONTRAST": str(contrast), "COUNT": str(count)}
    script = _WITHOUT_LABKIT
    for word, text in texts.items():
        script = script.replace(word, text)
    return script


def printed(script, folder):
    """What such a script prints, in this process: a Python of its own takes seconds to begin.

    Its last line is "done". Modules, threads and random numbers are as before when it has ended.
    """
    threads, said = torch.get_num_threads(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
        torch.random.fork_rng(devices=[]),
        redirect_stdout(said),
    ):
        warnings.simplefilter("default")
        patch.chdir(folder)
        patch.setattr(sys, "meta_path", [*sys.meta_path])
        patch.setitem(sys.modules, "mine", None)
        for name in [name for name in sys.modules if name.partition(".")[0] == "labkit"]:
            patch.delitem(sys.modules, name)
        try:
            exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
        finally:
            torch.set_num_threads(threads)
    lines = said.getvalue()
    assert lines.splitlines()[-1] == "done"
    return lines


def cells_of_yours(lesson):
    """The code cells between the heading "Yours" and the row that the report keeps.

    lesson  name of the notebook, such as "02_measuring_honestly"
    """
    cells = nbformat.read(root() / "notebooks" / f"{lesson}.ipynb", as_version=4).cells
    start = next(number for number, cell in enumerate(cells) if cell.source.startswith("## Yours"))
    sources = [cell.source for cell in cells[start:] if cell.cell_type == "code"]
    end = next(number for number, source in enumerate(sources) if source.startswith("keep_mine("))
    return sources[:end]


def run_yours(lesson, bound, mine, monkeypatch, *, changed=("", "")):
    """Run these cells where labkit cannot be imported; returns `bound` with what they bind.

    bound    {name: value} of the lesson's page
    mine     {name: value} of the module `mine`: network, inputs, labels
    changed  a text of the cells, and what stands in its place
    """
    module = ModuleType("mine")
    vars(module).update(mine)
    monkeypatch.setitem(sys.modules, "mine", module)
    monkeypatch.setitem(sys.modules, "labkit", None)  # an import of it fails
    for source in cells_of_yours(lesson):
        exec(source.replace(*changed), bound)
    return bound


class Encoder(nn.Module):
    """A transformer encoder on token numbers below 50: (n, tokens) -> (n, 16)."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, tokens):
        return self.layers(self.embedding(tokens)).mean(dim=1)


class TwoOutputs(nn.Module):
    """Two heads on one body: (n, 12) -> ((n, 3), (n, 1))."""

    def __init__(self):
        super().__init__()
        self.body, self.heads = nn.Linear(12, 8), nn.ModuleList([nn.Linear(8, 3), nn.Linear(8, 1)])

    def forward(self, x):
        return tuple(head(self.body(x).relu()) for head in self.heads)
