"""Turn texts into vectors with an encoder, and search texts by meaning.

    vectors = encoded(tokens(texts), network)  # (N, width), in the order of the texts
    hits = course_index().search("why is a small batch slow?")

Texts of similar length share a batch, so that little padding is computed.
"""
# ruff: noqa: F401 (what is offered here)

from labkit.data import Paragraph, paragraphs
from labkit.text.batches import by_length, encoded, padded
from labkit.text.search import Index, agreement, course_index, nearest
