"""Huffman coding: worked by hand, no code shorter, Kraft's equality, and there and back."""

import itertools
import time

import numpy as np
import pytest

from labkit.compress import canonical_codes, code_lengths, decode, encode, entropy
from labkit.compress.huffman import LONGEST
from labkit.errors import LabError


def test_a_code_by_hand():
    lengths = code_lengths([45, 13, 12, 16, 9, 5])  # Cormen et al., Introduction to Algorithms, 16.3
    assert lengths.tolist() == [1, 3, 3, 3, 4, 4]
    assert canonical_codes(lengths).tolist() == [0b0, 0b100, 0b101, 0b110, 0b1110, 0b1111]
    assert encode([0, 1, 5, 0], lengths) == bytes([0b0_100_1111, 0b0_0000000])


def test_shannons_bound_by_hand():
    assert entropy([1, 1, 2]) == 1.5
    assert entropy([0.25] * 4) == 2
    assert entropy([7, 0]) == entropy([]) == 0


def all_lengths(count, longest):
    """Every list of lengths that a prefix code can have."""
    for lengths in itertools.product(range(1, longest + 1), repeat=count):
        if sum(2.0**-length for length in lengths) <= 1:
            yield lengths


@pytest.mark.parametrize("counts", [[1, 1, 1], [5, 1, 1, 1], [8, 4, 2, 1, 1], [3, 3, 2, 2, 1], [100, 1, 1, 1, 1]])
def test_no_prefix_code_is_shorter(counts):
    best = min(np.dot(counts, lengths) for lengths in all_lengths(len(counts), len(counts) - 1))
    assert np.dot(counts, code_lengths(counts)) == best


@pytest.mark.parametrize("seed", range(5))
def test_kraft_holds_with_equality_and_the_mean_length_is_within_a_bit_of_the_entropy(seed):
    counts = np.random.default_rng(seed).geometric(0.01, size=200)
    lengths = code_lengths(counts).astype(float)
    assert (2.0**-lengths).sum() == 1
    mean = np.dot(counts, lengths) / counts.sum()
    assert entropy(counts) <= mean < entropy(counts) + 1


def test_no_code_begins_with_another():
    lengths = code_lengths(np.random.default_rng(0).geometric(0.05, size=60))
    codes = [f"{code:0{length}b}" for code, length in zip(canonical_codes(lengths), lengths, strict=True)]
    assert not any(a != b and b.startswith(a) for a, b in itertools.permutations(codes, 2))


def test_codes_that_would_be_too_long_are_shortened_and_stay_a_code():
    fibonacci = [1, 1]
    while len(fibonacci) < 40:
        fibonacci.append(sum(fibonacci[-2:]))
    lengths = code_lengths(fibonacci)
    assert lengths.max() == LONGEST
    assert (2.0 ** -lengths.astype(float)).sum() <= 1
    symbols = np.arange(40)
    assert decode(encode(symbols, lengths), lengths, 40).tolist() == symbols.tolist()


@pytest.mark.parametrize("counts", [[1], [3, 0, 1], [1] * 256, [2**k for k in range(15)]])
def test_there_and_back(counts):
    symbols = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    lengths = code_lengths(counts)
    data = encode(symbols, lengths)
    assert len(data) == -(-int(np.dot(counts, lengths)) // 8)
    assert decode(data, lengths, len(symbols)).tolist() == symbols.tolist()


def test_nothing_is_coded_as_nothing():
    lengths = code_lengths([0, 0])
    assert lengths.tolist() == [0, 0]
    assert encode(np.zeros(0, dtype=int), lengths) == b""
    assert decode(b"", lengths, 0).tolist() == []


def test_a_million_symbols_come_back_in_about_a_second():
    symbols = np.minimum(np.random.default_rng(0).geometric(0.05, 10**6) - 1, 255)
    lengths = code_lengths(np.bincount(symbols, minlength=256))
    data = encode(symbols, lengths)
    begin = time.process_time()
    found = decode(data, lengths, len(symbols))
    assert time.process_time() - begin < 5  # 0.5 s on a quiet machine
    assert np.array_equal(found, symbols)
    assert 8 * len(data) / len(symbols) < 1.01 * entropy(np.bincount(symbols))


BAD = {
    "too few bytes": (b"\x00", [1, 2, 2], 20),
    "one symbol too many": (encode([2] * 4, [1, 2, 2]), [1, 2, 2], 5),
    "no code": (b"\xff", [1], 1),
    "no symbols at all": (b"\x00\x00", [], 1),
    "no bytes": (b"", [1, 1], 1),
    "more codes than there are": (b"\x00", [1, 1, 1], 1),
    "codes too long": (b"\x00", [16, 1], 1),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_what_holds_no_such_symbols_is_refused(case):
    with pytest.raises(LabError, match=r"ends early|No prefix code"):
        decode(*case)
