"""Writing with a decoder: text as tokens and back, and the choice of the next token."""

from collections.abc import Iterable

import torch

COLDEST = 1e-6  # temperature: float32 cannot tell logits apart that it would not decide between


def to_tokens(text: str) -> torch.Tensor:
    """Return a text as int64 tokens (1, T): its bytes."""
    return torch.tensor([list(text.encode())])


def to_text(tokens: Iterable[int]) -> str:
    """Return tokens, any sequence of numbers, as text; bytes that are no UTF-8 show as �."""
    return bytes(map(int, tokens)).decode(errors="replace")


def chances(logits, temperature=0.0):
    """Return the probabilities (..., classes) of the next token.

    temperature  divides the logits; at 0, and below `COLDEST`, the likeliest token has all
    """
    if temperature < COLDEST:
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    # The largest logit becomes 0 first: divided by a small number, the others overflow to -inf,
    # which softmax takes.
    below_largest = logits - logits.amax(-1, keepdim=True)
    return (below_largest / temperature).softmax(-1)


def nucleus(probabilities, share):
    """Return (..., classes) with the fewest likeliest tokens that make up `share`, 0 to 1; the
    others have 0.

    At least one token stays, and the probabilities add up to 1 again.
    Source  Holtzman et al. 2020, arXiv:1904.09751 (top-p)
    """
    ordered, tokens = probabilities.sort(dim=-1, descending=True, stable=True)
    likelier = ordered.cumsum(-1) - ordered  # what the tokens before each one have together
    stays = likelier < share
    stays[..., 0] = True
    chosen = torch.zeros_like(probabilities).scatter_(-1, tokens, ordered * stays)
    return chosen / chosen.sum(-1, keepdim=True)


def draw(probabilities, generator):
    """Draw one token for each row of (N, classes) probabilities, by a `torch.Generator`.

    Returns (N,) int64.
    """
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0]
