"""The last section of the lesson on comparing trainings, on networks of all kinds, where labkit
cannot be imported.
"""

import re

import nbformat
import pytest
from yours import SMALL_NETWORKS, cells_of_yours, printed, without_labkit

from labkit.files import root
from labkit.lesson.exercises import find

LESSON = "04_comparing_trainings"
AFTER = """
assert all(torch.equal(old, new) for old, new in zip(before, sys.modules["mine"].network.parameters()))
assert not sys.modules["mine"].network.training, "the network was left in training mode"
assert [len(accuracies) for accuracies in trained.values()] == [pairs if accuracy >= bar else 0] * 2
print("done")
"""
NETWORKS = {
    "a small ResNet": (
        "(3, 16, 16)",
        "from torchvision.models.resnet import BasicBlock, ResNet\n"
        "mine.network = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=3)",
    ),
    **SMALL_NETWORKS,
}
A_LINEAR_LAYER = ("(6,)", "mine.network = nn.Linear(6, 3)")
LEARNS_AT_ONCE = (
    "(6,)",
    "mine.network = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))",
)
SETTINGS = (
    '{"baseline": {"build": partial(untrained, network), "learning_rate": 0.05, "batch": 8}, '
    '"changed": {"build": partial(untrained, network), "learning_rate": 0.1, "batch": 8}}'
)


def page():
    """What a reader takes along: imports, the training, the exercises, `student`, `named` and
    `upper`.
    """
    cells = nbformat.read(root() / "notebooks" / f"{LESSON}.ipynb", as_version=4).cells
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    taken = [source for source in code if source.startswith(("import copy", "def build("))]
    whole = "\n\n\n".join(code)
    functions = re.findall(
        r"^def (?:student|named|upper)\(.+?(?=\n\n|\Z)", whole, flags=re.DOTALL | re.MULTILINE
    )
    exercises = [find(name).solution for name in ("contains", "paired-verdict", "pairs-for")]
    assert (len(taken), len(functions)) == (2, 3)
    return [*taken, *functions, *exercises]


def with_numbers(source, numbers):
    """The source with other numbers for what a reader may change."""
    for name, number in numbers.items():
        value = r"\{.*?^\}" if name == "settings" else r"[^#\n]*"
        pattern = re.compile(rf"^{name} = {value}", flags=re.MULTILINE | re.DOTALL)
        source, changed = pattern.subn(f"{name} = {number}  ", source)
        assert changed == 1, f"{name} stands on top, once"
    return source


def last_section(tmp_path, shape, network, contrast=1.0, profile="quick", **numbers):
    """What the cells of Yours print, for a network in eval mode and inputs whose classes lie
    `contrast` apart.
    """
    before = f"{without_labkit(shape, contrast)}profile = {profile!r}"
    copied = (
        "mine.network.eval()\nbefore = [weight.clone() for weight in mine.network.parameters()]"
    )
    taken = with_numbers("\n\n".join([*page(), *cells_of_yours(LESSON)]), numbers)
    script = "\n".join([before, network, copied, taken, AFTER])
    return printed(script, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_yours_runs_on_a_network_of_another_kind_and_leaves_it_as_it_was(name, tmp_path):
    assert "Verdict on the changed setting: " in last_section(tmp_path, *NETWORKS[name])


@pytest.mark.slow
def test_where_nothing_can_be_learned_nothing_is_said_and_the_numbers_to_change_are(tmp_path):
    printed = last_section(tmp_path, *A_LINEAR_LAYER, contrast=0.0)
    assert "Verdict on the changed setting: open: " in printed
    assert (
        "learned too little. Raise count (32) or tries (10 epochs), or change the learning rate."
        in printed
    )
    assert printed.count("leads, seed by seed") == 1, (
        "of the reader's own numbers; no pair is trained"
    )


@pytest.mark.slow
def test_a_side_that_has_not_learned_gets_no_verdict_but_its_name(tmp_path):
    never = SETTINGS.replace("0.1", "1e-9")
    printed = last_section(tmp_path, *LEARNS_AT_ONCE, settings=never)
    assert (
        "Verdict on the changed setting: open: changed learned too little. Raise count (32)"
        in printed
    )


@pytest.mark.slow
def test_the_epochs_are_raised_until_the_baseline_has_learned(tmp_path):
    slow = SETTINGS.replace("0.05", "0.003").replace("0.1", "0.006")
    printed = last_section(tmp_path, *LEARNS_AT_ONCE, settings=slow)
    tried = re.findall(
        r"^(\d+) epochs: (\d+) % \(chance \d+ %, bar (\d+) %\)$", printed, flags=re.MULTILINE
    )
    assert all(int(right) < int(bar) for _, right, bar in tried[:-1])
    assert len(tried) == 2
    assert int(tried[-1][1]) >= int(tried[-1][2])
    assert "open:" not in printed.splitlines()[-2]


@pytest.mark.slow
def test_another_network_may_stand_on_one_side(tmp_path):
    network, *rest = LEARNS_AT_ONCE
    other = (
        f"{rest[0]}\nanother = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)).eval()"
    )
    side = '"changed": {"build": partial(untrained, '
    settings = SETTINGS.replace(f"{side}network", f"{side}another")
    assert "another" in settings
    printed = last_section(tmp_path, network, other, settings=settings)
    assert "Verdict on the changed setting: " in printed
    assert "learned too little" not in printed


def said_of(changed, baseline, worth=0.5, capsys=None):
    """What the cell for the reader's own numbers prints."""
    own, *_ = cells_of_yours(LESSON)
    own = with_numbers(own, {"changed, baseline": f"{changed}, {baseline}", "worth": worth})
    exec("\n\n".join([*page(), own]), {})  # of this repository
    return capsys.readouterr().out


def test_own_numbers_get_leads_reach_pairs_and_a_verdict(capsys):
    printed = said_of([81.9, 82.4, 81.4], [81.0, 81.0, 81.0], capsys=capsys)
    assert "+0.90 +1.40 +0.40" in printed
    assert "mean +0.90 ± 1.24 points, spread 0.50" in printed
    assert "to name a lead of 0.5 points, planned with 1.0 s: 10 pairs" in printed
    assert "planned with 2.1 s: 38 pairs" in printed
    assert printed.endswith("Verdict: cannot tell\n")


def test_the_same_lead_with_less_spread_is_named_on_either_side(capsys):
    assert "Verdict: better" in said_of([81.9, 82.1, 81.7], [81, 81, 81], capsys=capsys)
    assert "Verdict: worse" in said_of([81, 81, 81], [81.9, 82.1, 81.7], capsys=capsys)


def test_one_pair_and_equal_leads_stay_open_with_what_to_do(capsys):
    for changed, baseline in (([82.0], [80.0]), ([82.0, 83.0], [81.0, 82.0])):
        printed = said_of(changed, baseline, capsys=capsys)
        assert "Verdict: open: no spread. Train with more seeds" in printed


def test_a_spread_far_above_what_matters_counts_no_pairs_without_end(capsys):
    assert "more than 120 pairs" in said_of([60.0, 90.0, 70.0], [80.0, 70.0, 75.0], capsys=capsys)
