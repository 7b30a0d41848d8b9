"""A BERT-like encoder of token sequences, in plain torch.

`labkit.models.minilm` builds an encoder with real weights.

Source  Devlin et al. 2018, arXiv:1810.04805; pooling by the mean over the tokens instead of the
        first token
"""

import torch
from torch import nn
from torch.nn import functional as F

PADDING = 0  # the token that fills a short sequence up; it takes part in nothing
VOCABULARY = 8192
NEVER = -1e4  # added to a score before the softmax; fits into float16


class Encoder(nn.Module):
    """A transformer encoder: embeddings, layers, the mean over the tokens, one linear layer.

    width       number of channels of a token; the MLPs have 4 `width` inner units
    layers      number of layers
    heads       number of heads of the attention
    vocabulary  number of different tokens; token 0 is padding
    longest     most tokens in a sequence
    classes     number of logits; None: no linear layer, and the output is the mean over the tokens,
                scaled to length 1
    activation  a zero-argument factory of a module, for the MLPs
    epsilon     added to the variance in the layer norms
    input       (N, T) int64 tokens, T at most `longest`; each row has at least one token that is
                not padding
    output      (N, classes) logits; (N, width) where `classes` is None
    """

    def __init__(self, width=256, layers=4, *, heads=4, vocabulary=VOCABULARY, longest=512, classes=2,
                 activation=nn.GELU, epsilon=1e-5):  # fmt: skip
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width, padding_idx=PADDING)
        self.positions = nn.Embedding(longest, width)
        self.norm = nn.LayerNorm(width, epsilon)
        self.layers = nn.ModuleList(Layer(width, heads, activation, epsilon) for _ in range(layers))
        self.head = UnitLength() if classes is None else nn.Linear(width, classes)
        self.apply(initialize)
        self.tokens.weight.data[PADDING] = 0

    def forward(self, tokens):
        present = tokens != PADDING  # (N, T)
        # (N, T, width)
        x = self.norm(self.tokens(tokens) + self.positions.weight[: tokens.shape[1]])
        share = present.to(x.dtype)[:, :, None]  # (N, T, 1): 1 for a token, 0 for padding
        # NEVER is finite: -infinity in a whole row would give NaN
        attention_mask = torch.zeros_like(share).masked_fill(~present[:, :, None], NEVER)
        # (N, T, 1) -> (N, 1, T, 1) -> (N, 1, 1, T)
        attention_mask = attention_mask[:, None].transpose(2, 3)
        for layer in self.layers:
            x = layer(x, attention_mask)
        # (N, T, width) -> (N, width) -> (N, classes)
        return self.head((x * share).sum(1) / share.sum(1))


class Layer(nn.Module):
    """Attention, then an MLP; the output of each is added to its input, and a layer norm follows.

    x               (N, T, width), and so is the output
    attention_mask  (N, 1, 1, T), added to the scores before the softmax: 0 at a real token, `NEVER`
                    at padding
    """

    def __init__(self, width, heads, activation, epsilon=1e-5):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.mix = (nn.Linear(width, width) for _ in range(4))
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), activation(), nn.Linear(4 * width, width)
        )
        self.attention_norm = nn.LayerNorm(width, epsilon)
        self.mlp_norm = nn.LayerNorm(width, epsilon)

    def forward(self, x, attention_mask):
        # (N, T, width) -> (N, heads, T, width / heads)
        query = self.split(self.query(x))
        key = self.split(self.key(x))
        value = self.split(self.value(x))
        # scores (N, heads, T, T); result (N, heads, T, width / heads)
        attended = F.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask.to(query.dtype)
        )
        # -> (N, T, heads, width / heads) -> (N, T, width)
        together = attended.transpose(1, 2).flatten(2)
        x = self.attention_norm(x + self.mix(together))
        return self.mlp_norm(x + self.mlp(x))

    def split(self, x):
        """Split the channels into heads: (N, T, width) -> (N, heads, T, width / heads)."""
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class UnitLength(nn.Module):
    """Scale each row of (N, width) to length 1.

    The scalar product of two rows is then the cosine of the angle between them.
    """

    def forward(self, x):
        return x / x.square().sum(1, keepdim=True).sqrt()


def initialize(layer):
    """Draw BERT's initial weights of a layer: normal with standard deviation 0.02; biases are 0."""
    if isinstance(layer, (nn.Linear, nn.Embedding)):
        nn.init.normal_(layer.weight, std=0.02)
    if isinstance(layer, nn.Linear):
        nn.init.zeros_(layer.bias)


def random_tokens(batch, length, *, generator):
    """Draw random token sequences as int64 (batch, length), with padding at their ends.

    The number of tokens before the padding is random, from length / 2 to length.
    """
    tokens = torch.randint(1, VOCABULARY, (batch, length), generator=generator)
    lengths = torch.randint(length // 2, length + 1, (batch, 1), generator=generator)
    return tokens.masked_fill(torch.arange(length) >= lengths, PADDING)
