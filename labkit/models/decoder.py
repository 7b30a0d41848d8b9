"""A Llama-like decoder in plain torch: it reads tokens and says, after each, how likely every next one is.

Root mean square norms, rotary positions, grouped queries, SwiGLU; no bias anywhere. The tokens are bytes. A `Cache`
keeps keys and values, so that a token that has been read once is never read again.
Source  Touvron et al. 2023, arXiv:2302.13971; Su et al. 2021, arXiv:2104.09864; Ainslie et al. 2023, arXiv:2305.13245
"""

import copy

import torch
from torch import nn
from torch.nn import functional as F

BYTES = 256  # the vocabulary


class Decoder(nn.Module):
    """Embeddings, transformer layers, a norm, one linear layer.

    width, layers, heads  of the transformer; width / heads is the size of a head
    groups                heads that keys and values have: each serves heads / groups heads of the queries
    inner                 width of the MLP
    longest               most tokens in a text
    classes               number of tokens
    input                 (N, T) int64 tokens, T at most `longest`
    output                (N, classes, T) logits of each next token: classes second, as `cross_entropy` wants them
    """

    def __init__(self, width=128, layers=6, *, heads=4, groups=2, inner=352, longest=1024, classes=BYTES,
                 activation=nn.SiLU):  # fmt: skip
        super().__init__()
        self.groups, self.longest, self.size = groups, longest, width // heads
        self.tokens = nn.Embedding(classes, width)
        self.layers = nn.ModuleList(Layer(width, heads, groups, inner, activation) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, classes, bias=False)
        for name, buffer in zip(("cosines", "sines"), _rotations(longest, self.size), strict=True):
            self.register_buffer(name, buffer, persistent=False)
        self.apply(initialize)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)[None]  # (1, T)
        return self.through(tokens, places, places, [None] * len(self.layers)).transpose(1, 2)

    @torch.inference_mode()
    def extend(self, tokens, cache):
        """(N, T, classes) logits after each of T more tokens (N, T) of the N texts of a cache, which grow by them.

        The texts may be of different lengths. This one step is prefill (many tokens), decode (one token for each of
        many texts), and the check of what a draft has guessed (a few tokens).
        """
        places = cache.lengths[:, None] + torch.arange(tokens.shape[1])  # (N, T)
        known = torch.arange(int(cache.lengths.max()) + tokens.shape[1])[None]  # (1, S)
        logits = self.through(tokens, places, known, cache.layers(places, known.shape[1]))
        cache.lengths += tokens.shape[1]
        return logits

    def through(self, tokens, places, known, memories):
        """(N, T, classes) logits.

        tokens    (N, T)
        places    (N, T) or (1, T): where they stand in their texts
        known     (1, S): the places of the keys that `memories` hand out
        memories  for each layer, a function of the new keys and values that gives all; None: there are no others
        """
        # a token looks at those before it and at itself; heads of one group stand below each other
        mask = known[:, None, None] <= places[:, None, :, None]  # (N, 1, T, S)
        mask = mask.repeat(1, 1, self.layers[0].heads // self.groups, 1)  # (N, 1, share T, S)
        turns = self.cosines[places][:, :, None], self.sines[places][:, :, None]  # (N, T, 1, size)
        x = self.tokens(tokens)  # (N, T, width)
        for layer, memory in zip(self.layers, memories, strict=True):
            x = layer(x, turns, mask, memory)
        return self.head(self.norm(x))


class Layer(nn.Module):
    """Attention, then an MLP with a gate; each reads a normalised copy, and is added to what came in."""

    def __init__(self, width, heads, groups, inner, activation):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.query_key_value = nn.Linear(width, width + 2 * groups * self.size, bias=False)
        self.mix = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.attention_norm, self.mlp_norm = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.activation = activation()

    def forward(self, x, turns, mask, memory):
        x = x + self.attention(self.attention_norm(x), turns, mask, memory)
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, 2)  # (N, T, inner) each
        return x + self.down(self.activation(gate) * up)

    def attention(self, x, turns, mask, memory):
        """(N, T, width) -> (N, T, width); arguments as in `Decoder.through`."""
        # (N, T, width) -> (N, T, heads + 2 groups, size)
        both = self.query_key_value(x).unflatten(2, (-1, self.size))
        query, key, value = both.split([self.heads, self.groups, self.groups], 2)
        query, key = turned(query, *turns), turned(key, *turns)
        # (N, T, heads, size) -> (N, T, groups, share, size) -> (N, groups, share, T, size)
        # -> (N, groups, share T, size)
        query = query.unflatten(2, (self.groups, -1)).permute(0, 2, 3, 1, 4).flatten(2, 3)
        key, value = key.transpose(1, 2), value.transpose(1, 2)  # (N, groups, T, size)
        if memory:
            key, value = memory(key, value)  # (N, groups, S, size)
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)  # (N, groups, share T, size)
        # -> (N, groups, share, T, size) -> (N, T, groups, share, size) -> (N, T, width)
        seen = seen.unflatten(2, (-1, x.shape[1])).permute(0, 3, 1, 2, 4).flatten(2)
        return self.mix(seen)


class Cache:
    """The keys and values of `rows` texts of at most `longest` tokens, and how long each text is.

    keys, values  for each layer (rows, groups, longest, size); what stands behind a text's end is never looked at
    lengths       (rows,) int64; to forget the last tokens of a text, make its length smaller
    """

    def __init__(self, decoder, rows=1, longest=None):
        shape = rows, decoder.groups, longest or decoder.longest, decoder.size
        dtype = decoder.head.weight.dtype
        self.keys = [torch.zeros(shape, dtype=dtype) for _ in decoder.layers]
        self.values = [torch.zeros(shape, dtype=dtype) for _ in decoder.layers]
        self.lengths = torch.zeros(rows, dtype=torch.int64)

    def part(self, start, stop):
        """Rows `start` to `stop` as a cache of their own, in the same memory."""
        view = copy.copy(self)
        view.keys, view.values = ([each[start:stop] for each in of] for of in (self.keys, self.values))
        view.lengths = self.lengths[start:stop]
        return view

    def layers(self, places, end):
        """For each layer a function that writes new keys and values (rows, groups, T, size) to `places` (rows, T), and
        hands out those of the first `end` places.
        """
        rows = torch.arange(len(places))[:, None]  # (rows, 1)

        def memory(keys, values, kept):
            for new, old in zip((keys, values), kept, strict=True):
                old[rows, :, places] = new.transpose(1, 2)  # (rows, T, groups, size)
            return tuple(each[:, :, :end] for each in kept)

        return [lambda k, v, kept=kept: memory(k, v, kept) for kept in zip(self.keys, self.values, strict=True)]

    def move(self, source, target):
        """Copy one row over another."""
        length = int(self.lengths[source])
        for each in (*self.keys, *self.values):
            each[target, :, :length] = each[source, :, :length]
        self.lengths[target] = length


class Packed(nn.Module):
    """A linear layer without bias whose weights were laid out once for oneDNN, not anew in each call."""

    def __init__(self, linear):
        super().__init__()
        self.in_features = linear.in_features
        self.weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), 16)

    def forward(self, x):
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, None, "none", [], "")


def packed(decoder: Decoder) -> Decoder:
    """The same decoder, changed for inference on a CPU: its matrices are `Packed`, where torch has oneDNN."""
    if torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        for layer in decoder.layers:
            for name, part in list(layer.named_children()):
                if isinstance(part, nn.Linear):
                    setattr(layer, name, Packed(part))
    return decoder.eval()


def _rotations(longest, size):
    """Cosines and sines (longest, size) of the angles by which place p turns pair i: p / 10,000^(2i / size)."""
    rates = 10_000.0 ** (-torch.arange(0, size, 2) / size)  # (size / 2,)
    angles = torch.outer(torch.arange(longest), rates).repeat(1, 2)  # (longest, size)
    return angles.cos(), angles.sin()


def turned(x, cosines, sines):
    """(N, T, heads, size): channel i and channel i + size / 2 are a pair, turned by their angle."""
    first, second = x.chunk(2, 3)
    return x * cosines + torch.cat([-second, first], 3) * sines


def initialize(layer):
    """Normal weights with standard deviation 0.02."""
    if isinstance(layer, (nn.Linear, nn.Embedding)):
        nn.init.normal_(layer.weight, std=0.02)


def decoder_large() -> Decoder:
    """A random decoder of 76 million weights (303 MB): more than a core keeps near, good for times only."""
    return Decoder(768, 12, heads=12, groups=4, inner=2048).eval()
