"""Convert text to tokens and back, and choose the next token of a decoder."""

from collections.abc import Iterable

import torch

# temperature below which any difference between two float32 logits decides between the tokens
COLDEST = 1e-6


def to_tokens(text: str) -> torch.Tensor:
    """Return a text as int64 tokens (1, T). Each byte of its UTF-8 is a token."""
    return torch.tensor([list(text.encode())])


def to_text(tokens: Iterable[int]) -> str:
    """Return tokens, which are bytes of UTF-8, as a text; a byte that is not UTF-8 becomes �."""
    return bytes(map(int, tokens)).decode(errors="replace")


def chances(logits, temperature=0.0):
    """Return the probabilities of the next token: (..., classes).

    logits       (..., classes)
    temperature  number by which the logits are divided. Below `COLDEST`, and so at 0, the likeliest
                 token has probability 1
    """
    if temperature < COLDEST:
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    # The largest logit becomes 0 first: divided by a small number, the others overflow to -inf,
    # which softmax takes.
    below_largest = logits - logits.amax(-1, keepdim=True)
    return (below_largest / temperature).softmax(-1)


def nucleus(probabilities, share):
    """Keep as few of the likeliest tokens as together have the probability `share`.

    All other tokens get probability 0. At least one token stays. The probabilities are scaled so
    that they add up to 1 again.

    probabilities  (..., classes)
    share          0 to 1
    returns        (..., classes)
    Source         Holtzman et al. 2020, arXiv:1904.09751 (top-p)
    """
    ordered, tokens = probabilities.sort(dim=-1, descending=True, stable=True)
    likelier = ordered.cumsum(-1) - ordered  # probability of all tokens that are likelier
    stays = likelier < share
    stays[..., 0] = True
    chosen = torch.zeros_like(probabilities).scatter_(-1, tokens, ordered * stays)
    return chosen / chosen.sum(-1, keepdim=True)


def draw(probabilities, generator):
    """Draw one token for each row of probabilities. Returns (N,) int64.

    probabilities  (N, classes)
    generator      a `torch.Generator`
    """
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0]
