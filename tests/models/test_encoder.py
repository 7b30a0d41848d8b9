"""The encoder: torch's own transformer with the same weights says the same; padding takes part
in nothing.
"""

import pytest
import torch
from torch import nn

from labkit import models
from labkit.models.encoder import PADDING, Encoder, Layer


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return Encoder(32, 2, heads=4, vocabulary=50, longest=16).eval()


def torch_layer(layer, width=32, heads=4):
    """torch's encoder layer with the weights of ours."""
    other = nn.TransformerEncoderLayer(
        width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True
    ).eval()
    parts = [layer.query, layer.key, layer.value]
    pairs = {
        other.self_attn.in_proj_weight: torch.cat([part.weight for part in parts]),
        other.self_attn.in_proj_bias: torch.cat([part.bias for part in parts]),
    }
    same = [
        (other.self_attn.out_proj, layer.mix),
        (other.linear1, layer.mlp[0]),
        (other.linear2, layer.mlp[2]),
    ]
    same += [(other.norm1, layer.attention_norm), (other.norm2, layer.mlp_norm)]
    for theirs, ours in same:
        pairs |= {theirs.weight: ours.weight, theirs.bias: ours.bias}
    with torch.no_grad():
        for theirs, ours in pairs.items():
            theirs.copy_(ours)
    return other


def test_a_layer_is_torchs_encoder_layer():
    torch.manual_seed(0)
    layer, x = Layer(32, 4, nn.GELU), torch.randn(3, 7, 32)
    padded = torch.arange(7) >= torch.tensor([[7], [4], [2]])
    wanted = torch_layer(layer)(x, src_key_padding_mask=padded)
    found = layer(x, -1e4 * padded[:, None, None, :].float())
    assert torch.allclose(found[~padded], wanted[~padded], atol=1e-5)


def test_padding_changes_nothing(encoder):
    tokens = torch.randint(1, 50, (3, 9))
    longer = nn.functional.pad(tokens, (0, 5), value=PADDING)
    assert torch.allclose(encoder(longer), encoder(tokens), atol=1e-6)


def test_the_order_of_the_tokens_matters(encoder):
    tokens = torch.arange(1, 10)[None]
    assert not torch.allclose(encoder(tokens), encoder(tokens.flip(1)), atol=1e-3)


def test_examples_hold_tokens_followed_by_padding():
    tokens = models.example("encoder-small", 64)
    padded = tokens == PADDING
    assert padded.any() and not padded[:, :64].any()
    assert torch.equal(padded, padded.cummax(1).values)


def test_its_size_worked_by_hand():
    width, layer = 256, 4 * (256 * 256 + 256) + 2 * 4 * 256 * 256 + 4 * 256 + 256 + 2 * 2 * 256
    wanted = (8192 + 512) * width + 2 * width + 4 * layer + 2 * width + 2
    assert sum(weight.numel() for weight in Encoder().parameters()) == wanted
