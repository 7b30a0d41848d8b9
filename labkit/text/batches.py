"""Make batches of texts of about equal length.

All rows of a batch are padded to the length of the longest. Computing the padding is wasted work,
and there is little of it if the lengths are similar.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from labkit.models.encoder import PADDING


def padded(rows: Sequence, length: int | None = None) -> torch.Tensor:
    """Return rows of tokens as one (N, T) int64 tensor; shorter rows get padding at their end.

    rows    sequence of (length,) tensors
    length  T: longer rows are cut to this length. None: the length of the longest row
    """
    tokens = pad_sequence([row[:length] for row in rows], batch_first=True, padding_value=PADDING)
    if length is None:
        return tokens
    return pad(tokens, (0, length - tokens.shape[1]), value=PADDING)


def by_length(lengths, size):
    """Divide texts into batches of similar length. Returns a list of lists of indices of texts.

    The batch with the longest texts comes first: if it does not fit in memory, that shows at once.

    lengths  length of each text
    size     largest number of texts in a batch
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    return [order[start : start + size] for start in range(0, len(order), size)]


def encoded(rows: Sequence, network: Callable, size: int = 32) -> torch.Tensor:
    """Return the vectors of texts: (N, width), in the order of the texts.

    rows     sequence of (length,) tensors of tokens
    network  function: tokens (N, T) -> vectors (N, width). It has to accept any N and T, as a
             loaded ONNX file with open dimensions does
    size     largest number of texts in a batch
    """
    batches = by_length([len(row) for row in rows], size)
    vectors = []
    with torch.inference_mode():
        for indices in batches:
            tokens = padded([rows[index] for index in indices])
            vectors.append(network(tokens))
        original_order = np.argsort(np.concatenate(batches))
        return torch.cat(vectors)[original_order]
