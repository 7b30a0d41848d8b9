"""What serving a decoder promises: many users for little more than one, and times that a simulation
predicts.

    python benchmarks/serving.py [--quick] [--only
    users|load|speculative|onnxruntime|hostile|memory]

Full: about 15 minutes; quick: about two. `users` and `load` use a random decoder of 76 million
weights, larger than the last cache; the rest the trained ones. In `load` the server is pinned to
core 0 with one thread, its client to core 1.
"""

import argparse
import os
import sys
import time
from functools import partial

import numpy as np
import psutil
import torch
from decoding import generate, generate_with, speculative, to_onnx_with_cache
from figures import Figures

from labkit.device import using_threads
from labkit.export import session
from labkit.files import artifacts, root
from labkit.measure import Plan, compare
from labkit.measure.stats import mean_interval
from labkit.models.decoder import Cache, decoder_large, packed
from labkit.models.trained import trained
from labkit.quantize.dynamic import weight_only
from labkit.serve import arrivals, load, running
from labkit.serve.run import pin
from labkit.serve.scheduler import Request, Scheduler, Writer
from labkit.text.writing import chances, draw, to_tokens

sys.path.insert(0, str(root() / "tests"))
PROMPT = list(range(32, 64))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer of everything")
    parser.add_argument("--only", choices=PARTS, help="one part")
    options, figures = parser.parse_args(), Figures()
    for name, part in PARTS.items():
        if options.only in (None, name):
            figures.part(name, part, options)
    figures.exit()


def served(decoder, users, count):
    """Seconds in which so many users, who come at once, get `count` tokens each."""
    scheduler = Scheduler(Writer(decoder, users, len(PROMPT) + count))
    for _ in range(users):
        scheduler.add(Request(prompt=PROMPT, count=count))
    begin = time.perf_counter()
    while scheduler.busy():
        scheduler.turn()
    return time.perf_counter() - begin


def users(figures, options):
    """Tokens per second for 1, 4 and 16 users: together, one after the other, and by
    transformers.
    """
    torch.manual_seed(0)
    decoder, count, rounds = decoder_large(), 16 if options.quick else 48, 2 if options.quick else 5
    prompt, other = torch.tensor([PROMPT]), as_llama(decoder)
    decoder = packed(decoder)  # one at a time, too
    seconds = {"one": [], "transformers": [], "transformers_batch_16": [], 1: [], 4: [], 16: []}
    for _ in range(rounds):  # in turn: what slows the machine down meets all of them
        for number in (1, 4, 16):
            seconds[number].append(served(decoder, number, count) / number)
        seconds["one"].append(timed(partial(generate, decoder, prompt, count)))
        for name, rows in (("transformers", 1), ("transformers_batch_16", 16)):
            call = partial(written_by_transformers, other, prompt.repeat(rows, 1), count)
            seconds[name].append(timed(call) / rows)
    for name, each in seconds.items():
        figures.add(f"tokens_per_second_{name}", count / np.median(each), unit="/s")
    ratio = {name: float(np.median(np.divide(each, seconds[16]))) for name, each in seconds.items()}
    figures.add("16_users_against_one_at_a_time", ratio["one"], at_least=4, unit="x")
    figures.add(
        "16_users_against_transformers_one_at_a_time", ratio["transformers"], at_least=2, unit="x"
    )
    figures.add("16_users_against_transformers_one_batch", ratio["transformers_batch_16"], unit="x")


def timed(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def as_llama(decoder):
    """The same weights in transformers' Llama."""
    from llama import llama_weights
    from transformers import LlamaConfig, LlamaForCausalLM

    layer = decoder.layers[0]
    config = LlamaConfig(
        vocab_size=256, hidden_size=decoder.tokens.weight.shape[1], intermediate_size=layer.down.weight.shape[1],
        num_hidden_layers=len(decoder.layers), num_attention_heads=layer.heads, num_key_value_heads=layer.groups,
        rms_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    other = LlamaForCausalLM(config).eval()
    other.load_state_dict(llama_weights(decoder))
    return other


@torch.inference_mode()
def written_by_transformers(other, prompts, count):
    how = {
        "max_new_tokens": count,
        "min_new_tokens": count,
        "do_sample": False,
        "use_cache": True,
        "pad_token_id": 0,
    }
    return other.generate(prompts, attention_mask=torch.ones_like(prompts), **how)


class Simulated:
    """A writer that computes nothing: it moves a clock on by what reading and writing were
    measured to take.
    """

    def __init__(self, rows, reads, writes):
        self.rows, self.reads, self.writes, self.now = rows, reads, writes, 0.0

    def read(self, tokens, *, first):
        self.now += np.interp(len(tokens), *zip(*self.reads.items(), strict=True))
        return torch.zeros(1, 256)

    def write(self, tokens):
        self.now += np.interp(len(tokens), *zip(*self.writes.items(), strict=True))
        return torch.zeros(len(tokens), 256)

    def seat(self, row):
        pass

    def move(self, source, target):
        pass


def simulated(moments, counts, reads, writes):
    """Seconds to the first token of each request, and the moment at which all have ended."""
    clock = Simulated(16, reads, writes)
    scheduler, firsts = Scheduler(clock), {}
    asked = [Request(prompt=PROMPT, count=count) for count in counts]
    coming = list(zip(moments, asked, strict=True))
    while coming or scheduler.busy():
        if not scheduler.busy():
            clock.now = max(clock.now, coming[0][0])
        while coming and coming[0][0] <= clock.now:
            scheduler.add(coming.pop(0)[1])
        for request in scheduler.turn():
            firsts.setdefault(request, clock.now)
    return [firsts[request] - at for at, request in zip(moments, asked, strict=True)], clock.now


def step_seconds(decoder, rounds):
    """Medians {tokens: seconds} of reading so many tokens, and {texts: seconds} of a token for
    each of so many.
    """
    writer = Writer(decoder, 16, 128)
    reads = {
        n: np.median([timed(partial(writer.read, PROMPT[:n], first=True)) for _ in range(rounds)])
        for n in (8, 32)
    }
    writes = {}
    for n in (1, 2, 4, 8, 16):
        taken = []
        for _ in range(rounds):
            writer.cache.lengths.fill_(48)
            taken.append(timed(partial(writer.write, [65] * n)))
        writes[n] = np.median(taken)
    return reads, writes


def loaded(figures, options):
    """Time to the first token at three loads, measured at a real server, over that of the
    simulation.
    """
    torch.manual_seed(0)
    decoder, cores = packed(decoder_large()), os.sched_getaffinity(0)
    pin([0])
    with using_threads(1):
        reads, writes = step_seconds(decoder, 5 if options.quick else 15)
    pin(cores)
    number = 16 if options.quick else 60
    counts = np.random.default_rng(1).integers(4, 33, number).tolist()
    _, end = simulated(np.zeros(number), counts, reads, writes)
    print(f"# reads {reads}, writes {writes}; all at once: {number / end:.2f} requests per second")
    with running("random", cores=[0], threads=1, waiting=1000) as url:
        jobs = [{"at": 0.0, "prompt": "x" * 32, "max_tokens": 4}] * 2
        load(url, jobs, cores=[1])
        for share in (0.6,) if options.quick else (0.3, 0.6, 0.9):
            moments = arrivals(number, share * number / end, seed=2)
            wanted, _ = simulated(moments, counts, reads, writes)
            jobs = [
                {"at": at, "prompt": "x" * 32, "max_tokens": n}
                for at, n in zip(moments, counts, strict=True)
            ]
            found = load(url, jobs, cores=[1])
            firsts = [each["times"][0] - each["at"] for each in found]
            ends = max(each["times"][-1] for each in found)
            ratio = float(np.median(wanted) / np.median(firsts))
            name = f"load_{share:g}_first_token"
            figures.add(f"{name}_p50", 1e3 * np.median(firsts), unit="ms")
            # 60 requests say nothing of the slowest 1 % of many: 90 % is as far as they carry
            figures.add(f"{name}_p90", 1e3 * np.quantile(firsts, 0.9), unit="ms")
            figures.add(f"{name}_p90_predicted", 1e3 * np.quantile(wanted, 0.9), unit="ms")
            figures.add(f"load_{share:g}_tokens_per_second", sum(counts) / ends, unit="/s")
            figures.add(
                f"{name}_predicted_over_measured", ratio, at_least=0.75, at_most=1.25, unit="x"
            )


def guessed(figures, options):
    """Speculative decoding: how much faster, and what the formula says of it from acceptance and
    single steps.

    With `ahead` guesses of which a share a stands, a check leaves (1 - a^(ahead+1)) / (1 - a)
    tokens, for `ahead` steps of the draft and one check of the large decoder (Leviathan et al.
    2022).
    """
    decoder, draft = trained("decoder-medium")[0], trained("decoder-small")[0]
    prompts = [
        to_tokens(text) for text in ("A batch of ", "The network ", "How many ", "This run ")
    ]
    ahead, count, plan = 4, 100, Plan(seconds=2 if options.quick else 15)
    found = [speculative(decoder, draft, prompt, count, ahead=ahead) for prompt in prompts]
    same = sum(
        each.tokens == generate(decoder, prompt, count)
        for each, prompt in zip(found, prompts, strict=True)
    )
    per_check = len(prompts) * count / sum(each.checks for each in found)
    with using_threads(1):
        arms = {
            "plain": lambda: [generate(decoder, prompt, count) for prompt in prompts],
            "ahead": lambda: [
                speculative(decoder, draft, prompt, count, ahead=ahead).tokens for prompt in prompts
            ],
        }
        ratio = compare(arms, tolerance=1e9, device="cpu", plan=plan)["ahead"]
        one, small, check = (
            step_with_choice(*each) for each in ((decoder, 1), (draft, 1), (decoder, ahead + 1))
        )
    predicted = per_check * one / (ahead * small + check)
    figures.add("speculative_texts_the_same", same, at_least=len(prompts))
    figures.add(
        "speculative_accepted",
        100 * sum(e.accepted for e in found) / sum(e.guessed for e in found),
        unit="%",
    )
    figures.add("speculative_tokens_per_check", per_check)
    figures.add("speculative_speed", ratio.median, unit="x")
    figures.add(
        "speculative_predicted_over_measured",
        predicted / ratio.median,
        at_least=0.85,
        at_most=1.15,
        unit="x",
    )


def step_with_choice(decoder, tokens, rounds=60):
    """Median seconds in which so many tokens are read, and the next one is drawn after each."""
    cache, random, taken = Cache(decoder, 1), torch.Generator(), []

    def step():
        logits = decoder.extend(torch.full((1, tokens), 65), cache)[0]
        return [int(draw(each[None], random)) for each in chances(logits)]

    for _ in range(rounds):
        cache.lengths.fill_(60)
        taken.append(timed(step))
    return np.median(taken)


def in_onnxruntime(figures, options):
    """The decoder with its cache as inputs and outputs of an ONNX file: same text, milliseconds;
    and in 4 bits.
    """
    decoder, prompt, count = trained("decoder-medium")[0], to_tokens("A batch of "), 100
    written = to_onnx_with_cache(decoder, artifacts() / "decoder-medium.onnx")
    narrow = weight_only(
        written, written.with_name("decoder-medium-4-bits.onnx"), bits=4, inputs="int8"
    )
    opened, small = (session(path, threads=1) for path in (written, narrow))
    same = generate_with(opened, prompt, count) == generate(decoder, prompt, count)
    arms = {
        "torch": lambda: generate(decoder, prompt, count),
        "onnxruntime": lambda: generate_with(opened, prompt, count),
        "4 bits": lambda: generate_with(small, prompt, count),
    }
    how = {"device": "cpu", "plan": Plan(seconds=2 if options.quick else 15)}
    with using_threads(1):
        ratio = compare(
            {name: arms[name] for name in ("torch", "onnxruntime")}, tolerance=0, **how
        )["onnxruntime"]
        # 4 bits write another text of as many tokens: numbers up to 255
        four = compare({name: arms[name] for name in ("torch", "4 bits")}, tolerance=255, **how)[
            "4 bits"
        ]
    figures.add("onnxruntime_text_the_same", int(same), at_least=1)
    figures.add("onnxruntime_ms_per_token", ratio.arm_ms / count, unit="ms")
    figures.add("onnxruntime_speed", ratio.median, unit="x")
    figures.add("onnxruntime_4_bits_ms_per_token", four.arm_ms / count, unit="ms")
    figures.add("onnxruntime_4_bits_speed", four.median, unit="x")


def hostile(figures, options):
    """1,000 changed requests: the server goes on, and nobody waits in it. Ctrl-C ends it."""
    from served import is_well, metrics, seconds_to_end, send_malformed

    with running("decoder-small", rows=4, threads=1) as url:
        send_malformed(url, 1000)
        time.sleep(1)
        now = metrics(url)
        figures.add("well_after_1000_bad_requests", int(is_well(url)), at_least=1)
        figures.add("left_behind_by_bad_requests", now["waiting"] + now["writing"], at_most=0)
    figures.add(
        "ctrl_c_ends_it",
        max(seconds_to_end(busy)[0] for busy in (False, True)),
        at_most=1,
        unit="s",
    )


def memory(figures, options):
    """The slope of the server's memory over its requests."""
    rounds, each = (8, 60) if options.quick else (20, 500)
    with running("decoder-small", threads=1, waiting=1000) as url:
        port, sizes = int(url.rsplit(":", 1)[1]), []
        [process] = [
            child for child in psutil.Process().children(recursive=True) if listens(child, port)
        ]
        for _ in range(rounds):
            answers = load(
                url, [{"at": n / 250, "prompt": "The", "max_tokens": 2} for n in range(each)]
            )
            figures.short += any(answer["error"] for answer in answers)
            sizes.append(process.memory_info().rss)
    # What a round adds is independent of the round before; the sizes are not, so a line through
    # them is too sure.
    slope = mean_interval(np.diff(sizes[2:]) / each)
    print(f"# {sizes[0] / 1e6:.1f} to {sizes[-1] / 1e6:.1f} MB; slope {slope} bytes per request")
    figures.add("memory_slope_beyond_its_interval", max(slope.low, 0), at_most=0, unit="B")


def listens(process, port):
    return any(
        each.laddr.port == port
        for each in process.net_connections("tcp")
        if each.status == "LISTEN"
    )


PARTS = {
    "users": users,
    "load": loaded,
    "speculative": guessed,
    "onnxruntime": in_onnxruntime,
    "hostile": hostile,
    "memory": memory,
}

if __name__ == "__main__":
    main()
