"""Batches of texts. All rows of a batch are as long as its longest: what fills the others up is work on nothing."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from labkit.models.encoder import PADDING


def padded(rows: Sequence, length: int | None = None) -> torch.Tensor:
    """Rows of tokens as one (N, T) int64 tensor, filled up to the longest, or to `length` (what is longer is cut)."""
    filled = pad_sequence([row[:length] for row in rows], batch_first=True, padding_value=PADDING)
    return filled if length is None else pad(filled, (0, length - filled.shape[1]), value=PADDING)


def by_length(lengths, size):
    """Places of the texts in batches of at most `size`, of texts of about one length: a list of lists.

    The longest come first: what does not fit in memory is found out at once.
    """
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    return [order[at : at + size] for at in range(0, len(order), size)]


def encoded(rows: Sequence, answer: Callable, size: int = 32) -> torch.Tensor:
    """(N, width): the numbers of each row of tokens, in the order of the rows.

    answer  (N, T) tokens -> (N, width), such as a network, or a `Served` of a file with an open length
    """
    batches = by_length([len(row) for row in rows], size)
    with torch.inference_mode():
        found = [answer(padded([rows[place] for place in places])) for places in batches]
        return torch.cat(found)[np.argsort(np.concatenate(batches))]
