"""Make batches of texts of about equal length.

All rows of a batch are padded to the longest: the network computes the padding for nothing.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from labkit.models.encoder import PADDING


def padded(rows: Sequence, length: int | None = None) -> torch.Tensor:
    """Return rows of tokens as one (N, T) int64 tensor, with padding at the end of shorter rows.

    rows    sequence of (length,) tensors
    length  T; longer rows are cut. None: the length of the longest row
    """
    tokens = pad_sequence([row[:length] for row in rows], batch_first=True, padding_value=PADDING)
    if length is None:
        return tokens
    return pad(tokens, (0, length - tokens.shape[1]), value=PADDING)


def by_length(lengths, size):
    """Return batches of texts of similar length: lists of at most `size` indices of texts.

    The batch with the longest texts comes first: if it does not fit in memory, that shows at once.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    return [order[start : start + size] for start in range(0, len(order), size)]


def encoded(rows: Sequence, network: Callable, size: int = 32) -> torch.Tensor:
    """Return the vectors (N, width) of texts, in the order of the texts.

    rows     sequence of (length,) tensors of tokens
    network  function (N, T) tokens -> (N, width), such as an ONNX file of open length, loaded
    size     most rows in a batch
    """
    batches = by_length([len(row) for row in rows], size)
    vectors = []
    with torch.inference_mode():
        for indices in batches:
            tokens = padded([rows[index] for index in indices])
            vectors.append(network(tokens))
        original_order = np.argsort(np.concatenate(batches))
        return torch.cat(vectors)[original_order]
