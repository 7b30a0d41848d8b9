"""The modules beside the lessons: found from every folder, missing ones said in words. And what
they do.

The coder of lesson 15: every number comes back, Huffman's codes are as short as any. Weight
sharing: k-means against a plain one and all partitions, the gradient of a shared value by hand.
"""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from made_up import network, shapes, weights
from torch import nn

from labkit.compress import apply_masks, magnitude_masks, prunable
from labkit.compress.magnitude import masks_of
from labkit.errors import LabError, LessonError
from labkit.files import root
from labkit.lesson.exercises import find
from labkit.lesson.support import load_support
from labkit.models import build, example
from labkit.train import TrainConfig, accuracy, fit

coding = load_support("pruning_and_coding")
SharedWeights, k_means, share = coding.SharedWeights, coding.k_means, coding.share
decode = find("decode-huffman").reference


# ---- where the modules are found ----


def test_a_module_is_found_whatever_the_current_folder_is(tmp_path):
    program = (
        "from labkit.lesson.support import load_support; "
        "print(load_support('pruning_and_coding').__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.strip() == str(root() / "notebooks" / "support" / "pruning_and_coding.py"), (
        done.stderr
    )


@pytest.mark.parametrize("name", ["no_such_lesson", "../exercises/secret"])
def test_a_module_that_is_not_there_is_said_in_words_as_in_a_wheel(name, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    with pytest.raises(LessonError, match="is missing") as caught:
        load_support(name)
    assert "folder of the course" in caught.value.fix
    assert str(tmp_path) in caught.value.expected


# ---- Huffman codes ----


def test_codes_are_those_of_an_example_worked_by_hand():
    lengths = coding.huffman_lengths({0: 5, 1: 2, 2: 1, 3: 1})  # 2 and 3 join, then 1, then 0
    assert lengths == {0: 1, 1: 2, 2: 3, 3: 3}
    assert coding.codes_of(lengths) == {0: "0", 1: "10", 2: "110", 3: "111"}
    assert coding.huffman_lengths({7: 4}) == {7: 1}, "one symbol takes a bit, too"
    assert coding.huffman_lengths({}) == {}


@pytest.mark.parametrize("seed", range(5))
def test_no_code_is_the_beginning_of_another_and_no_other_code_would_be_shorter(seed):
    counts = dict(enumerate(np.random.default_rng(seed).integers(1, 40, 5).tolist()))
    lengths = coding.huffman_lengths(counts)
    codes = list(coding.codes_of(lengths).values())
    assert not any(first.startswith(second) for first, second in itertools.permutations(codes, 2))
    # By Kraft's inequality, there is a code of these lengths where the sum of 2^-length is at most
    # 1.
    possible = [
        bits
        for bits in itertools.product(range(1, 5), repeat=5)
        if sum(2.0**-each for each in bits) <= 1
    ]
    shortest = min(
        sum(map(math.prod, zip(bits, counts.values(), strict=True))) for bits in possible
    )
    assert sum(lengths[symbol] * count for symbol, count in counts.items()) == shortest


def test_the_bound_is_the_entropy_counted_by_hand():
    # -log2 of 1/2, 1/4, 1/4
    assert coding.entropy_bits(np.array([0, 0, 1, 2])) == pytest.approx(2 * 1 + 2 + 2)


def test_the_symbols_of_a_layer_are_those_of_an_example_worked_by_hand():
    codebook, gaps, indices = coding.layer_symbols(torch.tensor([0, 0, 0.5, 0, 0.25, 0.5]))
    assert (codebook.tolist(), gaps.tolist(), indices.tolist()) == (
        [0.25, 0.5],
        [2, 1, 0],
        [1, 0, 1],
    )
    far = torch.zeros(1200)
    far[[255, 856]] = 1.0  # 255 zeros, then 600
    assert coding.layer_symbols(far)[1].tolist() == [255, 0, 255, 255, 90]


# ---- the file ----


def small_network(name, sparsity=0.9):
    torch.manual_seed(0)
    model, shape = build(name)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):  # as if it had been trained
                layer.running_mean.normal_()
                layer.running_var.uniform_(0.5, 2)
                layer.weight.uniform_(0.5, 2)
                layer.num_batches_tracked += 7
    return share(apply_masks(model, magnitude_masks(model, sparsity))), shape


CASES = [("cnn-medium", sparsity) for sparsity in (0.0, 0.9, 0.999, 1.0)]
CASES += [
    ("vgg-small", 0.9),
    ("convnext-mini", 0.9),
    pytest.param("encoder-small", 0.9, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "sparsity"), CASES)
def test_a_network_comes_back_bit_for_bit_and_so_do_its_answers(name, sparsity):
    model, shape = small_network(name, sparsity)
    model = coding.folded(model)
    blank = coding.folded(build(name)[0])
    for parameter in blank.parameters():
        parameter.data.normal_()
    decoded = coding.read_network(coding.write_network(model), blank, decode)
    for (key, numbers), (other_key, others) in zip(
        model.state_dict().items(), decoded.state_dict().items(), strict=True
    ):
        assert key == other_key and numbers.numpy().tobytes() == others.numpy().tobytes()
    images = example(name, 3, shape=shape)
    with torch.inference_mode():
        assert decoded(images).numpy().tobytes() == model(images).numpy().tobytes()


def test_the_file_stays_within_3_percent_of_shannons_bound():
    model, _ = small_network("vgg-medium", 0.95)
    model = coding.folded(model)
    bound = 0.0
    for weight in prunable(model).values():
        codebook, gaps, indices = coding.layer_symbols(weight)
        bound += 32 * len(codebook) + coding.entropy_bits(gaps) + coding.entropy_bits(indices)
    bound += 16 * sum(parameter.numel() for parameter in coding.other_parameters(model))
    assert bound < 8 * len(coding.write_network(model)) < 1.03 * bound


def test_what_the_file_cannot_hold_is_refused_in_words():
    with pytest.raises(LabError, match="too many different weights"):
        coding.write_network(coding.folded(network()))
    model = share(network())
    with torch.no_grad():
        model[-1].bias.fill_(1e6)
    with pytest.raises(LabError, match="does not fit into 16 bits"):
        coding.write_network(coding.folded(model))


def test_folding_changes_no_answer_by_more_than_half_precision_does():
    model, shape = small_network("cnn-medium")
    model.eval()
    before = {name: numbers.clone() for name, numbers in model.state_dict().items()}
    images = example("cnn-medium", 16, shape=shape)
    quiet = coding.folded(model)
    with torch.inference_mode():
        assert torch.allclose(quiet(images), model(images), rtol=1e-2, atol=2e-3)
    assert not quiet.training
    assert all(torch.equal(numbers, before[name]) for name, numbers in model.state_dict().items())
    norms = [layer for layer in quiet.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert all(
        (layer.running_mean == 0).all() and (layer.running_var == 1).all() for layer in norms
    )


def test_folding_takes_away_minus_zero_and_leaves_what_half_precision_cannot_hold():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[-0.0, 1.1], [0.0, -1.0]]))
        model[0].bias.copy_(torch.tensor([1e6, 0.1]))
    quiet = coding.folded(model)
    assert (
        quiet[0].weight.detach().numpy().tobytes()
        == np.array([[0, 1.1], [0, -1]], np.float32).tobytes()
    )
    assert quiet[0].bias.tolist() == model[0].bias.tolist()


# ---- weight sharing ----


def plain_kmeans(values, count):
    """Lloyd's rounds as a textbook has them: every number against every centroid."""
    centroids = np.linspace(values.min(), values.max(), count)
    for _ in range(200):
        index = np.abs(values[:, None] - centroids).argmin(1)
        centroids = np.array(
            [
                values[index == k].mean() if (index == k).any() else centroids[k]
                for k in range(count)
            ]
        )
    return centroids, index


@pytest.mark.parametrize("count", [1, 2, 5, 16, 33])
def test_sorted_ranges_give_what_the_textbook_gives(count):
    values = np.random.default_rng(count).normal(size=500)
    centroids, index = k_means(torch.from_numpy(values), count)
    wanted, of = plain_kmeans(values, count)
    assert centroids.numpy() == pytest.approx(wanted)
    assert index.tolist() == of.tolist()


def test_a_small_example_by_hand_is_the_best_of_all_partitions():
    values = np.array([0.0, 1.0, 2.0, 10.0, 11.0])
    centroids, index = k_means(torch.from_numpy(values), 2)  # begun at 0 and 11
    assert centroids.tolist() == [1, 10.5]
    assert index.tolist() == [0, 0, 0, 1, 1]

    def error(cut):
        return sum(((part - part.mean()) ** 2).sum() for part in np.split(values, [cut]))

    assert (
        ((values - centroids[index].numpy()) ** 2).sum()
        == min(error(cut) for cut in range(1, 5))
        == 2.5
    )


def test_more_centroids_than_numbers_give_the_numbers_back():
    centroids, index = k_means(torch.tensor([3.0, 1.0, 2.0]), 5)
    assert centroids[index].tolist() == [3, 1, 2]
    centroids, index = k_means(torch.tensor([2.0, 2.0]), 4)
    assert centroids[index].tolist() == [2, 2]


def test_a_shared_layer_has_so_many_values_and_its_zeros():
    model = apply_masks(network(), magnitude_masks(network(), 0.5))
    masks = masks_of(model)
    share(model, 4)
    assert all(len(weight[weight != 0].unique()) <= 4 for weight in prunable(model).values())
    assert all(torch.equal(mask, masks[name]) for name, mask in masks_of(model).items())
    again = weights(model)
    assert torch.equal(weights(share(model, 4)), again), "shared weights stay as they are"


def test_the_gradient_of_a_centroid_is_that_of_a_network_whose_parameter_it_is():
    model = nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 2.0, 0.0], [2.0, 2.0, 1.0]]))
    hook = SharedWeights(2)
    hook.begin(model)
    x, target = torch.randn(5, 3), torch.randn(5, 2)
    (model(x) - target).square().sum().backward()
    codebook = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
    (x @ codebook[torch.tensor([[1, 2, 0], [2, 2, 1]])].T - target).square().sum().backward()
    hook.before_update(model)
    wanted = codebook.grad * torch.tensor([0, 1, 1])
    assert torch.allclose(
        model.weight.grad, wanted[torch.tensor([[1, 2, 0], [2, 2, 1]])], atol=1e-5
    )


def trained(seed=0, checkpoint=None, epochs=4, **settings):
    model = network(seed)
    apply_masks(model, magnitude_masks(model, 0.4))
    hook, config = (
        SharedWeights(4),
        TrainConfig(epochs=epochs, batch=20, learning_rate=0.02, **settings),
    )
    fit(model, shapes(), config, device="cpu", hooks={"share": hook}, checkpoint=checkpoint)
    return model, hook


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_training_moves_the_centroids_and_nothing_else(optimizer):
    start = apply_masks(network(), magnitude_masks(network(), 0.4))
    masks = masks_of(start)
    share(start, 4)
    model, _ = trained(optimizer=optimizer, weight_decay=0.05)
    assert all(torch.equal(mask, masks[name]) for name, mask in masks_of(model).items())
    for name, weight in prunable(model).items():
        before = prunable(start)[name]
        assert len(weight[weight != 0].unique()) <= 4
        assert all(len(weight[before == value].unique()) == 1 for value in before.unique())
        assert not torch.equal(weight, before)
    assert accuracy(model, shapes(40, seed=1), device="cpu") > accuracy(
        start, shapes(40, seed=1), device="cpu"
    )


def test_a_resumed_training_of_centroids_ends_as_one_that_never_stopped(tmp_path, monkeypatch):
    whole, _ = trained()
    path = tmp_path / "c.json"
    steps = itertools.count(1)
    update = SharedWeights.after_update

    def stops(self, model):
        update(self, model)
        if next(steps) == 14:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(SharedWeights, "after_update", stops)
        trained(checkpoint=path)
    resumed, _ = trained(seed=5, checkpoint=path)  # other weights, whose groups are others
    assert torch.equal(weights(whole), weights(resumed))


def test_weights_of_two_dimensions_are_coded_but_no_embedding_norm_or_scale_of_channels():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.norm = nn.Embedding(5, 4), nn.LayerNorm(4)
            self.attention = nn.MultiheadAttention(4, 2)
            self.scale = nn.Parameter(torch.ones(4, 1, 1))

    coded = coding.coded_weights(Network())
    assert list(coded) == ["attention.in_proj_weight", "attention.out_proj.weight"]
