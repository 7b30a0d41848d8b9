"""Other ways to write with a decoder, which `serving.py` compares: alone, with a draft, in ONNX
Runtime.

Source  Leviathan, Kalman, Matias 2023, arXiv:2211.17192 (speculative decoding: the distribution
        stays exactly the same)
"""

import warnings
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.export import Dim

from labkit.export.from_torch import OPSET
from labkit.files import atomic
from labkit.models.decoder import Cache
from labkit.text.writing import chances, draw


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
    """tokens: what was written; guessed, accepted: of the draft's tokens; checks: calls of the
    large decoder.
    """

    tokens: list
    guessed: int
    accepted: int
    checks: int


def speculative(decoder, draft, prompt, count, *, ahead=4, temperature=0.0, seed=0):
    """`count` tokens as `generate` writes them: `draft` guesses `ahead` of them, `decoder`
    checks all in one step.
    """
    room, random = prompt.shape[1] + count + ahead, torch.Generator().manual_seed(seed)
    cache, small = Cache(decoder, 1, room), Cache(draft, 1, room)
    text, guessed, accepted, checks = prompt[0].tolist(), 0, 0, 0
    while len(text) < prompt.shape[1] + count:
        guesses, wanted = _guesses(
            draft, small, text, ahead=ahead, temperature=temperature, random=random
        )
        # all that the large one has not read, and the guesses: the last ahead + 1 answers are those
        # to compare
        new = torch.tensor([text[int(cache.lengths) :] + guesses])
        # (ahead + 1, classes)
        found = chances(decoder.extend(new, cache)[0, -ahead - 1 :], temperature)
        right, last = _accepted(guesses, wanted, found, random)
        text += [*guesses[:right], last]
        guessed, accepted, checks = guessed + ahead, accepted + right, checks + 1
        for each in (cache, small):  # forget the wrong ones; the last token was read by neither
            each.lengths.clamp_(max=len(text) - 1)
    return Speculated(text[prompt.shape[1] :][:count], guessed, accepted, checks)


def _guesses(draft, cache, text, *, ahead, temperature, random):
    """(the draft's next tokens, a list, and the probabilities (ahead, classes) that it drew them
    from).
    """
    new, guesses, wanted = torch.tensor([text[int(cache.lengths) :]]), [], []
    for _ in range(ahead):
        wanted.append(chances(draft.extend(new, cache)[:, -1], temperature))
        new = draw(wanted[-1], random)[None]
        guesses.append(int(new))
    return guesses, torch.cat(wanted)


def _accepted(guesses, wanted, found, random):
    """(how many guesses stand, the token after them), so that all follow the distribution of the
    large decoder.

    wanted, found  probabilities (ahead, classes) of the draft, (ahead + 1, classes) of the large
                   decoder
    """
    for place, guess in enumerate(guesses):
        if torch.rand((), generator=random) >= found[place, guess] / wanted[place, guess]:
            left = (found[place] - wanted[place]).clamp(min=0)  # what the draft gave too little
            return place, int(draw(left[None] / left.sum(), random))
    return len(guesses), int(draw(found[-1:], random))


class WithCache(nn.Module):
    """A decoder whose cache comes in and goes out: the form for ONNX. All texts are of one length.

    input   tokens (N, T); keys and values (layers, N, groups, P, size) of P tokens before them, P
            from 0
    output  logits (N, T, classes); keys and values (layers, N, groups, P + T, size)
    """

    def __init__(self, decoder):
        super().__init__()
        self.decoder = decoder

    def forward(self, tokens, keys, values):
        known = torch.arange(keys.shape[3] + tokens.shape[1])[None]  # (1, P + T)
        grown = []

        def memory(key, value, old):
            grown.append((torch.cat([old[0], key], 2), torch.cat([old[1], value], 2)))
            return grown[-1]

        memories = [
            lambda k, v, old=old: memory(k, v, old) for old in zip(keys, values, strict=True)
        ]
        logits = self.decoder.through(tokens, known[:, keys.shape[3] :], known, memories)
        return logits, *(torch.stack(each) for each in zip(*grown, strict=True))


def to_onnx_with_cache(decoder, path):
    """Write a decoder in the form of `WithCache` as an ONNX file, for any number of texts and
    tokens: the path.
    """
    batch, new, past = Dim("batch"), Dim("new"), Dim("past", min=0)
    cache = torch.zeros(len(decoder.layers), 2, decoder.groups, 5, decoder.size)
    with atomic(path) as temporary, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter's own, about itself
        torch.onnx.export(
            WithCache(decoder).eval(),
            # one tensor twice would be one input
            (torch.ones(2, 3, dtype=torch.int64), cache, cache.clone()),
            temporary,
            dynamo=True,
            dynamic_shapes=({0: batch, 1: new}, {1: batch, 3: past}, {1: batch, 3: past}),
            input_names=["tokens", "keys", "values"],
            output_names=["logits", "keys_after", "values_after"],
            opset_version=OPSET,
            external_data=False,
            verbose=False,
        )
    return Path(path)


def generate_with(opened, prompt, count, *, temperature=0.0, seed=0):
    """`count` tokens after a prompt (1, T), as `generate` writes them, by such a file: a list.

    opened  a session of it
    """
    _, keys, _ = opened.get_inputs()
    layers, _, groups, _, size = keys.shape
    nothing = torch.zeros(layers, 1, groups, 0, size).numpy()
    cache, random = [nothing, nothing], torch.Generator().manual_seed(seed)
    new, written = prompt, []
    while len(written) < count:
        logits, *cache = opened.run(
            None, {"tokens": new.numpy(), "keys": cache[0], "values": cache[1]}
        )
        new = draw(chances(torch.from_numpy(logits[:, -1]), temperature), random)[None]
        written.append(int(new))
    return written
