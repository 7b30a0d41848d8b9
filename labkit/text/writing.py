"""Writing with a decoder: text as tokens and back, and the choice of the next token."""

from collections.abc import Iterable

import torch


def to_tokens(text: str) -> torch.Tensor:
    """A text as int64 tokens (1, T): its bytes."""
    return torch.tensor([list(text.encode())])


def to_text(tokens: Iterable[int]) -> str:
    """Tokens, any sequence of numbers, as text; bytes that are no UTF-8 show as �."""
    return bytes(map(int, tokens)).decode(errors="replace")


def chances(logits, temperature=0.0):
    """(..., classes) probabilities of the next token; at temperature 0 the likeliest has all."""
    if temperature == 0:
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    return (logits / temperature).softmax(-1)


def draw(probabilities, random):
    """One token of each row: (N, classes) -> (N,); `random` is a `torch.Generator`."""
    return torch.multinomial(probabilities, 1, generator=random)[:, 0]
