"""Batches of texts.

All rows of a batch are as long as its longest: what fills the others up is work on nothing.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from labkit.models.encoder import PADDING


def padded(rows: Sequence, length: int | None = None) -> torch.Tensor:
    """Return rows of tokens as one (N, T) int64 tensor, filled up with padding.

    length  None: that of the longest row; else T, and what is longer is cut
    """
    tokens = pad_sequence([row[:length] for row in rows], batch_first=True, padding_value=PADDING)
    if length is None:
        return tokens
    return pad(tokens, (0, length - tokens.shape[1]), value=PADDING)


def by_length(lengths, size):
    """Return batches of at most `size` texts of about one length, each a list of indices of texts.

    The longest come first: if they do not fit in memory, that shows at once.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    return [order[start : start + size] for start in range(0, len(order), size)]


def encoded(rows: Sequence, network: Callable, size: int = 32) -> torch.Tensor:
    """Return the vectors (N, width) of rows of tokens, in the order of the rows.

    network  function (N, T) tokens -> (N, width), such as a `Served` of a file with an open length
    size     rows in a batch, at most
    """
    batches = by_length([len(row) for row in rows], size)
    vectors = []
    with torch.inference_mode():
        for indices in batches:
            tokens = padded([rows[index] for index in indices])
            vectors.append(network(tokens))
        original_order = np.argsort(np.concatenate(batches))
        return torch.cat(vectors)[original_order]
