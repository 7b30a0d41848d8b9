"""Exercises of lesson 19: a turn of continuous batching, the speed of speculative decoding."""

from dataclasses import dataclass

from labkit.lesson.exercises import Exercise, Wrong, expect, expect_close, untouched


def turn(waiting, writing, machine, *, rows, chunk):
    if writing:
        machine.write(writing)
    writing[:] = [user for user in writing if user.left]
    while chunk and waiting and len(writing) < rows:
        user = waiting[0]
        tokens = min(chunk, user.unread)
        machine.read(user, tokens)
        chunk -= tokens
        if not user.unread:
            waiting.pop(0)
            if user.left:
                writing.append(user)


@dataclass(eq=False)
class User:
    name: str
    unread: int
    left: int


class Recorder:
    """A machine that notes what it is asked for."""

    def __init__(self):
        self.calls, self.written, self.read_tokens = 0, [], {}

    def write(self, users):
        names = [user.name for user in users]
        expect(
            names,
            "machine.write was called with nobody to write for. Ask first whether "
            "anybody is writing.",
        )
        for user in users:
            expect(
                not user.unread,
                f"{user.name} was written for before the prompt was read to its end.",
            )
            expect(
                user.left,
                f"{user.name} was written for and has no token left to get: let "
                "those go who have all.",
            )
            user.left -= 1
        self.calls += 1
        self.written += names

    def read(self, user, tokens):
        expect(tokens > 0, f"machine.read({user.name}, {tokens}): read at least one token.")
        expect(
            tokens <= user.unread,
            f"machine.read({user.name}, {tokens}): only {user.unread} tokens are unread.",
        )
        user.unread -= tokens
        self.read_tokens[user.name] = self.read_tokens.get(user.name, 0) + tokens
        if not user.unread:
            user.left -= 1  # the last token of a prompt gives the first one of the answer


# users as (turn in which they come, tokens of the prompt, tokens of the answer)
CASES = {
    "one user": ([(0, 5, 3)], 4, 64),
    "two users at once, both fit into a chunk": ([(0, 5, 3), (0, 7, 4)], 4, 64),
    "three users, room for two": ([(0, 5, 3), (0, 7, 4), (0, 6, 2)], 2, 64),
    "a user who leaves makes room for one who waits": ([(0, 5, 2), (0, 5, 7), (1, 3, 3)], 2, 64),
    "a prompt of 100 tokens in chunks of 30": ([(0, 4, 9), (1, 100, 3), (1, 5, 2)], 3, 30),
    "a prompt that ends where a chunk ends": ([(0, 60, 3), (0, 7, 3)], 3, 30),
    "an answer of one token": ([(0, 5, 1), (0, 6, 1), (0, 7, 3)], 2, 64),
    "a late user, after a pause": ([(0, 5, 2), (7, 6, 2)], 2, 64),
}


def _made(users):
    return [
        (at, User(f"user {place}", prompt, count))
        for place, (at, prompt, count) in enumerate(users)
    ]


def _one_turn(call, waiting, writing, *, rows, chunk):
    """(names written for in each call, tokens read for each name, who waits, who is written for)"""
    machine = Recorder()
    call(waiting, writing, machine, rows=rows, chunk=chunk)
    return machine, [user.name for user in waiting], [user.name for user in writing]


def verify_turn(answer):
    for case, (users, rows, chunk) in CASES.items():
        states = [(_made(users), [], []) for _ in range(2)]
        for number in range(14):
            for coming, waiting, _ in states:
                waiting += [user for at, user in coming if at == number]
            where = f"{case} (rows={rows}, chunk={chunk}), turn {number + 1}"
            try:
                mine, waits, writes = _one_turn(answer, *states[0][1:], rows=rows, chunk=chunk)
            except Wrong as error:
                raise Wrong(f"{where}: {error}") from None
            ours, waits_ours, writes_ours = _one_turn(turn, *states[1][1:], rows=rows, chunk=chunk)
            expect(
                mine.calls <= 1,
                f"{where}: machine.write was called {mine.calls} times; one call writes for all.",
            )
            _compare(where, sorted(mine.written), sorted(ours.written), "a token is written for")
            total = sum(mine.read_tokens.values())
            expect(
                total <= chunk, f"{where}: {total} tokens of prompts were read, more than a chunk."
            )
            _compare(where, mine.read_tokens, ours.read_tokens, "tokens of prompts are read for")
            _compare(where, waits, waits_ours, "`waiting` then holds")
            _compare(where, writes, writes_ours, "`writing` then holds")


def _compare(where, found, wanted, what):
    expect(found == wanted, f"{where}: {what} {wanted or 'nobody'}; in yours {found or 'nobody'}.")


def speculative_speed(share, ahead, draft, check):
    tokens = sum(share**place for place in range(ahead + 1))
    return tokens / (ahead * draft + check)


def verify_speculative_speed(answer):
    answer = untouched(answer)
    cases = (
        (0.7, 4, 0.3, 1.4),
        (0.9, 1, 0.13, 1.1),
        (0.45, 7, 0.0, 2.5),
        (0.0, 3, 0.2, 1.3),
        (1.0, 5, 0.11, 1.7),
    )
    for share, ahead, draft, check in cases:
        what = f"speculative_speed(share={share}, ahead={ahead}, draft={draft}, check={check})"
        try:
            found = answer(share, ahead, draft, check)
        except ZeroDivisionError:
            raise Wrong(
                f"{what}: yours divides by 0. Where every guess is right, a round gives ahead + 1."
            ) from None
        expect_close(found, speculative_speed(share, ahead, draft, check), what)


EXERCISES = (
    Exercise(
        id="turn",
        task="Write one turn of continuous batching: a token for all who are written for, then a "
        "chunk of prompts.",
        difficulty=3,
        minutes=15,
        hint=(
            "Four steps in order. One call of machine.write for all in `writing`; keep those with "
            "tokens left, by "
            "writing[:] = [...]; then, while the chunk has tokens left, somebody waits and a row "
            "is free, read from "
            "waiting[0]; a prompt read to its end moves its user from `waiting` to `writing`."
        ),
        reference=turn,
        verify=verify_turn,
    ),
    Exercise(
        id="speculative-speed",
        task="Predict how many times as fast speculative decoding is.",
        difficulty=2,
        minutes=8,
        hint=(
            "Guess k counts only when all before it were right, too: with chance share^k. Add the "
            "token that the large "
            "decoder gives in any case. Divide by what a round costs."
        ),
        reference=speculative_speed,
        verify=verify_speculative_speed,
    ),
)
