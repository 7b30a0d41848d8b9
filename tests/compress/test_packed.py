"""The file of a compressed network: every bit comes back, no damaged bit is overlooked, no claim costs memory."""

import copy
import io
import json
import random
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
import torch
from torch import nn

from labkit.compress import apply_masks, folded, load, magnitude_masks, save, share
from labkit.errors import LabError
from labkit.models import build, example

NAMES = ("cnn-medium", "vgg-small", "convnext-mini", pytest.param("encoder-small", marks=pytest.mark.slow))


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
    return share(apply_masks(model, magnitude_masks(model, sparsity)), bits), shape


def same(a, b):
    pairs = list(zip(a.state_dict().items(), b.state_dict().items(), strict=True))
    return all(x == y and v.dtype == w.dtype and v.numpy().tobytes() == w.numpy().tobytes() for (x, v), (y, w) in pairs)


@pytest.mark.parametrize("huffman", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_network_comes_back_bit_for_bit_and_so_do_its_answers(name, huffman, tmp_path):
    model, shape = compressed(name)
    model = folded(model)
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
    "pruned only": lambda model: apply_masks(model, magnitude_masks(model, 0.8)),
    "shared only": lambda model: share(model, 3),
    "all zeros": lambda model: apply_masks(model, magnitude_masks(model, 1.0)),
    "with -0.0, infinity and NaN": lambda model: with_oddities(model),
    "gaps longer than a symbol": lambda model: share(apply_masks(model, magnitude_masks(model, 0.999)), 1),
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
    model = folded(model)
    bits = save(tmp_path / "x.small", model, "vgg-medium", shape=shape)
    assert bits["bound"] <= bits["gaps"] + bits["indices"] < 1.03 * bits["bound"]
    parts = sum(bits[part] for part in ("gaps", "indices", "codebooks", "values"))
    assert parts <= bits["total"] < parts + 8 * 700  # the zip's directory, and what the network is
    equal = save(tmp_path / "y.small", model, "vgg-medium", shape=shape, huffman=False)
    assert equal["total"] > 1.05 * bits["total"]


def test_the_bound_is_the_entropy_of_gaps_and_indices_counted_by_hand(tmp_path):
    model = nn.Sequential(nn.Linear(8, 40, bias=False), nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0, 0.0] * 40).view(40, 8))
    bits = save(tmp_path / "x.small", model, "mine", shape=(8,))
    gaps = [0] * 1 + [1, 2, 2] * 39 + [1, 2]  # after the first: of 2.0 one zero, of 1.0 two, of the next row's two
    indices = [0, 1, 0] * 40
    shares = [np.bincount(symbols) / 120 for symbols in (gaps, indices)]
    wanted = sum(-120 * float((share * np.log2(share)).sum()) for share in shares)
    assert bits["bound"] == pytest.approx(wanted)


def test_folding_changes_no_answer_by_more_than_half_precision_does(tmp_path):
    model, shape = compressed("cnn-medium")
    model.eval()
    before, x = copy.deepcopy(model.state_dict()), example("cnn-medium", 16, shape=shape)
    quiet = folded(model)
    with torch.inference_mode():
        assert torch.allclose(quiet(x), model(x), rtol=1e-2, atol=2e-3)
    assert not quiet.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    norms = [layer for layer in quiet.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert all((layer.running_mean == 0).all() and (layer.running_var == 1).all() for layer in norms)


def test_folding_takes_away_minus_zero_and_leaves_what_half_precision_cannot_hold():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[-0.0, 1.1], [0.0, -1.0]]))
        model[0].bias.copy_(torch.tensor([1e6, 0.1]))
    quiet = folded(model)
    assert quiet[0].weight.detach().numpy().tobytes() == np.array([[0, 1.1], [0, -1]], np.float32).tobytes()
    assert quiet[0].bias.tolist() == model[0].bias.tolist()


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A whole file, small enough to be damaged hundreds of times: (its bytes, its network)."""
    model, shape = build("cnn-small")
    model = folded(share(apply_masks(model, magnitude_masks(model, 0.8)), 3))
    path = tmp_path_factory.mktemp("good") / "x.small"
    save(path, model, "cnn-small", shape=shape)
    return path.read_bytes(), model


def refused(path, data):
    path.write_bytes(data)
    with pytest.raises(LabError, match="no whole file") as caught:
        load(path)
    assert caught.value.fix and caught.value.found
    return caught.value


def test_no_flipped_bit_changes_the_network_unnoticed(good, tmp_path):
    data, model = good
    path, outcomes = tmp_path / "x.small", []
    for place in random.Random(0).sample(range(8 * len(data)), 200):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(bytes(damaged))
        try:
            found = load(path).network
            outcomes.append("the same")  # a bit of the zip that no reader looks at, such as the date of a member
            assert same(found, model)
        except LabError:
            outcomes.append("refused")
    assert outcomes.count("refused") > 150


def test_truncated_and_foreign_files_are_refused(good, tmp_path):
    data, path = good[0], tmp_path / "x.small"
    for length in [0, 1, 7, 8, len(data) - 1, *random.Random(0).sample(range(len(data)), 45)]:
        refused(path, data[:length])
    for foreign in (b"PK\x03\x04" + bytes(100), b"{}", data[:100] * 2):
        refused(path, foreign)
    for missing in (tmp_path / "none.small", tmp_path):
        with pytest.raises(LabError, match="no whole file"):
            load(missing)


def test_a_file_of_an_earlier_edition_is_refused_with_the_command_that_makes_a_new_one(tmp_path):
    error = refused(tmp_path / "x.small", b"labpack1" + bytes(1000))
    assert "this edition" in error.expected and "not a zip file" in error.found
    assert "labkit compress CHECKPOINT OUT" in error.fix


def forged(good, path, compression=zipfile.ZIP_STORED, **changes):
    """Refuse a whole zip with right checksums where some members are others; a forger can write one."""
    with zipfile.ZipFile(io.BytesIO(good[0])) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in {**members, **changes}.items():
            archive.writestr(name, data)
    return refused(path, buffer.getvalue())


ABOUT = {
    "unknown network": {"model": "os.system"},
    "no name": {"model": 7},
    "millions of classes": {"classes": 10**9},
    "4096 classes": {"classes": 4096},
    "no classes": {"classes": 0},
    "huge images": {"shape": [1, 10**6, 10**6]},
    "thousands of channels": {"shape": [4096, 28, 28]},
    "no images": {"shape": [-1, 28, 28]},
    "no shape": {"shape": 3},
    "a larger network": {"model": "cnn-medium"},
    "another number of weights": {"numbers": 7},
}


@pytest.mark.parametrize("changes", ABOUT.values(), ids=ABOUT)
def test_forged_facts_are_refused(changes, good, tmp_path):
    with zipfile.ZipFile(io.BytesIO(good[0])) as archive:
        about = json.loads(archive.read("network.json"))
    forged(good, tmp_path / "x.small", **{"network.json": json.dumps({**about, **changes})})


def test_facts_that_are_no_json_are_refused(good, tmp_path):
    for text in (b"", b"[]", b"[" * 60000, b"\xff\xfe", b'{"model": "cnn-small"}'):
        forged(good, tmp_path / "x.small", **{"network.json": text})


def zlib_stream(data):
    coder = zlib.compressobj(9, wbits=-15)
    return coder.compress(data) + coder.flush()


BOMBS = {part: zlib_stream(bytes(10**8)) for part in ("gaps", "indices", "codebooks", "values")}


@pytest.mark.parametrize("part", BOMBS)
def test_a_bomb_is_refused_before_it_takes_memory(part, good, tmp_path):
    path = tmp_path / "x.small"
    path.write_bytes(good[0])
    load(path)  # modules that this imports are not counted
    tracemalloc.start()
    error = forged(good, path, **{part: BOMBS[part]})
    forged(good, path, zipfile.ZIP_DEFLATED, **{part: bytes(10**7)})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert part in error.found
    assert peak < 40e6  # of which the test itself makes 20


def test_streams_that_contradict_the_network_are_refused(good, tmp_path):
    path = tmp_path / "x.small"
    for part in BOMBS:
        forged(good, path, **{part: b""})
    forged(good, path, gaps=zlib_stream(b"\xff" * 36))  # a gap that leads behind the layer's last weight
    forged(good, path, codebooks=zlib_stream(bytes(4)))  # one value, and indices beyond it
    forged(good, path, codebooks=zlib_stream(bytes(5)))  # not whole numbers


@pytest.mark.slow
def test_a_hundred_forged_files_are_refused_or_read_and_nothing_else_is_raised(good, tmp_path):
    dice, path, outcomes = random.Random(1), tmp_path / "x.small", set()
    with zipfile.ZipFile(io.BytesIO(good[0])) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(100):
        part = dice.choice(list(members))
        changed = bytearray(members[part])
        changed[dice.randrange(len(changed))] = dice.randrange(256)
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in {**members, part: bytes(changed)}.items():
                archive.writestr(name, data)
        try:
            load(path)
            outcomes.add("read")
        except LabError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}  # a forged centroid is a centroid
