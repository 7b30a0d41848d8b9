"""Quantization-aware training: the network trains on the grid it will run on.

What     every weight and activation that will be quantized is rounded in the forward pass (fake quantization); the
         backward pass takes rounding for the identity, so that gradients go through (the straight-through estimator)
When     quantization after training costs too much accuracy: few bits, thin or depthwise layers
Cost     a few epochs of fine-tuning at a small learning rate, each slower than an ordinary one
Not when INT8 after training is good enough, as it mostly is
Source   Jacob et al. 2017, arXiv:1712.05877; torch's export-based quantization (PT2E) in torchao

    trained = prepare(network, example, weight_bits=4)
    fit(trained, train, TrainConfig(learning_rate=1e-3), device=device)
    export(trained, example, "net-qat.onnx")
"""

import copy
from pathlib import Path

import torch
from torch import nn

from labkit.device import packages
from labkit.export import to_onnx
from labkit.quantize._quiet import quiet
from labkit.quantize.numbers import limits

_HEAVY = (torch.ops.aten.conv2d.default, torch.ops.aten.linear.default)


class FakeQuantized(nn.Module):
    """A traced network with fake quantization. The ranges of activations are observed in training mode only."""

    def __init__(self, traced):
        super().__init__()
        self.traced = traced

    def forward(self, x):
        return self.traced(x)

    def train(self, mode=True):
        pt2e = _pt2e()
        super().train(mode)
        return self.apply(pt2e.enable_observer if mode else pt2e.disable_observer)


def prepare(network, example, *, weight_bits=8):
    """The network with fake quantization of what enters every convolution and linear layer: a module to train.

    network      a trained torch module; it is not changed. Batch norm is folded into the convolution before it: what is
                 trained is what will run
    example      (N, ...) a batch of its input, N at least 2
    weight_bits  2 to 8: symmetric, one grid per channel. Activations have 8 bits, symmetric, one grid each, its range
                 a moving average
    """
    with quiet():
        pt2e = _pt2e()
        traced = torch.export.export(_folded(network), (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        prepared = pt2e.quantize_pt2e.prepare_qat_pt2e(traced.module(), _own_quantizer(pt2e, weight_bits))
        pt2e.allow_exported_model_train_eval(prepared)
    return FakeQuantized(prepared)


def _folded(network):
    """A copy in eval mode with batch norm folded into the convolutions, where torch.fx can read its forward."""
    from torch.fx.experimental.optimization import fuse

    network = copy.deepcopy(network).eval()
    if not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in network.modules()):
        return network
    return fuse(network).requires_grad_()  # the biases that come from batch norm are born frozen


def calibrate(prepared, batches):
    """Show a prepared network data without training it: what it then computes is quantization *after* training.

    batches  float tensors (n, ...)
    returns  the same network, in eval mode
    """
    prepared.train()
    with torch.no_grad():
        for batch in batches:
            prepared(batch)
    return prepared.eval()


def export(prepared, example, path):
    """Write a prepared network as an ONNX file with Q/DQ nodes: the path. The prepared network stays as it is.

    Weights of fewer than 8 bits are stored as int8 that use only the integers of their grid.
    """
    with quiet():
        pt2e = _pt2e()
        traced = copy.deepcopy(prepared).eval().cpu().traced
        converted = pt2e.quantize_pt2e.convert_pt2e(traced)
        pt2e.allow_exported_model_train_eval(converted)
        return to_onnx(FakeQuantized(converted), example, Path(path))


def _own_quantizer(pt2e, weight_bits):
    """What to quantize: inputs and weights of the heavy layers, as the recipe for TensorRT has it."""
    from torchao.quantization.pt2e import quantizer

    def spec(observer, lowest, highest, **how):
        maker = pt2e.FakeQuantize.with_args(observer=observer)
        fields = {"dtype": torch.int8, "quant_min": lowest, "quant_max": highest}
        return quantizer.QuantizationSpec(**fields, **how, observer_or_fake_quant_ctr=maker)

    activations = spec(pt2e.MovingAverageMinMaxObserver, -128, 127, qscheme=torch.per_tensor_symmetric)
    todays = pt2e.MovingAveragePerChannelMinMaxObserver.with_args(averaging_constant=1.0)
    weights = spec(todays, *limits(weight_bits), qscheme=torch.per_channel_symmetric, ch_axis=0)

    class HeavyLayers(quantizer.Quantizer):
        def annotate(self, model):
            for node in model.graph.nodes:
                if node.op == "call_function" and node.target in _HEAVY:
                    specs = dict(zip(node.args[:2], (activations, weights), strict=True))
                    node.meta["quantization_annotation"] = quantizer.QuantizationAnnotation(
                        input_qspec_map=specs, _annotated=True
                    )
            return model

        def validate(self, model):
            """Every model goes: what has no heavy layer is left in float."""

    return HeavyLayers()


def _pt2e():
    """torch's quantization of exported graphs, which stands in torchao."""
    about = {"package": "torchao", "what": "Quantization-aware training needs torchao."}
    packages.imported("torchao.quantization.pt2e.quantize_pt2e", **about)  # makes it an attribute of pt2e
    return packages.imported("torchao.quantization.pt2e", **about)
