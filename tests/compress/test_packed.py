"""The file of a compressed network: every bit comes back, no damaged bit is overlooked, no claim costs memory."""

import copy
import hashlib
import json
import random
import struct
import tracemalloc

import numpy as np
import pytest
import torch
from made_up import network
from torch import nn

from labkit.compress import entropy, keep, load, magnitude_masks, save, settled, share
from labkit.errors import LabError
from labkit.models import build, example

NAMES = ("cnn-medium", "vgg-small", "convnext-mini", "encoder-small")


def compressed(name, sparsity=0.9, bits=4):
    torch.manual_seed(0)
    model, shape = build(name)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):  # as if it had been trained
                layer.running_mean.normal_()
                layer.running_var.uniform_(0.5, 2)
                layer.weight.uniform_(0.5, 2)
                layer.num_batches_tracked += 7
    return share(keep(model, magnitude_masks(model, sparsity)), bits), shape


def same(a, b):
    pairs = list(zip(a.state_dict().items(), b.state_dict().items(), strict=True))
    return all(x == y and v.dtype == w.dtype and v.numpy().tobytes() == w.numpy().tobytes() for (x, v), (y, w) in pairs)


@pytest.mark.parametrize(("name", "huffman"), [*((name, True) for name in NAMES), ("vgg-small", False)])
def test_a_network_comes_back_bit_for_bit_and_so_do_its_answers(name, huffman, tmp_path):
    model, shape = compressed(name)
    model = settled(model)
    bits = save(tmp_path / "x.small", model, name, shape=shape, dataset="made-up", huffman=huffman)
    found = load(tmp_path / "x.small")
    assert same(found.network, model)
    assert (found.name, found.shape, found.dataset) == (name, shape, "made-up")
    x = example(name, 3, shape=shape)
    with torch.inference_mode():
        assert found.network(x).numpy().tobytes() == model(x).numpy().tobytes()
    assert bits["total"] == 8 * (tmp_path / "x.small").stat().st_size


AS_IT_IS = {
    "untouched": lambda model: model,
    "pruned only": lambda model: keep(model, magnitude_masks(model, 0.8)),
    "shared only": lambda model: share(model, 3),
    "all zeros": lambda model: keep(model, magnitude_masks(model, 1.0)),
    "with -0.0, infinity and NaN": lambda model: with_oddities(model),
    "gaps longer than a symbol": lambda model: share(keep(model, magnitude_masks(model, 0.999)), 1),
}


def with_oddities(model):
    with torch.no_grad():
        weight = model[0][0].weight.flatten()
        weight[:4] = torch.tensor([-0.0, float("inf"), float("nan"), 1e-42])
        model[0][0].weight.copy_(weight.view(model[0][0].weight.shape))
    return model


@pytest.mark.parametrize("change", AS_IT_IS.values(), ids=AS_IT_IS)
def test_whatever_the_weights_are_they_come_back_exactly_and_never_take_much_more_than_before(change, tmp_path):
    model, shape = build("cnn-medium")
    model = change(model)
    bits = save(tmp_path / "x.small", model, "cnn-medium", shape=shape)
    assert same(load(tmp_path / "x.small").network, model)
    assert bits["total"] / 8 < sum(tensor.nbytes for tensor in model.state_dict().values()) + 300


def test_the_file_shrinks_as_the_symbols_say_and_stays_within_3_percent_of_shannons_bound(tmp_path):
    model, shape = compressed("vgg-medium", sparsity=0.95)
    model = settled(model)
    bits = save(tmp_path / "x.small", model, "vgg-medium", shape=shape)
    assert bits["bound"] <= bits["gaps"] + bits["indices"] < 1.03 * bits["bound"]
    parts = sum(bits[part] for part in ("gaps", "indices", "tables", "codebooks", "values"))
    assert parts <= bits["total"] < parts + 8 * 500  # headers
    equal = save(tmp_path / "y.small", model, "vgg-medium", shape=shape, huffman=False)
    assert equal["total"] > 1.05 * bits["total"]


def test_the_bound_is_the_entropy_of_gaps_and_indices_counted_by_hand(tmp_path):
    model = nn.Sequential(nn.Linear(8, 40, bias=False), nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0, 0.0] * 40).view(40, 8))
    bits = save(tmp_path / "x.small", model, "mine", shape=(8,))
    gaps = [0] * 1 + [1, 2, 2] * 39 + [1, 2]  # after the first: of 2.0 one zero, of 1.0 two, of the next row's two
    indices = [0, 1, 0] * 40
    wanted = sum(len(symbols) * entropy(np.bincount(symbols)) for symbols in (gaps, indices))
    assert bits["bound"] == pytest.approx(wanted)
    assert bits["indices"] == 8 * 15  # 120 of one bit each


def test_settling_changes_no_answer_by_more_than_half_precision_does(tmp_path):
    model, shape = compressed("cnn-medium")
    model.eval()
    before, x = copy.deepcopy(model.state_dict()), example("cnn-medium", 16, shape=shape)
    quiet = settled(model)
    with torch.inference_mode():
        assert torch.allclose(quiet(x), model(x), rtol=1e-2, atol=2e-3)
    assert not quiet.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    norms = [layer for layer in quiet.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert all((layer.running_mean == 0).all() and (layer.running_var == 1).all() for layer in norms)


def test_settling_takes_away_minus_zero_and_leaves_what_half_precision_cannot_hold():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[-0.0, 1.1], [0.0, -1.0]]))
        model[0].bias.copy_(torch.tensor([1e6, 0.1]))
    quiet = settled(model)
    assert quiet[0].weight.detach().numpy().tobytes() == np.array([[0, 1.1], [0, -1]], np.float32).tobytes()
    assert quiet[0].bias.tolist() == model[0].bias.tolist()


def test_a_network_of_ones_own_is_read_into_one_with_the_same_layers(tmp_path):
    model = settled(network(seed=1))
    save(tmp_path / "x.small", model, "mine", shape=(1, 8, 8))
    like = network(seed=2)
    assert same(load(tmp_path / "x.small", like=like).network, model)
    assert not same(like, model)
    wider = nn.Sequential(nn.Conv2d(1, 12, 3), nn.BatchNorm2d(12), nn.Linear(48, 4))
    with pytest.raises(LabError, match="no whole file"):
        load(tmp_path / "x.small", like=wider)
    with pytest.raises(LabError, match="no whole file"):
        load(tmp_path / "x.small")  # no network of the course is called so


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A whole file's bytes, small enough to be damaged hundreds of times."""
    model, shape = build("cnn-small")
    path = tmp_path_factory.mktemp("good") / "x.small"
    save(path, settled(share(keep(model, magnitude_masks(model, 0.8)), 3)), "cnn-small", shape=shape)
    return path.read_bytes()


def refused(path, data):
    path.write_bytes(data)
    with pytest.raises(LabError, match="no whole file") as caught:
        load(path)
    assert caught.value.fix
    return caught.value


def test_200_flipped_bits_and_50_truncations_are_all_refused(good, tmp_path):
    dice = random.Random(0)
    path = tmp_path / "x.small"
    for place in [*range(8), *dice.sample(range(8 * len(good)), 192)]:
        data = bytearray(good)
        data[place // 8] ^= 1 << place % 8
        refused(path, bytes(data))
    for length in [0, 1, 7, 8, 39, 40, len(good) - 1, *dice.sample(range(len(good)), 43)]:
        refused(path, good[:length])
    path.write_bytes(good)
    load(path)


def test_foreign_files_are_refused(good, tmp_path):
    path = tmp_path / "x.small"
    for data in (b"", b"PK\x03\x04" + bytes(100), b"{}", good + b"\0", b"\0" + good, good * 2):
        refused(path, data)
    for missing in (tmp_path / "none.small", tmp_path):
        with pytest.raises(LabError, match="no whole file") as caught:
            load(missing)
        assert caught.value.found == "no such file"


def signed(body):
    """A file that passes the hash: a forger can compute it too."""
    return b"labpack1" + hashlib.sha256(body).digest() + body


def with_header(good, **changes):
    length = struct.unpack("<H", good[40:42])[0]
    header = json.dumps({**json.loads(good[42 : 42 + length]), **changes}).encode()
    return signed(struct.pack("<H", len(header)) + header + good[42 + length :])


HEADERS = {
    "unknown network": {"model": "os.system"},
    "no name": {"model": 7},
    "millions of classes": {"classes": 10**9},
    "4096 classes": {"classes": 4096},
    "no classes": {"classes": 0},
    "a truth in place of a number": {"classes": True},
    "huge images": {"shape": [1, 10**6, 10**6]},
    "thousands of channels": {"shape": [4096, 28, 28]},
    "no images": {"shape": [-1, 28, 28]},
    "no shape": {"shape": 3},
    "another shape": {"shape": [128]},
    "a larger network": {"model": "cnn-medium"},
    "a data set that is none": {"dataset": ["x"]},
}


@pytest.mark.parametrize("changes", HEADERS.values(), ids=HEADERS)
def test_a_forged_header_is_refused(changes, good, tmp_path):
    refused(tmp_path / "x.small", with_header(good, **changes))


def test_headers_that_are_no_header_are_refused(good, tmp_path):
    for header in (b"", b"[]", b"[" * 60000, b"\xff\xfe", b'{"model": "cnn-small"}'):
        refused(tmp_path / "x.small", signed(struct.pack("<H", len(header)) + header))


@pytest.mark.slow
def test_a_hundred_forged_bodies_are_refused_or_read_and_none_takes_much_memory(good, tmp_path):
    start = 42 + struct.unpack("<H", good[40:42])[0]
    dice, path, outcomes = random.Random(1), tmp_path / "x.small", set()
    path.write_bytes(good)
    load(path)  # what is imported at the first time is not counted
    tracemalloc.start()
    for _ in range(100):
        body = bytearray(good[40:])
        for _ in range(dice.choice([1, 1, 4])):
            body[dice.randrange(start - 40, len(body))] = dice.choice([0, 1, 255, dice.randrange(256)])
        path.write_bytes(signed(bytes(body)))
        try:
            load(path)
            outcomes.add("read")
        except LabError:
            outcomes.add("refused")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert outcomes == {"read", "refused"}  # a forged centroid is a centroid
    assert peak < 20e6
