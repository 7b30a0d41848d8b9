"""The module beside the lesson on where training time goes, and its last section on networks of
several kinds.
"""

import sys
import time
from types import ModuleType

import nbformat
import numpy as np
import pytest
import torch
import torchvision
from torch import nn
from yours import Encoder, TwoOutputs, cells_of_yours

from labkit.files import root
from labkit.ledger import published
from labkit.lesson.exercises import l05_where_training_time_goes as answers
from labkit.lesson.support import load_support

support = load_support("where_training_time_goes")


def test_photos_are_files_of_512_pixels_and_begin_anew_after_the_last():
    files, labels = support.camera_photos(3)
    photos = support.Photos(files, labels, len)
    assert [photos[number] for number in (0, 3)] == [(len(files[0]), labels[0])] * 2
    assert answers.quick_photo(files[0]).shape == (3, 32, 32)
    with support.Image.open(support.io.BytesIO(files[0])) as photo:
        assert photo.size == (512, 512)


def test_the_boxes_of_a_flame_chart_stand_under_what_calls_them():
    network = nn.Sequential(nn.Linear(4, 4), nn.GELU())
    for name, layer in network.named_children():
        support._name_in_profiles(layer, support._shown_name(name, layer))
    with torch.profiler.profile() as profiler:
        network(torch.randn(2, 4))
    boxes = support.boxes(profiler, narrowest=0.0)
    by_name = {name: (depth, start, start + width) for depth, start, width, name in boxes}
    for caller, callee in {"Linear": "linear", "linear": "addmm", "GELU": "gelu"}.items():
        (depth, start, end), (below, first, last) = by_name[caller], by_name[callee]
        assert below == depth + 1
        assert start <= first <= last <= end
    assert by_name["Linear"][2] <= by_name["GELU"][1]


def test_the_published_table_stands_whole_and_first():
    table = support.phases_beside()
    theirs = published.table("training-phases").set_index("variant")
    shown = table.loc["published, a GPU"]
    assert list(shown.index) == list(theirs.index)
    for ours, column in {"forward": "forward_s", "data": "data_s", "total": "total_s"}.items():
        assert [int(text.split()[0]) for text in shown[ours]] == theirs[column].tolist()
    recorded = [
        place
        for place in table.index.get_level_values("place").unique()
        if place.startswith("recorded")
    ]
    assert recorded
    assert table.loc[recorded[0]].index.tolist() == support.VARIANTS
    assert table.loc[recorded[0]].loc["pinned memory"].tolist() == ["", "", "", "", "needs a GPU"]


def test_a_lead_is_that_of_the_first():
    right = np.arange(40) % 2 == 0
    first = support.Taught(1.0, {}, right | (np.arange(40) < 20))
    assert support.lead(first, support.Taught(1.0, {}, right)).median == pytest.approx(25.0)


@pytest.mark.slow
def test_the_phases_of_two_passes_are_their_sum_and_a_head_has_little_to_do_backwards():
    head = support.teach(True, learning_rate=1e-2, passes=2, images=40)
    assert list(head.phases) == ["data", "forward", "backward", "optimizer"]
    assert 0.5 * head.seconds < sum(head.phases.values()) <= head.seconds
    assert head.phases["backward"] < head.phases["forward"] / 2


class LanguageModel(nn.Module):
    """Scores of all words at each token."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


NETWORKS = {
    "a ShuffleNet of torchvision": (
        lambda: torchvision.models.shufflenet_v2_x0_5(num_classes=3),
        lambda: torch.randn(8, 3, 32, 32),
    ),
    "a transformer encoder": (Encoder, lambda: torch.randint(50, (8, 12))),
    "two outputs": (TwoOutputs, lambda: torch.randn(8, 12)),
}


def cells():
    """The cells of the notebook."""
    return nbformat.read(
        root() / "notebooks" / "05_where_training_time_goes.ipynb", as_version=4
    ).cells


def function_of_the_lesson(name):
    """The source of the cell that defines a function, as the lesson writes it."""
    return next(
        cell.source
        for cell in cells()
        if cell.cell_type == "code" and f"def {name}(" in cell.source
    )


def imports_of_the_lesson():
    """The first cell of imports, which names no labkit."""
    return next(cell.source for cell in cells() if cell.source.startswith("import copy"))


def run_yours(monkeypatch, network, inputs, labels, change=lambda source: source):
    """Run the cells of "Yours" without labkit on a network, each source changed as a reader
    would; their names.
    """
    mine = ModuleType("mine")
    mine.network, mine.inputs, mine.labels = network, inputs, labels
    monkeypatch.setitem(sys.modules, "mine", mine)
    monkeypatch.setitem(sys.modules, "labkit", None)  # an import of it fails
    page = {name: getattr(answers, name) for name in ("Stopwatch", "speedup_of_the_whole")}
    page["phases"] = {"data": 1.0, "forward": 2.0}
    for source in (
        imports_of_the_lesson(),
        function_of_the_lesson("at_most"),
        *cells_of_yours("05_where_training_time_goes"),
    ):
        exec(change(source), page)
    return page


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_last_section_judges_a_network_without_labkit_and_leaves_it_as_it_is(
    kind, monkeypatch, capsys
):
    make, inputs = NETWORKS[kind]
    network = make().eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    page = run_yours(monkeypatch, network, inputs(), torch.arange(8) % 3)
    said = capsys.readouterr().out
    assert any(f"Your evening: {phase}, at most" in said for phase in page["ADVICE"])
    assert f"forecast {page['my_forecast']:.2f}" in said
    assert page["mine_limit"] >= 1
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not network.training


def test_a_loader_of_two_batches_lasts_for_all_steps_and_every_step_counts_once(monkeypatch):
    page = run_yours(monkeypatch, nn.Linear(12, 3), torch.randn(40, 12), torch.arange(40) % 3)
    assert len(page["my_loader"]) == 2
    for times in (page["before"], page["after"]):
        assert {phase: values.shape for phase, values in times.items()} == dict.fromkeys(
            ("data", "forward", "backward", "optimizer"), (18,)
        )


def test_the_forecast_of_yours_is_amdahls_law_of_the_changed_part(monkeypatch):
    page = run_yours(monkeypatch, nn.Linear(12, 3), torch.randn(40, 12), torch.arange(40) % 3)
    share = page["table"].loc["optimizer", "share"]
    assert page["my_forecast"] == pytest.approx(1 / (1 - share + share / page["factor"]))


def test_yours_reads_the_own_clock_until_workers_make_it_wait(monkeypatch):
    given = nn.Linear(12, 3), torch.randn(40, 12), torch.arange(40) % 3
    page = run_yours(monkeypatch, *given)
    assert page["as_it_is"].watch.now is page["changed"].watch.now is time.thread_time
    page = run_yours(
        monkeypatch, *given, lambda source: source.replace("num_workers > 0", "num_workers >= 0")
    )
    assert page["as_it_is"].watch.now is page["changed"].watch.now is time.perf_counter


def test_what_workers_hide_is_forecast_by_the_share_alone(monkeypatch):
    assert any("For them write `factor = 1e9`" in cell.source for cell in cells())

    def change(source):
        return source.replace("my_forecast = speedup", "factor = 1e9\nmy_forecast = speedup")

    given = nn.Linear(12, 3), torch.randn(40, 12), torch.arange(40) % 3
    page = run_yours(monkeypatch, *given, change)
    share = page["table"].loc["optimizer", "share"]
    assert page["my_forecast"] == pytest.approx(1 / (1 - share))


def test_the_interval_of_yours_goes_from_the_fifth_to_the_fifth_from_above(monkeypatch):
    page = run_yours(monkeypatch, nn.Linear(12, 3), torch.randn(40, 12), torch.arange(40) % 3)
    assert page["with_ends"](np.arange(18.0)) == "8.50 [4.00, 13.00] times"


def test_a_language_model_needs_only_the_change_that_the_line_of_the_loss_names(
    monkeypatch, capsys
):
    tokens = torch.randint(50, (40, 6))
    hint = "outputs.flatten(0, 1), classes.flatten()"
    assert any(
        f"# A language model that answers each token: {hint}" in source
        for source in cells_of_yours("05_where_training_time_goes")
    )

    def change(source):
        return source.replace("cross_entropy(outputs, classes)", f"cross_entropy({hint})")

    run_yours(monkeypatch, LanguageModel(), tokens, tokens, change)
    assert "Your evening" in capsys.readouterr().out
