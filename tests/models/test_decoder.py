"""The decoder: with the cache it says what it says without, alone what it says in a batch, and
what Llama says.
"""

import pytest
import torch
from llama import llama_weights

from benchmarks.decoding import WithCache
from labkit.models.decoder import Cache, Decoder, _rotations, decoder_large, packed, turned

SHAPE = {"heads": 6, "groups": 2, "inner": 20, "longest": 40}


@pytest.fixture
def decoder():
    torch.manual_seed(0)
    network = Decoder(48, 3, **SHAPE).double().eval()
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return network


@pytest.fixture
def tokens():
    return torch.randint(0, 256, (5, 17), generator=torch.Generator().manual_seed(1))


def test_it_is_the_llama_of_transformers(decoder, tokens):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=48, intermediate_size=20, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=False,
    )  # fmt: skip
    other = transformers.LlamaForCausalLM(config).double().eval()
    other.load_state_dict(llama_weights(decoder))
    with torch.inference_mode():
        assert torch.allclose(
            decoder(tokens).transpose(1, 2), other(tokens).logits, atol=1e-4
        )  # its rotations are in float32


@pytest.mark.parametrize("cuts", [[17], [1] * 17, [5, 1, 1, 10], [16, 1]])
def test_with_the_cache_it_says_what_it_says_without(decoder, tokens, cuts):
    cache = Cache(decoder, 5)
    found = torch.cat([decoder.extend(part, cache) for part in tokens.split(cuts, 1)], 1)
    assert torch.allclose(found, decoder(tokens).transpose(1, 2), atol=1e-10)
    assert cache.lengths.tolist() == [17] * 5


def test_texts_of_several_lengths_say_in_a_batch_what_they_say_alone(decoder, tokens):
    cache, lengths = Cache(decoder, 5), [3, 1, 16, 9, 2]
    for row, length in enumerate(lengths):
        decoder.extend(tokens[row : row + 1, :length], cache.rows(row, row + 1))
    more = torch.randint(0, 256, (5, 4))
    found = decoder.extend(more, cache)
    assert cache.lengths.tolist() == [length + 4 for length in lengths]
    for row, length in enumerate(lengths):
        whole = torch.cat([tokens[row, :length], more[row]])[None]
        assert torch.allclose(found[row], decoder(whole)[0].T[-4:], atol=1e-10)


def test_tokens_can_be_forgotten_and_rows_moved(decoder, tokens):
    cache = Cache(decoder, 3)
    decoder.extend(tokens[:3, :12], cache)
    cache.lengths -= torch.tensor([5, 0, 2])
    cache.move(0, 2)
    found = decoder.extend(tokens[:1, 7:9], cache.rows(2, 3))
    assert torch.allclose(found[0], decoder(tokens[:1, :9])[0].T[-2:], atol=1e-10)


def test_no_token_looks_ahead(decoder, tokens):
    changed = tokens.clone()
    changed[:, 9:] = 7
    assert torch.equal(decoder(tokens)[:, :, :9], decoder(changed)[:, :, :9])
    assert not torch.allclose(decoder(tokens)[:, :, 9:], decoder(changed)[:, :, 9:])


def test_only_the_distance_of_two_tokens_turns_their_product():
    cosines, sines = _rotations(30, 8)
    query, key = torch.randn(2, 1, 1, 1, 8)
    products = [
        (turned(query, cosines[a], sines[a]) * turned(key, cosines[b], sines[b])).sum()
        for a, b in ((5, 2), (9, 6), (29, 26))
    ]
    assert torch.allclose(torch.stack(products), products[0], atol=1e-5)
    assert torch.allclose(turned(query, cosines[7], sines[7]).norm(), query.norm())


def test_the_form_with_the_cache_outside_says_the_same(decoder, tokens):
    form, nothing = WithCache(decoder), torch.zeros(3, 5, 2, 0, 8, dtype=torch.float64)
    first, keys, values = form(tokens[:, :6], nothing, nothing)
    rest, keys, values = form(tokens[:, 6:], keys, values)
    assert torch.allclose(torch.cat([first, rest], 1), decoder(tokens).transpose(1, 2), atol=1e-10)
    assert keys.shape == values.shape == (3, 5, 2, 17, 8)


def test_the_large_one_is_larger_than_a_last_cache():
    assert 60e6 <= sum(weight.numel() for weight in decoder_large().parameters()) <= 120e6


def test_every_parameter_learns(decoder, tokens):
    torch.nn.functional.cross_entropy(decoder(tokens), tokens).backward()
    assert all(
        weight.grad is not None and weight.grad.abs().sum() > 0 for weight in decoder.parameters()
    )


def test_packed_weights_say_the_same(tokens):
    torch.manual_seed(0)
    network = Decoder(48, 2, **SHAPE).eval()
    with torch.inference_mode():
        wanted = network(tokens)
        for rows in (1, 5):
            assert torch.allclose(packed(network)(tokens[:rows]), wanted[:rows], atol=1e-5)
