"""Huffman coding: frequent symbols get short codes.

What     a prefix code from the symbols' counts; canonical: the code lengths say all, so the table of a file is short
When     symbols come in unequal numbers: cluster indices, gaps between kept weights
Cost     at most one bit a symbol over the entropy, mostly a few hundredths; decoding is serial
Not when all symbols are about equally frequent, or one has nearly all of the probability (a code takes a whole bit)
Source   Huffman 1952; in networks: Han et al. 2016, arXiv:1510.00149
"""

LONGEST = 15  # bits of a code: a table of 2^15 entries decodes it, and 4 bits hold a length


def code_lengths(counts):
    """The code length of each symbol, in bits.

    counts   (symbols,) how often each occurs
    returns  (symbols,) uint8; 0 where a symbol never occurs; at most `LONGEST`
    """
    raise NotImplementedError


def canonical_codes(lengths):
    """The codes that follow from the lengths: (symbols,) int64, to be written with the first bit highest."""
    raise NotImplementedError


def encode(symbols, lengths):
    """The bits of the symbols' codes, filled up to whole bytes: bytes. symbols: (n,) integers."""
    raise NotImplementedError


def decode(data, lengths, count):
    """The first `count` symbols: (count,) int64. Raises LabError where the bytes hold no such symbols."""
    raise NotImplementedError


def entropy(counts):
    """Shannon's bound in bits per symbol: no code for independent symbols is shorter on average."""
    raise NotImplementedError
