"""Writing: what is guessed ahead changes nothing, in tokens at temperature 0, in distribution
above.
"""

import math

import pytest
import torch

from benchmarks.decoding import generate, speculative
from labkit.models.decoder import Decoder
from labkit.text import writing


def small(seed, layers, classes=256, **settings):
    torch.manual_seed(seed)
    network = (
        Decoder(24, layers, heads=3, groups=1, inner=20, longest=200, classes=classes, **settings)
        .double()
        .eval()
    )
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return network


def test_the_tokens_are_those_of_the_network_without_a_cache():
    decoder, text = small(0, 2), writing.to_tokens("a prompt")
    found = generate(decoder, text, 12)
    for _ in range(12):
        text = torch.cat([text, decoder(text)[:, :, -1].argmax(1, keepdim=True)], 1)
    assert found == text[0, -12:].tolist()


@pytest.mark.parametrize("ahead", [1, 2, 5])
@pytest.mark.parametrize("draft", ["another", "itself"])
def test_guessing_ahead_writes_the_same_tokens(ahead, draft):
    decoder = small(0, 2)
    helper = decoder if draft == "itself" else small(1, 1)
    prompt = writing.to_tokens("how many?")
    found = speculative(decoder, helper, prompt, 40, ahead=ahead)
    assert found.tokens == generate(decoder, prompt, 40)
    assert found.guessed == ahead * found.checks
    assert (found.accepted == found.guessed) == (draft == "itself")
    assert found.checks >= 40 / (ahead + 1)


def test_guessing_ahead_keeps_the_distribution():
    """5 tokens, two drawn: 25 outcomes against the exact chances (chi-square, 24 degrees: 99.99
    % < 60).
    """
    decoder, draft, prompt = small(0, 1, 5), small(1, 1, 5), torch.tensor([[3, 1]])
    first = writing.chances(decoder(prompt)[:, :, -1], 1.0)[0]
    seconds = [
        decoder(torch.cat([prompt, torch.tensor([[a]])], 1))[0, :, -1].softmax(0) for a in range(5)
    ]
    exact = (first[:, None] * torch.stack(seconds)).flatten().detach()
    counts, runs = torch.zeros(25), 1500
    for seed in range(runs):
        a, b = speculative(decoder, draft, prompt, 2, ahead=2, temperature=1.0, seed=seed).tokens
        counts[5 * a + b] += 1
    assert ((counts - runs * exact) ** 2 / (runs * exact)).sum() < 60


def test_a_seed_decides_what_is_drawn():
    decoder, prompt = small(0, 1), writing.to_tokens("x")
    first, again, other = (
        generate(decoder, prompt, 20, temperature=1.0, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again != other


LOGITS = torch.tensor([[0.5, 2.0, -1.0, 1.9]])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "temperature", [0.0, 5e-324, 1e-320, 1e-40, 1e-39, 1e-38, 1e-30, 1e-7, 1e-6, 1e-4]
)
def test_a_temperature_that_is_nearly_0_takes_the_likeliest_token_as_0_does(temperature, dtype):
    for scale in (1, 30):
        found = writing.chances(scale * LOGITS.to(dtype), temperature)
        assert found.tolist() == [[0.0, 1.0, 0.0, 0.0]]


@pytest.mark.parametrize("temperature", [0.25, 1.0, 10.0])
def test_chances_are_those_of_the_formula(temperature):
    weights = [math.exp(logit / temperature) for logit in LOGITS[0].tolist()]
    expected = torch.tensor([[weight / sum(weights) for weight in weights]])
    torch.testing.assert_close(writing.chances(LOGITS, temperature), expected)


def test_the_nucleus_is_the_fewest_likeliest_tokens_that_make_up_a_share():
    probabilities = torch.tensor([[0.125, 0.5, 0.25, 0.125], [0.25, 0.25, 0.25, 0.25]])
    by_hand = {
        0.0: [[0, 1, 0, 0], [1, 0, 0, 0]],
        0.5: [[0, 1, 0, 0], [1 / 2, 1 / 2, 0, 0]],
        0.6: [[0, 2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3, 0]],
        0.8: [[1 / 7, 4 / 7, 2 / 7, 0], [1 / 4, 1 / 4, 1 / 4, 1 / 4]],
        1.0: probabilities.tolist(),
    }
    for share, expected in by_hand.items():
        torch.testing.assert_close(
            writing.nucleus(probabilities, share), torch.tensor(expected, dtype=torch.float32)
        )


def test_text_and_tokens():
    assert writing.to_text(writing.to_tokens("ä ≥ 2")[0]) == "ä ≥ 2"
    assert writing.to_text([97, 200]) == "a�"
