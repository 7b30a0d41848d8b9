"""Export keeps what a network computes; parity says how well, and catches what does not."""

import onnx
import pytest
import torch
from torch import nn

from labkit import export, models
from labkit.errors import LabError
from labkit.export.from_torch import OPSET
from labkit.export.inputs import dims
from labkit.export.parity import agreement


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return models.build("cnn-small")[0].eval()


@pytest.fixture(scope="module")
def path(network, tmp_path_factory):
    return export.to_onnx(
        network, models.example("cnn-small", 1), tmp_path_factory.mktemp("export") / "net.onnx"
    )


def test_parity_by_hand():
    wanted = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    found = torch.tensor([[3.0, 0.0], [4.0, 0.0]])
    row = agreement([(wanted, found)])
    assert row.cosine == pytest.approx(9 / 25)
    assert (row.max_error, row.top1, row.items) == (1.0, 0.5, 2)


@pytest.mark.slow
def test_a_network_that_answers_zeros_only_is_exported_and_another_answer_is_seen():
    zeros = torch.zeros(4, 3)
    assert agreement([(zeros, zeros.clone())]).require().cosine == 1
    with pytest.raises(LabError, match="does not compute"):
        agreement([(zeros, zeros + 1e-3)]).require()


def test_only_an_output_of_one_row_per_item_has_answers_to_count():
    pixels = torch.randn(3, 4, 5, 6)
    row = agreement([(pixels, pixels)])
    assert (row.top1, row.items) == (None, 3)
    assert "same answer" not in row.summary()
    assert row.require() is row


def test_of_several_outputs_the_one_that_differs_most_counts():
    wanted = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    row = agreement(
        [
            (
                (wanted, {"more": torch.ones(2, 3)}),
                [wanted, torch.ones(2, 3) * torch.tensor([1, 1, 0.5])],
            )
        ]
    )
    assert (row.outputs, row.top1, row.max_error) == (2, 1.0, 0.5)
    assert row.cosine == pytest.approx(2.5 / (3 * 2.25) ** 0.5)
    with pytest.raises(LabError, match="another shape"):
        agreement([((wanted, wanted), [wanted])])


def test_a_network_of_two_outputs_is_compared_in_both(tmp_path):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, x):
            y = self.body(x)
            return self.head(y), y

    network = Two()
    path = export.to_onnx(network, torch.zeros(2, 4), tmp_path / "net.onnx")
    assert export.parity(network, path, [torch.randn(3, 4)]).outputs == 2
    network.body.bias.data += 1
    assert export.parity(network, path, [torch.randn(3, 4)]).max_error > 0.01


def test_an_export_has_stated_names_opset_and_an_open_batch(path):
    model = export.checked(path)
    assert [value.name for value in (*model.graph.input, *model.graph.output)] == [
        "input",
        "logits",
    ]
    assert model.opset_import[0].version == OPSET
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_an_export_answers_like_the_network_at_every_batch_size(network, path):
    batches = [models.example("cnn-small", batch, seed=batch) for batch in (1, 2, 7, 33)]
    row = export.parity(network, path, batches)
    assert row.cosine > 1 - 1e-6 and row.top1 == 1 and row.max_error < 1e-4 and row.items == 43
    assert row.require() is row


def test_the_network_is_left_as_it_was(tmp_path):
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.Dropout(0.5)).train()
    path = export.to_onnx(network, torch.zeros(2, 4), tmp_path / "net.onnx")
    assert network.training
    assert export.parity(network, path, [torch.randn(3, 4)]).max_error < 1e-5
    assert network.training


@pytest.mark.slow
def test_a_network_laid_out_as_nhwc_becomes_the_same_graph(tmp_path):
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )
    plain = export.to_onnx(network, torch.zeros(2, 1, 8, 8), tmp_path / "nchw.onnx")
    network.to(memory_format=torch.channels_last)
    other = export.to_onnx(network, torch.zeros(2, 1, 8, 8), tmp_path / "nhwc.onnx")
    kinds = [[node.op_type for node in onnx.load(each).graph.node] for each in (plain, other)]
    assert kinds[0] == kinds[1]
    assert network[0].weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.slow
class Shares(nn.Module):
    """Shares of a sum, with an epsilon against a sum of zero, and a factor beside 1."""

    def forward(self, x):
        return 1.000005 * x / (x.sum(1, keepdim=True) + 1e-8)


def test_a_small_epsilon_and_a_factor_near_one_stay_in_the_graph(tmp_path):
    path = export.to_onnx(Shares(), torch.rand(2, 4), tmp_path / "model.onnx")
    images = torch.tensor([[0.0, 0, 0, 0], [1e-8, 0, 0, 0], [1, 2, 3, 4]])
    shares = [[0, 0, 0, 0], [0.5, 0, 0, 0], [0.1, 0.2, 0.3, 0.4]]  # times the factor
    answers = export.as_written(path)(images) / torch.tensor(1.000005)
    assert torch.allclose(answers, torch.tensor(shares), rtol=1e-6, atol=0)


def test_another_opset_is_written_when_asked_for(network, tmp_path):
    found = export.to_onnx(
        network, models.example("cnn-small", 2), tmp_path / "old.onnx", opset_version=18
    )
    assert onnx.load(found).opset_import[0].version == 18


@pytest.mark.slow
def test_sides_beside_the_batch_vary_when_asked_for(tmp_path):
    network = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    path = export.to_onnx(
        network, torch.zeros(1, 1, 12, 10), tmp_path / "any.onnx", dynamic_shapes={2: 64, 3: 64}
    )
    sizes = [
        torch.randn(n, 1, height, width)
        for n, height, width in ((1, 12, 10), (3, 40, 52), (2, 5, 64))
    ]
    assert export.parity(network, path, sizes).max_error < 1e-5


@pytest.mark.slow
def test_a_decoder_takes_a_past_of_any_length(tmp_path):
    class Attends(nn.Module):
        def forward(self, step, past):
            keys = torch.cat([past, step], 1)
            return torch.softmax(step @ keys.mT, -1) @ keys, keys

    sizes = [
        (torch.randn(n, 1, 8), torch.randn(n, length, 8)) for n, length in ((2, 5), (1, 12), (3, 2))
    ]
    batch, past = torch.export.Dim("batch"), torch.export.Dim("past")
    path = export.to_onnx(
        Attends(),
        sizes[0],
        tmp_path / "past.onnx",
        dynamic_shapes=({0: batch}, {0: batch, 1: past}),
    )
    assert [dims(value)[1:] for value in onnx.load(path).graph.input] == [(1, 8), ("past", 8)]
    assert export.parity(Attends(), path, sizes).max_error < 1e-5


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(5, 3)

    def forward(self, left, right):
        return self.a(left) * self.b(right)


def test_tokens_beyond_the_vocabulary_are_refused_with_that_as_the_next_thing_to_look_at(tmp_path):
    path = export.to_onnx(
        nn.Embedding(10, 4), torch.zeros(2, 5, dtype=torch.int64), tmp_path / "words.onnx"
    )
    with pytest.raises(LabError, match="refuses a batch of shape") as caught:
        export.as_written(path)(torch.full((2, 5), 10))
    assert "tokens below the size of its vocabulary" in caught.value.fix


def test_a_network_of_two_inputs_is_exported_and_compared_and_says_when_one_is_missing(tmp_path):
    network, pairs = TwoInputs(), [(torch.randn(n, 4), torch.randn(n, 5)) for n in (1, 3)]
    path = export.to_onnx(network, pairs[0], tmp_path / "two.onnx")
    assert [value.name for value in onnx.load(path).graph.input] == ["left", "right"]
    assert export.parity(network, path, pairs).max_error < 1e-5
    assert [len(tensor) for tensor in export.random_inputs(onnx.load(path), 6)] == [6, 6]
    with pytest.raises(LabError, match=r"expected: left .*, right "):
        export.as_written(path)(pairs[0][0])


class Frozen(nn.Module):
    """Branches in Python on the values it sees: the exporter keeps only what its example took."""

    def __init__(self, mean):
        super().__init__()
        self.mean = mean

    def forward(self, x):
        return torch.stack([x[:, 0] - self.mean, x[:, 1] + self.mean], dim=1)


def test_parity_catches_a_constant_frozen_at_export(tmp_path):
    path = export.to_onnx(Frozen(0.5), torch.zeros(2, 2), tmp_path / "frozen.onnx")
    model = nn.Sequential(Frozen(2.0), nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.eye(2))
    row = export.parity(model, path, [torch.randn(200, 2)])
    assert row.top1 < 1
    with pytest.raises(LabError, match="does not compute what the network computes"):
        row.require()


class Branching(nn.Module):
    """Small batches take another way through the Python code."""

    def forward(self, x):
        return 2 * x if len(x) < 4 else x + 1


def test_a_graph_whose_batch_was_frozen_is_not_written(tmp_path):
    with pytest.raises(LabError, match=r"one size only[\s\S]*len\(x\)"):
        export.to_onnx(Branching(), torch.zeros(8, 3), tmp_path / "net.onnx")
    assert not (tmp_path / "net.onnx").exists()


@pytest.mark.parametrize("examples", [1, 8])
def test_a_graph_that_holds_one_branch_is_not_written(examples, tmp_path):
    """With x.shape[0] instead of len(x) torch.export narrows the batch, and the exporter to ONNX
    says nothing.
    """

    class Narrowed(nn.Module):
        def forward(self, x):
            return 2 * x if x.shape[0] < 4 else x + 1

    with pytest.raises(LabError, match="some batches only"):
        export.to_onnx(Narrowed(), torch.zeros(examples, 3), tmp_path / "net.onnx")
    assert not (tmp_path / "net.onnx").exists()


def test_parity_says_when_a_graph_refuses_a_batch_size(network, path, tmp_path):
    model = onnx.load(path)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 4
    onnx.save(model, tmp_path / "fixed.onnx")
    assert export.parity(network, tmp_path / "fixed.onnx", [torch.zeros(4, 1, 28, 28)]).top1 == 1
    with pytest.raises(LabError, match="refuses a batch"):
        export.parity(network, tmp_path / "fixed.onnx", [torch.zeros(5, 1, 28, 28)])


def test_a_largest_error_can_be_required():
    row = agreement([(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.01]]))])
    with pytest.raises(LabError, match=r"error at most 0\.001"):
        row.require(max_error=1e-3)


def test_parity_catches_another_shape_of_answers():
    with pytest.raises(LabError, match="another shape"):
        agreement([(torch.zeros(3, 2), torch.zeros(2, 2))])


def test_inputs_are_made_up_to_fit_the_graph(path):
    model = onnx.load(path)
    (batch,) = export.random_inputs(model, 3)
    assert batch.shape == (3, 1, 28, 28)
    assert torch.equal(batch, export.random_inputs(model, 3)[0])


def test_inputs_that_cannot_be_made_up_are_refused(path):
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    with pytest.raises(LabError, match="height"):
        export.random_inputs(model, 3)
    fixed = onnx.load(path)
    fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    with pytest.raises(LabError, match="batch size of the file"):
        export.random_inputs(fixed, 3)
