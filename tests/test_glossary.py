"""The glossary: each term stands in the lesson that it links, and the words of the five sources
are terms.
"""

import re
from functools import cache
from urllib.parse import unquote

import pytest

from labkit.authoring import experiments
from labkit.authoring.sections import find_section, link_to, missing_words, sections
from labkit.files import root
from labkit.text import course_pages
from labkit.text.course_pages import PublishedItem, Term, glossary, published_items

PAGE = root() / "docs" / "glossary.md"
TERMS = glossary()
ENTRIES = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("- ")]


def words_of(term):
    return [term.name, *term.spellings]


@cache
def text_of(path):
    return "\n".join(section.text for section in sections(path))


@cache
def address_of(path, heading):
    return link_to(path, find_section(path, re.sub(r"^\d+\. +", "", heading)), PAGE.parent)


def linked_file(term):
    return (PAGE.parent / unquote(term.address).partition("#")[0]).resolve()


def test_every_line_of_the_page_is_read_as_a_term():
    assert len(TERMS) == len(ENTRIES) > 120


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.name)
def test_the_link_of_a_term_leads_to_a_lesson_that_has_the_term(term):
    path = linked_file(term)
    assert path.is_file()
    page, _, heading = term.section.partition(": ")
    assert page == (path.stem if path.suffix == ".ipynb" else path.relative_to(root()).as_posix())
    if heading:
        assert heading in {section.heading for section in sections(path)}
        assert term.address == address_of(path, heading), "the number of the heading has changed"
    else:
        assert "#" not in term.address
    missing = missing_words(words_of(term), text_of(path))
    assert len(missing) < len(words_of(term)), "the lesson has no spelling of the term"


def test_a_term_has_one_sentence():
    assert [
        term.name for term in TERMS if not re.fullmatch(r"[A-Z`][^\n]*[^.]\.", term.meaning)
    ] == []
    assert [term.name for term in TERMS if re.search(r"[.!?] [A-Z]", term.meaning)] == []


def test_terms_are_sorted_and_stand_below_their_letters():
    names = [term.name for term in TERMS]
    assert names == sorted(names, key=str.casefold)
    letter, misplaced = "", []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            letter = line[3:]
        elif line.startswith("- **") and line[4].upper() != letter:
            misplaced.append(line)
    assert misplaced == []


def test_no_word_stands_for_two_terms():
    words = [word.casefold() for term in TERMS for word in words_of(term)]
    assert sorted(word for word in set(words) if words.count(word) > 1) == []


SOURCES = """
torch.compile, AMP, automatic mixed precision, mixed precision training, Vanilla, TC, ConvNeXt
tinyimagenet, val accuracy, VRAM, GELU, Gelu approximation, HardSwish, ReLU, FastSwish
computational graph, custom backward function, Triton, triton jit, kernel, kernel fusion
Inductor, multi-GPU training, netron, operator chart, flame chart, training mode
torch.onnx.dynamo_export, quantization, QAT, TensorRT, synchronize, warm-up iterations, nvFuser
TorchDynamo, onnxoptimizer, BERT, vanilla BERT, dropout, redundant operations, constant folding
layer fusion, loss-scaling, unstructured pruning, structured pruning, movement pruning, speedup
FP16, ResNet-50, CIFAR-100, transfer learning, fine-tuning, pretrained model, pinned memory
PyTorch JIT, TorchScript, cuDNN autotuner, cProfile, snakeviz, stack trace, forward propagation
backward propagation, optimizer, data loading, baseline, model checkpoint, profile file
CrossEntropyLoss, Adam, last fully-connected layer, training, inference, deployment
model deployment, cloud, edge devices, IoT devices, accuracy, latency, throughput, energy/power
model size, memory use, cost, trade-off, low-precision inference, INT8, Huffman coding
knowledge distillation, MobileNet, ShuffleNet, calibration, plugin, dynamic shapes
reduced precision, layer and tensor fusion, auto-tuning kernel, dynamic tensor memory
multi-stream execution, time fusion, recurrent neural network, C++, supported layers
convolution, pooling, LRN, fully connected, softmax, deconvolution
optimized runtime inference engine, batch size, generalization, generalization error
validation error, flat minimum, sharp minimum, flat minima, sharp minima
ghost batch normalization, batch normalization, learning rate scaling, learning rate warmup
distributed learning, exascale, LARS, logger, builder, parser, explicit batch, workspace
runtime, execution context, bindings, pycuda, memcpy_htod, memcpy_dtoh, resnet18, tactic, LSTM
DDP, FSDP, joule, watt
"""


def test_the_words_of_the_five_sources_are_in_the_glossary():
    known = {word.casefold() for term in TERMS for word in words_of(term)}
    words = [word.strip() for line in SOURCES.strip().splitlines() for word in line.split(", ")]
    assert [word for word in words if word.casefold() not in known] == []


def test_a_course_without_these_pages_has_no_terms_and_no_items(tmp_path, monkeypatch):
    monkeypatch.setattr(course_pages, "root", lambda: tmp_path)
    assert glossary() == published_items() == []


def test_a_row_of_the_published_experiments_is_read_where_a_section_serves_it(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(course_pages, "root", lambda: tmp_path)
    (tmp_path / "docs").mkdir()
    rows = [
        "| item | published | in the course | ours | remark |",
        "|---|---|---|---|---|",
        "| Hills | Two of (three). [Table](#table-hills) | [07_hills: 1. Up](../a.ipynb#1.-Up) | "
        "more [x](y) | |",
        "| Lakes | None. | **open**, planned for `lakes` | | |",
    ]
    (tmp_path / "docs" / "published-experiments.md").write_text("\n".join(rows) + "\n")
    assert published_items() == [PublishedItem("Hills: Two of (three).", "07_hills: 1. Up")]


def test_every_served_item_of_the_register_is_read_from_its_page():
    assert len(published_items()) == len(list(experiments.items()))


def test_an_entry_is_read_into_its_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(course_pages, "root", lambda: tmp_path)
    (tmp_path / "docs").mkdir()
    address = "../a.ipynb#1.-Up-%28x%29"
    page = f"""# Glossary

- **slope** (steepness, `f(x)`): How steep it is: 2 (or 3). [07_hills: 1. Up (and down)]({address})
- **top**: The end. [07_hills](../a.ipynb)
"""
    (tmp_path / "docs" / "glossary.md").write_text(page)
    slope, top = glossary()
    assert slope.spellings == ["steepness", "`f(x)`"]
    assert (slope.section, slope.address) == ("07_hills: 1. Up (and down)", address)
    assert top == Term("top", [], "The end.", "07_hills", "../a.ipynb")
    assert slope.text == "slope (steepness, `f(x)`): How steep it is: 2 (or 3)."
