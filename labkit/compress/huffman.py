"""Huffman coding: frequent symbols get short codes.

What     a prefix code from the symbols' counts; canonical: the code lengths say all, so that a file's table is short
When     symbols occur in unequal numbers: cluster indices, gaps between kept weights
Cost     less than one bit a symbol over the entropy, mostly a few hundredths; decoding is serial
Not when all symbols are about equally frequent, or when one has nearly all the probability: a code takes a whole bit
Source   Huffman 1952; in networks: Han et al. 2016, arXiv:1510.00149
"""

import heapq

import numpy as np

from labkit.errors import LabError

LONGEST = 15  # bits of a code: a table of 2^15 entries decodes it, and 4 bits hold a length


def entropy(counts):
    """Shannon's bound in bits per symbol: no code of single symbols is shorter on average. 0 where nothing occurs."""
    counts = np.asarray(counts, dtype=np.float64)
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(shares * np.log2(shares)).sum()) + 0.0


def code_lengths(counts):
    """The length of each symbol's code, in bits.

    counts   (symbols,) how often each occurs, at most 2^15 symbols
    returns  (symbols,) uint8, 1 to `LONGEST`; 0 where a symbol never occurs. The shortest code there is, unless that
             would be longer than `LONGEST`: then, as in bzip2, the counts are halved until it is not
    """
    counts = np.asarray(counts, dtype=np.int64)
    lengths = np.zeros(len(counts), dtype=np.int64)
    heap = [(count, [symbol]) for symbol, count in enumerate(counts.tolist()) if count > 0]
    if len(heap) == 1:
        lengths[heap[0][1]] = 1
    heapq.heapify(heap)
    while len(heap) > 1:
        (fewest, left), (few, right) = heapq.heappop(heap), heapq.heappop(heap)
        lengths[left + right] += 1
        heapq.heappush(heap, (fewest + few, left + right))
    return lengths.astype(np.uint8) if lengths.max(initial=0) <= LONGEST else code_lengths((counts + 1) // 2)


def canonical_codes(lengths):
    """(symbols,) int64: the codes that follow from the lengths, counted up from 0, short ones first."""
    order, starts = _ordered(lengths)
    codes = np.zeros(len(lengths), dtype=np.int64)
    codes[order] = starts >> (LONGEST - np.asarray(lengths, dtype=np.int64)[order])
    return codes


def _ordered(lengths):
    """(used symbols by length, then by number; where each one's code begins on a scale of 2^LONGEST)."""
    lengths = np.asarray(lengths, dtype=np.int64)
    order = np.lexsort((np.arange(len(lengths)), lengths))
    order = order[lengths[order] > 0]
    widths = 1 << (LONGEST - np.minimum(lengths[order], LONGEST))
    if lengths.max(initial=0) > LONGEST or widths.sum() > 1 << LONGEST:
        raise LabError(
            "No prefix code has these lengths.", expected=f"at most {LONGEST} bits, a Kraft sum of at most 1"
        )
    return order, np.cumsum(widths) - widths


def encode(symbols, lengths):
    """The codes of the symbols, one after the other, filled up to whole bytes with 0: bytes.

    symbols  (n,) integers, each with a length
    """
    width, code = np.asarray(lengths, dtype=np.int64)[symbols], canonical_codes(lengths)[symbols]
    ends = np.cumsum(width)
    bits = np.zeros(ends[-1] if len(ends) else 0, dtype=np.uint8)
    for place in range(width.max(initial=0)):  # from the last bit of each code to the first
        long = width > place
        bits[ends[long] - 1 - place] = code[long] >> place & 1
    return np.packbits(bits).tobytes()


def decode(data, lengths, count):
    """The first `count` symbols: (count,) int64.

    A table of all 2^LONGEST next bits gives symbol and length. It is asked for every place in the stream at once; what
    remains serial is to step from code to code.
    Raises LabError where the bytes do not hold so many symbols.
    """
    order, starts = _ordered(lengths)
    ends = np.append(starts[1:], starts[-1:] + (1 << LONGEST - int(lengths[order[-1]]))) if len(order) else starts
    symbol, length = np.zeros(1 << LONGEST, dtype=np.int64), np.zeros(1 << LONGEST, dtype=np.uint8)
    symbol[: ends[-1] if len(ends) else 0] = np.repeat(order, ends - starts)
    length[: ends[-1] if len(ends) else 0] = np.repeat(np.asarray(lengths, dtype=np.uint8)[order], ends - starts)
    padded = np.frombuffer(data + bytes(2), dtype=np.uint8).astype(np.uint32)
    words = padded[:-2] << 16 | padded[1:-1] << 8 | padded[2:]  # 24 bits from each byte on
    steps = np.empty((len(words), 8), dtype=np.uint8)
    for bit in range(8):
        steps[:, bit] = length[words >> (24 - LONGEST - bit) & (1 << LONGEST) - 1]
    places = np.array(_walk(steps.tobytes(), count), dtype=np.int64)
    return symbol[words[places >> 3] >> (24 - LONGEST - (places & 7)) & (1 << LONGEST) - 1]


def _walk(steps, count):
    """Where each code begins, given the length of the code that would begin at each bit."""
    places, place = [0] * count, 0
    try:
        for number in range(count):
            places[number] = place
            if not (step := steps[place]):
                raise IndexError
            place += step
    except IndexError:
        place = len(steps) + 1
    if place > len(steps):
        raise LabError("The stream ends early or is no code.", expected=f"{count} symbols", found=f"{number}")
    return places
