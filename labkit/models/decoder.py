"""A Llama-like decoder in plain torch: at each token, it predicts the next one.

It has root mean square norms, rotary positions, grouped queries and SwiGLU, and no bias anywhere.
The tokens are bytes. A `Cache` keeps keys and values, so that no token has to be read twice.

Source  Touvron et al. 2023, arXiv:2302.13971; Su et al. 2021, arXiv:2104.09864; Ainslie et al.
        2023, arXiv:2305.13245
"""

import copy
import functools

import torch
from torch import nn
from torch.nn import functional as F

BYTES = 256  # the vocabulary


class Decoder(nn.Module):
    """A transformer that predicts the next token: embeddings, layers, a norm, one linear layer.

    width       number of channels of a token
    layers      number of layers
    heads       number of heads of the queries; a head has width / heads channels
    groups      number of heads of the keys and values; heads / groups heads of the queries share
                one of them
    inner       width of the MLP
    longest     most tokens in a text
    classes     number of different tokens
    activation  a zero-argument factory of a module, for the gate of the MLP
    input       (N, T) int64 tokens, T at most `longest`
    output      (N, classes, T): at each token the logits of the token after it. `cross_entropy`
                expects the classes in this place
    """

    def __init__(self, width=128, layers=6, *, heads=4, groups=2, inner=352, longest=1024, classes=BYTES,
                 activation=nn.SiLU):  # fmt: skip
        super().__init__()
        self.groups = groups
        self.longest = longest
        self.size = width // heads
        self.tokens = nn.Embedding(classes, width)
        self.layers = nn.ModuleList(
            Layer(width, heads, groups, inner, activation) for _ in range(layers)
        )
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, classes, bias=False)
        for name, buffer in zip(("cosines", "sines"), _rotations(longest, self.size), strict=True):
            self.register_buffer(name, buffer, persistent=False)
        self.apply(initialize)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)[None]  # (1, T)
        return self.through(tokens, positions, positions, [None] * len(self.layers)).transpose(1, 2)

    @torch.inference_mode()
    def extend(self, tokens, cache):
        """Read T more tokens of each of N texts whose earlier tokens are in a cache.

        Returns (N, T, classes): at each token the logits of the token that follows it.

        tokens  (N, T) int64
        cache   a `Cache` of N rows. The new tokens are added to it. Its texts may differ in length

        Serving calls this method for three purposes: to read a prompt (many tokens at once), to
        write (one token for each of many texts), and to check the few tokens that a smaller network
        proposed (speculative decoding).
        """
        positions = cache.lengths[:, None] + torch.arange(tokens.shape[1])  # (N, T)
        key_positions = torch.arange(int(cache.lengths.max()) + tokens.shape[1])[None]  # (1, S)
        memories = cache.layers(positions, key_positions.shape[1])
        logits = self.through(tokens, positions, key_positions, memories)
        cache.lengths += tokens.shape[1]
        return logits

    def through(self, tokens, positions, key_positions, memories):
        """Compute (N, T, classes) logits of tokens at given positions.

        tokens         (N, T) int64
        positions      (N, T) or (1, T): positions of the tokens in their texts
        key_positions  (1, S): positions of all keys that the tokens may look at
        memories       a list with one entry per layer. An entry is a function that takes the keys
                       and values of the T tokens and returns those of all S positions; or None,
                       where there are no earlier keys and values
        """
        # A token looks at itself and at the tokens before it. The heads of a group share the
        # rows, one after the other, so the mask is repeated for each head.
        mask = key_positions[:, None, None] <= positions[:, None, :, None]  # (N, 1, T, S)
        mask = mask.repeat(1, 1, self.layers[0].heads // self.groups, 1)  # (N, 1, share T, S)
        # (N, T, 1, size)
        turns = self.cosines[positions][:, :, None], self.sines[positions][:, :, None]
        x = self.tokens(tokens)  # (N, T, width)
        for layer, memory in zip(self.layers, memories, strict=True):
            x = layer(x, turns, mask, memory)
        return self.head(self.norm(x))


class Layer(nn.Module):
    """Attention, then an MLP with a gate.

    Each of the two reads a normalised copy of its input, and its output is added to the input.
    """

    def __init__(self, width, heads, groups, inner, activation):
        super().__init__()
        self.heads = heads
        self.groups = groups
        self.size = width // heads
        self.query_key_value = nn.Linear(width, width + 2 * groups * self.size, bias=False)
        self.mix = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.attention_norm = nn.RMSNorm(width, eps=1e-5)
        self.mlp_norm = nn.RMSNorm(width, eps=1e-5)
        self.activation = activation()

    def forward(self, x, turns, mask, memory):
        x = x + self.attention(self.attention_norm(x), turns, mask, memory)
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, 2)  # (N, T, inner) each
        return x + self.down(self.activation(gate) * up)

    def attention(self, x, turns, mask, memory):
        """Compute grouped-query attention: (N, T, width) -> (N, T, width).

        turns   (cosines, sines) of the rotary angles at the tokens' positions, (N, T, 1, size) each
        mask    bool (N, 1, heads / groups * T, S): True where a token may look at a key. The rows
                of the heads that share a key follow one another
        memory  function (keys, values) of the T tokens -> (keys, values) of all S positions; None:
                there are no earlier tokens
        """
        # (N, T, width) -> (N, T, heads + 2 groups, size)
        heads = self.query_key_value(x).unflatten(2, (-1, self.size))
        query, key, value = heads.split([self.heads, self.groups, self.groups], 2)
        query = turned(query, *turns)
        key = turned(key, *turns)
        # (N, T, heads, size) -> (N, T, groups, share, size) -> (N, groups, share, T, size)
        # -> (N, groups, share T, size)
        query = query.unflatten(2, (self.groups, -1)).permute(0, 2, 3, 1, 4).flatten(2, 3)
        key = key.transpose(1, 2)  # (N, groups, T, size)
        value = value.transpose(1, 2)
        if memory:
            key, value = memory(key, value)  # (N, groups, S, size)
        # (N, groups, share T, size)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        # -> (N, groups, share, T, size) -> (N, T, groups, share, size) -> (N, T, width)
        attended = attended.unflatten(2, (-1, x.shape[1])).permute(0, 3, 1, 2, 4).flatten(2)
        return self.mix(attended)


class Cache:
    """The keys and values of several texts, one text per row, and the length of each text.

    decoder       the `Decoder`, which gives the number of layers and the sizes
    rows          number of texts
    longest       most tokens in a text; None: those of the decoder
    keys, values  lists with a tensor (rows, groups, longest, size) for each layer. What lies beyond
                  the end of a text is never read
    lengths       (rows,) int64, number of tokens of each text. To forget the last tokens of a text,
                  reduce its length
    """

    def __init__(self, decoder, rows=1, longest=None):
        shape = rows, decoder.groups, longest or decoder.longest, decoder.size
        dtype = decoder.head.weight.dtype
        self.keys = [torch.zeros(shape, dtype=dtype) for _ in decoder.layers]
        self.values = [torch.zeros(shape, dtype=dtype) for _ in decoder.layers]
        self.lengths = torch.zeros(rows, dtype=torch.int64)

    def rows(self, start, stop):
        """Return a `Cache` of the rows `start` to `stop` - 1, which shares memory with this one."""
        view = copy.copy(self)
        view.keys = [keys[start:stop] for keys in self.keys]
        view.values = [values[start:stop] for values in self.values]
        view.lengths = self.lengths[start:stop]
        return view

    def layers(self, positions, end):
        """Return a list of functions, one per layer, that store new keys and values in the cache.

        A function takes the keys and values of T new tokens, (rows, groups, T, size) each. It
        stores them, and returns the stored keys and values of the first `end` positions, (rows,
        groups, end, size) each.

        positions  (rows, T): positions of the new tokens in their texts
        """
        rows = torch.arange(len(positions))[:, None]  # (rows, 1)

        def remember(cached_keys, cached_values, keys, values):
            cached_keys[rows, :, positions] = keys.transpose(1, 2)  # (rows, T, groups, size)
            cached_values[rows, :, positions] = values.transpose(1, 2)
            return cached_keys[:, :, :end], cached_values[:, :, :end]

        return [
            functools.partial(remember, cached_keys, cached_values)
            for cached_keys, cached_values in zip(self.keys, self.values, strict=True)
        ]

    def move(self, source, target):
        """Copy the text in row `source`, with its length, over row `target`."""
        length = int(self.lengths[source])
        for tensor in (*self.keys, *self.values):
            tensor[target, :, :length] = tensor[source, :, :length]
        self.lengths[target] = length


class Packed(nn.Module):
    """A linear layer without bias whose weights are laid out for oneDNN once, not in each call."""

    def __init__(self, linear):
        super().__init__()
        self.in_features = linear.in_features
        # torch has no public way to the layout of oneDNN for one layer
        self.weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), 16)

    def forward(self, x):
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, None, "none", [], "")


def packed(decoder: Decoder) -> Decoder:
    """Prepare a decoder for inference on a CPU, in place, and return it in eval mode.

    Where torch has oneDNN, the linear layers within the transformer layers become `Packed`; the
    head stays as it is.
    """
    if torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        for layer in decoder.layers:
            for name, child in list(layer.named_children()):
                if isinstance(child, nn.Linear):
                    setattr(layer, name, Packed(child))
    return decoder.eval()


def _rotations(longest, size):
    """Return (cosines, sines) of the rotary angles for each position, (longest, size) each.

    At position p, pair i of the channels is rotated by the angle p / 10,000^(2i / size).

    longest  number of positions
    size     number of channels of a head
    """
    rates = 10_000.0 ** (-torch.arange(0, size, 2) / size)  # (size / 2,)
    angles = torch.outer(torch.arange(longest), rates).repeat(1, 2)  # (longest, size)
    return angles.cos(), angles.sin()


def turned(x, cosines, sines):
    """Rotate the pairs of channels of `x`, (N, T, heads, size), each by an angle.

    Channel i and channel i + size / 2 are a pair.

    cosines, sines  of the angles at the tokens' positions, (N, T, 1, size) each
    """
    first, second = x.chunk(2, 3)
    return x * cosines + torch.cat([-second, first], 3) * sines


def initialize(layer):
    """Draw normal weights with standard deviation 0.02 for a linear layer or an embedding."""
    if isinstance(layer, (nn.Linear, nn.Embedding)):
        nn.init.normal_(layer.weight, std=0.02)


def decoder_large() -> Decoder:
    """Build a decoder of 76 million random weights (303 MB), in eval mode.

    The weights do not fit into a core's cache. The network is good for measuring times only.
    """
    return Decoder(768, 12, heads=12, groups=4, inner=2048).eval()
