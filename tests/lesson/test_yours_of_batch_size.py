"""The last section of the lesson on batch size, on networks of all kinds, where labkit cannot be
imported.
"""

import nbformat
import pytest
from yours import SMALL_NETWORKS, cells_of_yours, printed, without_labkit

from labkit.files import root
from labkit.lesson.exercises import find

LESSON = "06_batch_size_and_minima"
AFTER = """
assert all(torch.equal(old, new) for old, new in zip(before, mine.network.parameters())), "the network was changed"
assert not mine.network.training and all(not layer.training for layer in mine.network.modules())
assert len(unfinished) == len(by_batch) == len(by_rate) == 3, "three seeds each"
assert limit is None or limit == 2 / my_sharpness
print("done")
"""
NETWORKS = {
    "a small ResNet": (
        "(3, 16, 16)",
        "from torchvision.models.resnet import BasicBlock, ResNet\n"
        "mine.network = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=3)",
    ),
    **SMALL_NETWORKS,
    "frozen": ("(6,)", "mine.network = nn.Linear(6, 3).requires_grad_(False)"),
}


def functions_of_the_lesson():
    """The source of what the last section uses: imports, the training, and the reader's
    exercises.
    """
    cells = nbformat.read(root() / "notebooks" / f"{LESSON}.ipynb", as_version=4).cells
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    taken = [
        source for source in code if source.startswith(("import copy", "Run = ", "def train("))
    ]
    names = ("batch-or-rate", "hessian-product", "power-iteration")
    return [*taken, *(find(name).solution for name in names)]


def last_section(tmp_path, shape, network, contrast=2.0):
    """What the cells of Yours print, for a network in eval mode and inputs whose classes lie
    `contrast` apart.
    """
    before = without_labkit(shape, contrast, count=240)
    copied = "before = [weight.clone() for weight in mine.network.parameters()]"
    parts = [
        before,
        network,
        "mine.network.eval()",
        copied,
        *functions_of_the_lesson(),
        *cells_of_yours(LESSON),
        AFTER,
    ]
    script = "\n".join(parts)
    return printed(script, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("name", NETWORKS)
def test_yours_runs_on_a_network_of_another_kind_leaves_it_as_it_was_and_ends_in_one_verdict(
    name, tmp_path
):
    printed = last_section(tmp_path, *NETWORKS[name])
    assert printed.count("Verdict: ") == 1
    assert "sharpness" in printed


@pytest.mark.slow
def test_where_nothing_can_be_learned_yours_says_that_it_says_nothing(tmp_path):
    assert "this says nothing" in last_section(tmp_path, *NETWORKS["two outputs"], contrast=0.0)
