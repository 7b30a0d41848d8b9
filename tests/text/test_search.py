"""Search answers a reader who comes with the words of one of the five sources: the section is
among the first three.
"""

import re

import pytest

from labkit.authoring.sections import file_of, find_section
from labkit.data import paragraphs
from labkit.text import course_index

pytestmark = pytest.mark.slow  # every paragraph of the course goes through MiniLM

# {lesson, or lesson: section: what the sources say about it, in their own words}
PHRASES = {
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
    ],
    "batch_size_and_minima": ["Flat vs. Sharp Minima"],
    "large_batch_tricks": [
        "Larger batch sizes may increase validation error (poorer generalization)"
    ],
    "large_batch_tricks: Ghost batch normalization": ["Ghost Batch Normalization"],
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
        "build a TensorRT engine: builder, network, parser"
    ],
    "tensorrt_deployment: From nodes to steps": [
        "Layer fusion, e.g. compressing 2 or more compatible layers (Conv2d, ReLu, Bias) into one",
        "Kernel fusion, e.g. keeping intermediate values in cache",
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
    "transformer_inference: The race": [
        "Vanilla BERT (tested on randomly generated input data)",
        "Pytorch FP16 - 1.5x speedup across different batch sizes",
    ],
}


def shows(hit, lesson, section):
    """Return whether a hit is a paragraph of the section, or a term or published experiment that
    leads to it.
    """
    path = file_of(lesson)
    kind, _, explained_in = hit.paragraph.lesson.rpartition(", see ")
    if kind:
        page, _, heading = explained_in.partition(": ")
        return page == path.stem and (not section or re.sub(r"^\d+\. +", "", heading) == section)
    if hit.paragraph.lesson != path.stem:
        return False
    return not section or hit.paragraph.text in " ".join(find_section(path, section).text.split())


def test_the_words_of_the_sources_find_their_section_among_the_first_three():
    index = course_index()
    missed = []
    for where, phrases in PHRASES.items():
        lesson, _, section = where.partition(": ")
        for phrase in phrases:
            if not any(shows(hit, lesson, section) for hit in index.search(phrase, 3)):
                missed.append(phrase)
    assert missed == []
    assert len(index.paragraphs) > len(paragraphs()), (
        "terms and published experiments are in the index, too"
    )
