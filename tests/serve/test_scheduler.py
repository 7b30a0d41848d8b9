"""The scheduler: a text is the same alone and among others, nobody is forgotten, rows are never
shared.
"""

import pytest
import torch

from labkit.models.decoder import Decoder
from labkit.serve.scheduler import Request, Scheduler, Writer
from labkit.text.writing import chances, draw, nucleus


@pytest.fixture(scope="module")
def decoder():
    torch.manual_seed(0)
    return Decoder(24, 2, heads=3, groups=1, inner=20, longest=96).double().eval()


def requests(count, seed=0, **settings):
    random = torch.Generator().manual_seed(seed)
    for n in range(count):
        length, wanted = torch.randint(1, 40, (2,), generator=random).tolist()
        prompt = torch.randint(0, 256, (length,), generator=random).tolist()
        yield Request(prompt=prompt, count=wanted, seed=n, **settings)


def alone(decoder, request):
    text, random = torch.tensor([request.prompt]), torch.Generator().manual_seed(request.seed)
    with torch.inference_mode():
        for _ in range(request.count):
            new = draw(chances(decoder(text)[:, :, -1], request.temperature), random)[None]
            text = torch.cat([text, new], 1)
    return text[0, len(request.prompt) :].tolist()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("rows, chunk", [(1, 7), (3, 5), (5, 64)])
def test_every_text_is_the_one_that_is_written_alone(decoder, rows, chunk, temperature):
    scheduler = Scheduler(Writer(decoder, rows), chunk=chunk)
    asked = list(requests(9, temperature=temperature))
    late = {3: asked[6], 11: asked[7], 40: asked[8]}
    for each in asked[:6]:
        scheduler.add(each)
    turn = 0
    while scheduler.busy() or turn <= max(late):
        if turn in late:
            scheduler.add(late[turn])
        scheduler.turn()
        turn += 1
        assert len(scheduler.writing) <= rows
    for each in asked:
        assert each.ended == "length"
        assert each.tokens == alone(decoder, each)


class Counted:
    """A writer that computes nothing, and complains of a row that is used wrongly."""

    rows = 4

    def __init__(self):
        self.turns, self.read_tokens, self.desk = [], 0, None

    def read(self, tokens, *, first):
        self.read_tokens += len(tokens)
        self.turns.append(len(tokens))
        return torch.zeros(1, 256)

    def seat(self, row):
        assert 0 <= row < self.rows

    def write(self, tokens):
        assert 0 < len(tokens) <= self.rows
        return torch.zeros(len(tokens), 256)

    def move(self, source, target):
        assert target < source < self.rows


def test_each_prompt_is_read_once_and_a_turn_reads_at_most_a_chunk():
    writer, asked = Counted(), list(requests(20))
    scheduler = Scheduler(writer, chunk=16)
    for each in asked:
        scheduler.add(each)
    while scheduler.busy():
        before = writer.read_tokens
        scheduler.turn()
        assert writer.read_tokens - before <= 16
    assert writer.read_tokens == sum(len(each.prompt) for each in asked)
    assert [len(each.tokens) for each in asked] == [each.count for each in asked]


def test_first_come_first_read():
    asked, order = list(requests(12)), []
    scheduler = Scheduler(Counted(), chunk=8)
    for each in asked:
        scheduler.add(each)
    while scheduler.busy():
        order += [each for each in scheduler.turn() if each not in order]
    assert order == asked


def test_a_text_in_a_batch_gets_a_token_in_every_turn():
    writer, long = Counted(), Request(prompt=[1], count=60)
    scheduler = Scheduler(writer, chunk=4)
    scheduler.add(long)
    for each in requests(10):
        scheduler.add(each)
    scheduler.turn()
    for turn in range(2, 40):
        assert long in scheduler.turn()
        assert len(long.tokens) == turn


def test_a_request_that_is_gone_leaves_and_the_others_stay_right(decoder):
    asked = list(requests(6))
    scheduler = Scheduler(Writer(decoder, 3), chunk=9)
    for each in asked:
        scheduler.add(each)
    for _ in range(4):
        scheduler.turn()
    scheduler.writing[0].ended = asked[-1].ended = scheduler.waiting[0].ended = "gone"
    while scheduler.busy():
        scheduler.turn()
    for each in asked:
        assert each.ended == "gone" or each.tokens == alone(decoder, each)
    assert sum(each.ended == "gone" for each in asked) in (2, 3)


def serve(decoder, request):
    """Let the scheduler answer a request."""
    scheduler = Scheduler(Writer(decoder, 2))
    scheduler.add(request)
    while scheduler.busy():
        scheduler.turn()


def test_a_stop_ends_a_text_and_is_no_part_of_the_answer(decoder):
    [request] = requests(1)
    written = alone(decoder, request)
    request.stops = [written[2:3]]
    serve(decoder, request)
    first = written.index(written[2])
    assert (request.ended, request.answered, request.tokens) == (
        "stop",
        first,
        written[: first + 1],
    )


class Dictates(Counted):
    """A writer whose most likely tokens are those of a text, one after the other."""

    def __init__(self, text):
        super().__init__()
        self.coming = iter(text.encode())

    def next_logits(self):
        return torch.nn.functional.one_hot(torch.tensor([next(self.coming)]), 256).float()

    def read(self, tokens, *, first):
        return self.next_logits()

    def write(self, tokens):
        return self.next_logits()


@pytest.mark.parametrize(
    ("written", "stops", "answer", "ended"),
    [
        ("one two", [" "], "one", "stop"),
        ("aab", ["ab"], "a", "stop"),  # the first a may begin the stop, and does not
        ("ababac", ["abac"], "ab", "stop"),  # a beginning within a beginning
        ("xyz", ["yz", "z"], "x", "stop"),  # both end here: the text ends before the longer one
        ("xyz", ["xyzw", "y"], "x", "stop"),  # the shorter one is written first
        ("abc", ["cd"], "abc", "length"),  # begun at the end, and never written: part of the answer
        ("ab", ["ab"], "", "stop"),
        ("día", ["í"], "d", "stop"),  # two tokens
        ("a\n\n", ["\n\n"], "a", "stop"),
        ("abc", [], "abc", "length"),
    ],
)
def test_what_is_answered_ends_before_the_first_stop_and_never_held_a_part_of_it(
    written, stops, answer, ended
):
    request = Request(
        prompt=[1], count=len(written.encode()), stops=[list(stop.encode()) for stop in stops]
    )
    scheduler = Scheduler(Dictates(written))
    scheduler.add(request)
    seen = []
    while scheduler.busy():
        scheduler.turn()
        seen.append(request.answered)
    assert request.ended == ended
    assert bytes(request.tokens[: request.answered]).decode() == answer
    assert seen == sorted(seen), "what was answered is never taken back"


class Broken(Counted):
    """A writer that fails: at the prompt whose first token is 0, or when it writes."""

    def __init__(self, fails):
        super().__init__()
        self.fails = fails

    def read(self, tokens, *, first):
        if self.fails == "read" and tokens[0] == 0:
            raise RuntimeError("no memory")
        nothing = torch.zeros(1, 256)
        return nothing.fill_(torch.nan) if self.fails == "logits" and tokens[0] == 0 else nothing

    def write(self, tokens):
        if self.fails == "write" and len(tokens) == 3:
            raise RuntimeError("no memory")
        return super().write(tokens)


@pytest.mark.parametrize(
    ("fails", "expected"),
    [
        ("read", ["length", "failed", "length", "length"]),
        ("logits", ["length", "failed", "length", "length"]),
        # the three that were written for together
        ("write", ["failed", "failed", "failed", "length"]),
    ],
)
def test_an_error_ends_the_texts_that_it_concerns_and_nobody_elses(fails, expected, capsys):
    asked = [Request(prompt=[token], count=5) for token in (1, 0, 2)]
    later = Request(prompt=[3], count=5)
    scheduler = Scheduler(Broken(fails))
    for request in asked:
        scheduler.add(request)
    changed = []
    for turn in range(20):
        if turn == 6:
            scheduler.add(later)
        changed += scheduler.turn()
    assert not scheduler.busy()
    assert [request.ended for request in [*asked, later]] == expected
    assert set(changed) == {*asked, later}, "whoever waits for one that failed is told"
    assert "Traceback" in capsys.readouterr().err


def test_top_p_draws_from_the_likeliest_tokens_only(decoder):
    for top_p in (0.0, 0.3, 0.9):
        [request] = requests(1, temperature=1.0, top_p=top_p)
        random = torch.Generator().manual_seed(request.seed)
        text = torch.tensor([request.prompt])
        with torch.inference_mode():
            for _ in range(request.count):
                likeliest = nucleus(chances(decoder(text)[:, :, -1], 1.0), top_p)
                text = torch.cat([text, draw(likeliest, random)[None]], 1)
        serve(decoder, request)
        assert request.tokens == text[0, len(request.prompt) :].tolist()
