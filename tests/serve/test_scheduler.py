"""The scheduler: a text is the same alone and among others, nobody is forgotten, rows are never shared."""

import pytest
import torch

from labkit.models.decoder import Decoder
from labkit.serve.scheduler import Request, Scheduler, Writer
from labkit.text.writing import chances, draw


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


def test_the_stop_token_ends_a_text(decoder):
    [request] = requests(1)
    wanted = alone(decoder, request)
    request.stop = wanted[2]
    scheduler = Scheduler(Writer(decoder, 2))
    scheduler.add(request)
    while scheduler.busy():
        scheduler.turn()
    assert request.ended == "stop"
    assert request.tokens == wanted[: wanted.index(wanted[2]) + 1]
