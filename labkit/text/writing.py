"""Writing with a decoder: one text after its prompt, alone or with a smaller decoder that guesses ahead.

Source  Leviathan, Kalman, Matias 2023, arXiv:2211.17192 (speculative decoding: the distribution stays exactly the same)
"""

from typing import NamedTuple

import torch

from labkit.models.decoder import Cache


def to_tokens(text):
    """A text as int64 tokens (1, T): its bytes."""
    return torch.tensor([list(text.encode())])


def to_text(tokens):
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


def generate(decoder, prompt, count, *, temperature=0.0, seed=0):
    """`count` tokens after a prompt, (1, T) int64 tokens: a list."""
    cache, random = Cache(decoder, 1, prompt.shape[1] + count), torch.Generator().manual_seed(seed)
    new, written = prompt, []
    while len(written) < count:
        logits = decoder.extend(new, cache)[:, -1]  # (1, classes)
        new = draw(chances(logits, temperature), random)[None]  # (1, 1)
        written.append(int(new))
    return written


class Speculated(NamedTuple):
    """tokens: what was written; guessed, accepted: of the draft's tokens; checks: calls of the large decoder."""

    tokens: list
    guessed: int
    accepted: int
    checks: int


def speculative(decoder, draft, prompt, count, *, ahead=4, temperature=0.0, seed=0):
    """`count` tokens as `generate` writes them: `draft` guesses `ahead` of them, `decoder` checks all in one step."""
    room, random = prompt.shape[1] + count + ahead, torch.Generator().manual_seed(seed)
    cache, small = Cache(decoder, 1, room), Cache(draft, 1, room)
    text, guessed, accepted, checks = prompt[0].tolist(), 0, 0, 0
    while len(text) < prompt.shape[1] + count:
        guesses, wanted = _guesses(draft, small, text, ahead=ahead, temperature=temperature, random=random)
        # all that the large one has not read, and the guesses: the last ahead + 1 answers are those to compare
        new = torch.tensor([text[int(cache.lengths) :] + guesses])
        found = chances(decoder.extend(new, cache)[0, -ahead - 1 :], temperature)  # (ahead + 1, classes)
        right, last = _accepted(guesses, wanted, found, random)
        text += [*guesses[:right], last]
        guessed, accepted, checks = guessed + ahead, accepted + right, checks + 1
        for each in (cache, small):  # forget the wrong ones; the last token was read by neither
            each.lengths.clamp_(max=len(text) - 1)
    return Speculated(text[prompt.shape[1] :][:count], guessed, accepted, checks)


def _guesses(draft, cache, text, *, ahead, temperature, random):
    """(the draft's next tokens, a list, and the probabilities (ahead, classes) that it drew them from)."""
    new, guesses, wanted = torch.tensor([text[int(cache.lengths) :]]), [], []
    for _ in range(ahead):
        wanted.append(chances(draft.extend(new, cache)[:, -1], temperature))
        new = draw(wanted[-1], random)[None]
        guesses.append(int(new))
    return guesses, torch.cat(wanted)


def _accepted(guesses, wanted, found, random):
    """(how many guesses stand, the token after them), so that all follow the distribution of the large decoder.

    wanted, found  probabilities (ahead, classes) of the draft, (ahead + 1, classes) of the large decoder
    """
    for place, guess in enumerate(guesses):
        if torch.rand((), generator=random) >= found[place, guess] / wanted[place, guess]:
            left = (found[place] - wanted[place]).clamp(min=0)  # what the draft gave too little
            return place, int(draw(left[None] / left.sum(), random))
    return len(guesses), int(draw(found[-1:], random))
