"""Search texts by meaning: texts become vectors of length 1, and the largest cosine wins."""

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
from labkit.text.course_pages import glossary, guides, published_items


class Hit(NamedTuple):
    """A paragraph that a search found.

    cosine  cosine between the vectors of the paragraph and of the question, -1 to 1
    """

    paragraph: Paragraph
    cosine: float


@dataclass(frozen=True)
class Index:
    """Texts that can be searched by meaning.

    paragraphs  list of N `Paragraph`
    vectors     (N, width), of length 1
    network     function: tokens (N, T) -> vectors (N, width)
    """

    paragraphs: list
    vectors: torch.Tensor
    network: object

    def search(self, question, count=5):
        """Return the `count` paragraphs nearest to a question, as a list of `Hit`, best first."""
        (vector,) = encoded(minilm.tokens([question]), self.network)
        cosines, indices = (self.vectors @ vector).topk(min(count, len(self.paragraphs)))
        hits = []
        for index, cosine in zip(indices.tolist(), cosines.tolist(), strict=True):
            hits.append(Hit(self.paragraphs[index], cosine))
        return hits


def course_index() -> Index:
    """Return the `Index` of the course's paragraphs, guides, terms and published experiments.

    The vectors are made by the encoder MiniLM in ONNX Runtime. Network and vectors are stored in
    artifacts/minilm. When a text or the weights have changed, the vectors are computed again.
    """
    folder = artifacts() / "minilm"
    course_paragraphs = [*paragraphs(), *guides(), *_pointers()]
    texts = [paragraph.text for paragraph in course_paragraphs]
    digest = short_digest("\n".join([minilm.SHA256["model.safetensors"], *texts]))
    stored_vectors = folder / f"{digest}.safetensors"
    network = engines.load(
        "onnxruntime", _exported(folder / "minilm.onnx"), torch.zeros(1, 2, dtype=torch.int64)
    )
    if not stored_vectors.is_file():
        vectors = encoded(minilm.tokens(texts), network)
        with atomic(stored_vectors) as temporary:
            save_file({"vectors": vectors}, temporary)
        for outdated in set(folder.glob("*.safetensors")) - {stored_vectors}:
            outdated.unlink()
    return Index(course_paragraphs, load_file(stored_vectors)["vectors"], network)


def _pointers():
    """Return the glossary's terms and the published experiments as a list of `Paragraph`.

    Their field `lesson` names the section of a lesson that they lead to.
    """
    terms = [Paragraph(f"glossary, see {term.section}", term.text) for term in glossary()]
    published = [
        Paragraph(f"docs/published-experiments.md, see {item.section}", item.text)
        for item in published_items()
    ]
    return terms + published


def _exported(path):
    """Write MiniLM to `path` as an ONNX file for texts of any length, if the file is missing.

    Returns the path.
    """
    if not path.is_file():
        network, _ = models.build("minilm")
        export.to_onnx(
            network, models.example("minilm", 2), path, dynamic_shapes={1: minilm.LONGEST}
        )
    return path


def nearest(vectors):
    """Return for each vector the index of the nearest other vector, by cosine: (N,) int64.

    vectors  (N, width), of length 1
    """
    cosines = vectors @ vectors.T
    cosines.fill_diagonal_(-np.inf)
    return cosines.argmax(dim=1)


def agreement(exact: torch.Tensor, approximate: torch.Tensor) -> np.ndarray:
    """Check for each text whether two networks find the same nearest other text.

    exact, approximate  (N, width) vectors of the same texts by the two networks
    returns             (N,) float64 array: 1 where the nearest text is the same, else 0
    """
    return (nearest(exact) == nearest(approximate)).double().numpy()
