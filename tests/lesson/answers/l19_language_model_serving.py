"""Answers to the exercises of lesson 19: wrong ones that must be rejected, right ones written
differently.
"""

import math

import torch

from labkit.lesson.exercises.l19_language_model_serving import turn


def cache_of(join, state=None):
    """A `kv_cache` whose memory joins what is known and what is new; a `state` is shared."""

    def kv_cache():
        known = {} if state is None else state

        def memory(keys, values):
            if known:
                keys, values = join(known["keys"], keys), join(known["values"], values)
            known.update(keys=keys, values=values)
            return keys, values

        return memory

    return kv_cache


def exchanged_cache():
    memory = cache_of(lambda old, new: torch.cat([old, new], 2))()
    return lambda keys, values: memory(keys, values)[::-1]


def forgetful_cache():
    before = []

    def memory(keys, values):
        parts = [*before[-1:], (keys, values)]
        before.append((keys, values))
        return [torch.cat(pair, 2) for pair in zip(*parts, strict=True)]

    return memory


class KeyValueCache:
    def __init__(self):
        self.keys = self.values = None

    def __call__(self, keys, values):
        if self.keys is not None:
            keys = torch.cat([self.keys, keys], dim=-2)
            values = torch.cat([self.values, values], dim=-2)
        self.keys, self.values = keys, values
        return keys, values


def by_takewhile(guesses, own):
    pairs = enumerate(zip(guesses, own, strict=False))
    wrong = next((place for place, (guess, token) in pairs if guess != token), len(guesses))
    return [*guesses[:wrong], own[wrong]]


def by_loop(guesses, own):
    stays = []
    for guess, token in zip([*guesses, None], own, strict=True):
        stays.append(token)
        if guess != token:
            break
    return stays


def _admit(waiting, writing, machine, *, rows, chunk):
    while chunk and waiting and len(writing) < rows:
        user = waiting[0]
        tokens = min(chunk, user.unread)
        machine.read(user, tokens)
        chunk -= tokens
        if not user.unread:
            waiting.pop(0)
            if user.left:
                writing.append(user)


def static(waiting, writing, machine, *, rows, chunk):
    if writing:
        machine.write(writing)
    writing[:] = [user for user in writing if user.left]
    if not writing:
        _admit(waiting, writing, machine, rows=rows, chunk=chunk)


def reads_first(waiting, writing, machine, *, rows, chunk):
    _admit(waiting, writing, machine, rows=rows, chunk=chunk)
    if writing:
        machine.write(writing)
    writing[:] = [user for user in writing if user.left]


def whole_prompts(waiting, writing, machine, *, rows, chunk):
    if writing:
        machine.write(writing)
    writing[:] = [user for user in writing if user.left]
    while waiting and len(writing) < rows:
        user = waiting.pop(0)
        machine.read(user, user.unread)
        if user.left:
            writing.append(user)


def one_prompt(waiting, writing, machine, *, rows, chunk):
    if writing:
        machine.write(writing)
    writing[:] = [user for user in writing if user.left]
    if waiting and len(writing) < rows:
        user = waiting[0]
        machine.read(user, min(chunk, user.unread))
        if not user.unread:
            waiting.pop(0)
            if user.left:
                writing.append(user)


def new_one_first(waiting, writing, machine, **limits):
    before = list(writing)
    turn(waiting, writing, machine, **limits)
    writing.sort(key=lambda user: user in before)


def nobody_leaves(waiting, writing, machine, *, rows, chunk):
    if writing:
        machine.write(writing)
    _admit(waiting, writing, machine, rows=rows, chunk=chunk)


def new_lists(waiting, writing, machine, *, rows, chunk):
    if writing:
        machine.write(writing)
    writing = [user for user in writing if user.left]
    _admit(waiting, writing, machine, rows=rows, chunk=chunk)


def one_by_one(waiting, writing, machine, *, rows, chunk):
    for user in writing:
        machine.write([user])
    writing[:] = [user for user in writing if user.left]
    _admit(waiting, writing, machine, rows=rows, chunk=chunk)


def no_limit_of_rows(waiting, writing, machine, *, rows, chunk):
    if writing:
        machine.write(writing)
    writing[:] = [user for user in writing if user.left]
    _admit(waiting, writing, machine, rows=99, chunk=chunk)


def youngest_first(waiting, writing, machine, *, rows, chunk):
    waiting.reverse()
    if writing:
        machine.write(writing)
    writing[:] = [user for user in writing if user.left]
    _admit(waiting, writing, machine, rows=rows, chunk=chunk)
    waiting.reverse()


def with_for(waiting, writing, machine, *, rows, chunk):
    if writing:
        machine.write(list(writing))
    for user in list(writing):
        if not user.left:
            writing.remove(user)
    for user in list(waiting):
        if not chunk or len(writing) >= rows:
            break
        part = min(chunk, user.unread)
        chunk -= part
        machine.read(user, part)
        if user.unread == 0:
            waiting.remove(user)
            writing += [user] * (user.left > 0)


def token_by_token(waiting, writing, machine, *, rows, chunk):
    if len(writing):
        machine.write(tuple(writing))
    staying = [user for user in writing if user.left > 0]
    writing.clear()
    writing.extend(staying)
    for _ in range(chunk):
        if not waiting or len(writing) == rows:
            return
        first = waiting[0]
        machine.read(first, 1)
        if first.unread == 0:
            del waiting[0]
            if first.left > 0:
                writing.append(first)


WRONG = {
    "kv-cache": {
        "gives the new ones only": lambda: lambda keys, values: (keys, values),
        "newest first": cache_of(lambda old, new: torch.cat([new, old], 2)),
        "joins heads": cache_of(lambda old, new: torch.cat([old, old.expand_as(old)], 1)),
        "all texts share one memory": cache_of(lambda old, new: torch.cat([old, new], 2), {}),
        "keys and values exchanged": exchanged_cache,
        "knows the last call only": forgetful_cache,
    },
    "accepted": {
        "without the decoder's own token": lambda guesses, own: by_loop(guesses, own)[:-1],
        "all that are right, also behind a wrong one": lambda guesses, own: [
            token
            for place, token in enumerate(own)
            if place == len(guesses) or guesses[place] == token
        ],
        "keeps the wrong guess": lambda guesses, own: guesses[: len(by_loop(guesses, own))],
        "everything of the decoder": lambda guesses, own: list(own),
        "the last token where all were right is lost": lambda guesses, own: by_loop(guesses, own)[
            : len(guesses)
        ],
    },
    "turn": {
        "static batches": static,
        "reads before it writes": reads_first,
        "whole prompts": whole_prompts,
        "one prompt per turn": one_prompt,
        "nobody leaves": nobody_leaves,
        "makes new lists": new_lists,
        "a call for each user": one_by_one,
        "no limit of rows": no_limit_of_rows,
        "youngest first": youngest_first,
        "the new one first in writing": new_one_first,
    },
    "speculative-speed": {
        "forgets the large decoder's token": lambda a, k, d, c: (
            sum(a**i for i in range(1, k + 1)) / (k * d + c)
        ),
        "all guesses independent of those before": lambda a, k, d, c: (1 + a * k) / (k * d + c),
        "one step of the draft": lambda a, k, d, c: sum(a**i for i in range(k + 1)) / (d + c),
        "the check costs a step": lambda a, k, d, c: sum(a**i for i in range(k + 1)) / (k * d + 1),
        "divides by zero at share 1": lambda a, k, d, c: (1 - a ** (k + 1)) / (1 - a) / (k * d + c),
        "one guess more": lambda a, k, d, c: sum(a**i for i in range(k + 2)) / (k * d + c),
    },
}

RIGHT = {
    "kv-cache": {
        "a class": KeyValueCache,
        "one tensor that grows": cache_of(lambda old, new: torch.cat([old, new], 2)),
    },
    "accepted": {"by the first wrong place": by_takewhile, "by a loop": by_loop},
    "turn": {"with for": with_for, "token by token": token_by_token},
    "speculative-speed": {
        "closed form": lambda a, k, d, c: (
            (k + 1 if a == 1 else (1 - a ** (k + 1)) / (1 - a)) / (k * d + c)
        ),
        "by products": lambda a, k, d, c: (
            (1 + sum(math.prod([a] * i) for i in range(1, k + 1))) / (c + d * k)
        ),
    },
}
