"""Answers to the exercises of lesson 19: wrong ones that must be rejected, right ones written
differently.
"""

import math

from labkit.lesson.exercises.l19_language_model_serving import turn


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
