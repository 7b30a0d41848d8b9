"""Search by meaning: texts as vectors of length 1, whose product is the cosine of the angle between them."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from labkit import engines, export, models
from labkit.data import Paragraph, paragraphs
from labkit.files import artifacts, atomic, short_digest
from labkit.models import minilm
from labkit.text.batches import encoded


class Hit(NamedTuple):
    """A paragraph that was found, and how alike it is to the question: cosine, -1 to 1."""

    paragraph: Paragraph
    cosine: float


@dataclass(frozen=True)
class Index:
    """Paragraphs, their vectors (N, width), and what makes a vector of a text."""

    paragraphs: list
    vectors: torch.Tensor
    answer: object

    def search(self, question, count=5):
        """The paragraphs nearest to a question, best first: a list of `Hit`."""
        (vector,) = encoded(minilm.tokens([question]), self.answer)
        cosines, places = (self.vectors @ vector).topk(min(count, len(self.paragraphs)))
        return [Hit(self.paragraphs[at], value) for value, at in zip(cosines.tolist(), places.tolist(), strict=True)]


def course_index() -> Index:
    """The `Index` of the course's own paragraphs, by MiniLM in ONNX Runtime.

    Network and vectors are kept in artifacts/minilm; what changes the vectors makes new ones.
    """
    known, folder = paragraphs(), artifacts() / "minilm"
    made_of = "\n".join([minilm.SHA256["model.safetensors"], *(each.text for each in known)])
    kept = folder / f"{short_digest(made_of)}.safetensors"
    answer = engines.load("onnxruntime", _exported(folder / "minilm.onnx"), torch.zeros(1, 2, dtype=torch.int64))
    if not kept.is_file():
        for old in folder.glob("*.safetensors"):
            old.unlink()
        with atomic(kept) as temporary:
            save_file({"vectors": encoded(minilm.tokens([each.text for each in known]), answer)}, temporary)
    return Index(known, load_file(kept)["vectors"], answer)


def _exported(path):
    """MiniLM as an ONNX file for texts of any length, written once."""
    if not path.is_file():
        network, _ = models.build("minilm")
        export.to_onnx(network, models.example("minilm", 2), path, dynamic_shapes={1: minilm.LONGEST})
    return path


def nearest(vectors):
    """(N, width) of length 1 -> (N,) int64: for each, the place of the other that is nearest to it."""
    alike = vectors @ vectors.T
    alike.fill_diagonal_(-np.inf)
    return alike.argmax(dim=1)


def agreement(exact: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """(N,): 1 for each text that has the same nearest other in two (N, width) sets of vectors, else 0."""
    return (nearest(exact) == nearest(found)).double().numpy()
