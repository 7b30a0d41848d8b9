"""Search answers a reader who comes with the words of one of the five sources, or with a question
of their own: the section is among the first three.
"""

import re

import pytest
from typer.testing import CliRunner

from labkit import cli, text
from labkit.authoring.sections import file_of, find_section
from labkit.data import Paragraph, paragraphs
from labkit.text import Index, course_index, course_pages
from labkit.text.course_pages import guides
from labkit.text.search import Hit

# {lesson or page, or with its section: what a reader asks, mostly in the words of the sources}
PHRASES = {
    "docs/commands.md: The eight switches of a published script": ["dry run", "--dry-run"],
    "docs/installing.md: What was tried where": ["does it run on my GPU"],
    "docs/installing.md: Other ways to install": ["install with conda"],
    "docs/your-own-network.md: When INT8 changes too many answers": ["--keep auto"],
    "start_here: A network that works": ["Remove redundant operations, e.g. dropout in inference"],
    "deployment_fundamentals: Training, inference, deployment": [
        "Deployment can happen on the cloud or edge devices"
    ],
    "deployment_fundamentals: Seven metrics": ["Energy/Power: energy used per prediction"],
    "measuring_honestly": [
        "run few warm-up iterations, synchronize between CPU/GPU before measuring"
    ],
    "where_training_time_goes": ["transfer learning with a pretrained ResNet-50", "TorchScript"],
    "where_training_time_goes: Inside data: cProfile and snakeviz": [
        "visualize the profiling result with snakeviz"
    ],
    "where_training_time_goes: Inside forward and backward: a flame chart": [
        "torch profile for exact forward evaluation and flame chart"
    ],
    "where_training_time_goes: The published table: ResNet-50 on CIFAR-100": [
        "Pinned Memory",
        "cuDNN AutoTuner",
        "autotuner",
    ],
    "batch_size_and_minima": ["Flat vs. Sharp Minima"],
    "batch_size_and_minima: Ghost batch normalization, or noise?": ["Ghost Batch Normalization"],
    "large_batch_tricks": [
        "Larger batch sizes may increase validation error (poorer generalization)"
    ],
    "large_batch_tricks: Learning-rate scaling": ["Learning Rate Scaling"],
    "large_batch_tricks: Learning-rate warm-up": ["Learning Rate Warmup"],
    "large_batch_tricks: Batches of 16,384 and 32,768": ["Optimizers for Exascale Deep Learning"],
    "compile_and_amp": [
        "train epoch time and val accuracy of vanilla, torch.compile and AMP",
        "loss-scaling to preserve small gradients",
    ],
    "activation_study: What the backward pass keeps": [
        "the used VRAM during training increases with FastSwish",
        "implementing FastSwish with a custom backward function",
    ],
    "activation_study: The kernel by hand: Triton": [
        "explicitly write a cuda or triton kernel",
        "fuse layers with triton jit",
    ],
    "activation_study: GELU's approximations": ["Gelu Approximation"],
    "activation_study: The published table": [
        "explicitly wrapping the FastSwish activation into a @torch.compile or @torch.jit.script"
    ],
    "scaling_out": ["multi GPU training"],
    "onnx_graphs": [
        "onnx files can be visualized with the command netron",
        "Print out operator chart over onnx",
        "Perform constant folding",
    ],
    "quantization: Why bits cost": [
        "INT8 saves 30x energy and 116x area compared to FP32 for additions"
    ],
    "quantization: The whole network, by one call": ["Requires calibration to maintain accuracy"],
    "quantization_hard_cases: Quantization-aware training (QAT)": ["Quantization / QAT"],
    "pruning_and_coding": ["Unstructured and structured pruning"],
    "pruning_and_coding: Code": ["Huffman coding to compress weights"],
    "smaller_networks: A teacher": [
        "Knowledge Distillation: a small student model copies a large teacher model"
    ],
    "smaller_networks: Another design: fewer multiply-adds": [
        "MobileNet or ShuffleNet, built for efficiency"
    ],
    "tensorrt_deployment: The script, first half: from a network to a plan": [
        "build a TensorRT engine: builder, network, parser",
        "max_workspace_size",
    ],
    "tensorrt_deployment: From nodes to steps": [
        "Layer fusion, e.g. compressing 2 or more compatible layers (Conv2d, ReLu, Bias) into one",
    ],
    "tensorrt_deployment: The script, second half: memory, a run, a class": [
        "runtime.deserialize_cuda_engine and create_execution_context",
        "cuda.mem_alloc, memcpy_htod and execute_v2(bindings)",
        "Multi-Stream Execution",
    ],
    "tensorrt_deployment: TensorRT's features, one by one": [
        "TensorRT plugins",
        "dynamic shapes",
        "Auto-Tuning Kernel",
        "Dynamic Tensor Memory",
        "Time Fusion",
        "Supported Layers",
    ],
    "transformer_inference: Six optimizations": [
        "BERT table",
        "Kernel fusion, e.g. keeping intermediate values in cache",
        "Vanilla BERT (tested on randomly generated input data)",
        "Pytorch FP16 - 1.5x speedup across different batch sizes",
    ],
}


def shows(hit, name, section):
    """Return whether a hit is a paragraph of the section, or a term or published experiment that
    leads to it.
    """
    path = file_of(name)
    page, _, heading = hit.paragraph.location.rpartition(", see ")[2].partition(": ")
    if page != (name if path.suffix == ".md" else path.stem):
        return False
    if not section or re.sub(r"^\d+\. +", "", heading) == section:
        return True
    return hit.paragraph.text in " ".join(find_section(path, section).text.split())


@pytest.mark.slow  # every paragraph of the course goes through MiniLM
def test_the_words_of_a_reader_find_their_section_among_the_first_three():
    index = course_index()
    missed = []
    for where, phrases in PHRASES.items():
        name, _, section = where.partition(": ")
        for phrase in phrases:
            if not any(shows(hit, name, section) for hit in index.search(phrase, 3)):
                missed.append(phrase)
    assert missed == []
    assert len(index.paragraphs) > len(paragraphs()) + len(guides()), (
        "terms and published experiments are in the index, too"
    )


def test_a_paragraph_of_a_lesson_names_the_heading_above_it():
    course = paragraphs()
    assert all(paragraph.section for paragraph in course)
    locations = {paragraph.location for paragraph in course}
    assert "17_tensorrt_deployment: 6. TensorRT's features, one by one" in locations


PAGE = """# Kites

Two lines
of one paragraph. <a id="wind"></a>

## Prices

```sh
# not a heading
```

| kite | price |
|---|---|
| red | 3, or less |

- **Tails**: longer
  than wings.
- Strings.
"""


def test_a_guide_is_read_by_paragraphs_items_and_rows_without_code_and_heads_of_tables(
    tmp_path, monkeypatch
):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "installing.md").write_text(PAGE, encoding="utf-8")
    monkeypatch.setattr(course_pages, "root", lambda: tmp_path)
    assert [(paragraph.location, paragraph.text) for paragraph in guides()] == [
        ("docs/installing.md: Kites", "Two lines of one paragraph."),
        ("docs/installing.md: Prices", "red: 3, or less"),
        ("docs/installing.md: Prices", "- **Tails**: longer than wings."),
        ("docs/installing.md: Prices", "- Strings."),
    ]


@pytest.mark.parametrize(
    ("words", "question"),
    [
        (["--dry-run"], "--dry-run"),
        (["why", "is", "it", "slow?"], "why is it slow?"),
        (["--dry-run profile", "--count", "2"], "--dry-run profile"),
    ],
)
def test_the_command_takes_an_option_as_a_word_and_names_the_section(monkeypatch, words, question):
    asked = []

    def answered(self, question, count=5):
        asked.append((question, count))
        return [Hit(Paragraph("07_hills", "Up and down.", "1. Up"), 0.5)]

    monkeypatch.setattr(Index, "search", answered)
    monkeypatch.setattr(text, "course_index", lambda: Index([], None, None))
    result = CliRunner().invoke(cli.app, ["search", *words])
    assert result.exit_code == 0
    assert "0.50  07_hills: 1. Up\n      Up and down." in result.output
    assert asked == [(question, 2 if "--count" in words else 5)]
