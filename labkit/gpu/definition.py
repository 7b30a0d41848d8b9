"""Build a `ResNet` as a TensorRT network, layer by layer: all in FP16, or convolutions in INT8.

The network is strongly typed: its layers say in which precision they compute. It is defined from
torch's weights by calls of TensorRT, so that no exporter has to be installed.
"""

from typing import Any

import numpy as np
import torch
from torch import nn

from labkit.gpu.resnet import Bottleneck, ResNet

STEPS = 127  # positive integers of INT8


@torch.inference_mode()
def ranges_of(network: nn.Module, images: torch.Tensor) -> dict:
    """Run a network once, and return the range of each convolution's input.

    Returns {convolution: largest absolute value of its input}. The scales of INT8 follow from these
    ranges.

    images  a batch (N, 3, H, W)
    """
    ranges: dict = {}

    def note(layer, inputs):
        ranges[layer] = inputs[0].abs().max().item()

    hooks = [
        layer.register_forward_pre_hook(note)
        for layer in network.modules()
        if isinstance(layer, nn.Conv2d)
    ]
    network(images)
    for hook in hooks:
        hook.remove()
    return ranges


def define(
    trt: Any, definition: Any, network: ResNet, shape: tuple, *, ranges: dict | None
) -> list:
    """Add the layers of a ResNet to an empty TensorRT network.

    Its input is called "images" and its output "logits"; both are FP16.

    trt         the module of TensorRT
    definition  a strongly typed `INetworkDefinition`, without layers
    network     the ResNet
    shape       (N, 3, H, W) of the images
    ranges      the result of `ranges_of`: the convolutions are in INT8; None: they are in FP16
    Returns     a list of arrays, the weights. Keep them until TensorRT has built the engine: it
                reads them then
    """
    writer = Writer(trt, definition, ranges)
    x = definition.add_input("images", trt.float16, shape)
    x = writer.relu(writer.convolution(x, network.conv, network.norm))
    pool = definition.add_pooling_nd(x, trt.PoolingType.MAX, (3, 3))
    pool.stride_nd = (2, 2)
    pool.padding_nd = (1, 1)
    x = pool.get_output(0)

    # The blocks, the mean over the pixels, and the linear layer.
    for block in network.blocks:
        x = writer.block(x, block)
    x = definition.add_reduce(x, trt.ReduceOperation.AVG, (1 << 2) | (1 << 3), False).get_output(0)
    x = writer.linear(x, network.head)
    x.name = "logits"
    definition.mark_output(x)
    return writer.arrays


class Writer:
    """Adds layers to a TensorRT network. Most methods take a tensor of the network and return one.

    trt         the module of TensorRT
    definition  the `INetworkDefinition`
    ranges      {convolution: largest absolute value of its input} for INT8; None: FP16
    arrays      the weights so far, a list. They must not be freed before the engine is built
    """

    def __init__(self, trt: Any, definition: Any, ranges: dict | None):
        self.trt = trt
        self.definition = definition
        self.ranges = ranges
        self.arrays: list = []

    def weights(self, numbers):
        """Convert an array to FP16 weights of TensorRT. The converted array is kept in `arrays`."""
        self.arrays.append(np.ascontiguousarray(numbers, dtype=np.float16))
        return self.trt.Weights(self.arrays[-1])

    def constant(self, numbers):
        """Add an array as a constant FP16 tensor. Returns the tensor."""
        return self.definition.add_constant(
            tuple(np.shape(numbers)), self.weights(numbers)
        ).get_output(0)

    def convolution(self, x, layer, norm):
        """Add a convolution, with its batch norm folded into its weights and bias.

        x            the input, a tensor of the network
        layer, norm  the torch layers
        """
        kernel, bias = folded(layer, norm)
        size = layer.kernel_size
        maps = layer.out_channels
        if self.ranges is None:
            added = self.definition.add_convolution_nd(
                x, maps, size, self.weights(kernel), self.weights(bias)
            )
        else:
            x = self.rounded(x, np.float16(self.ranges[layer] / STEPS))
            added = self.definition.add_convolution_nd(
                x, maps, size, self.trt.Weights(), self.weights(bias)
            )
            added.set_input(1, self.rounded_rows(kernel))
        added.stride_nd = layer.stride
        added.padding_nd = layer.padding
        return added.get_output(0)

    def rounded(self, x, scale):
        """Round the tensor x to INT8 and back to FP16.

        scale  size of one step of the integers
        """
        scale = self.constant(scale)
        integers = self.definition.add_quantize(x, scale, self.trt.int8).get_output(0)
        return self.definition.add_dequantize(integers, scale, self.trt.float16).get_output(0)

    def rounded_rows(self, kernel):
        """Round a convolution's weights to INT8 and back to FP16. Returns the TensorRT tensor.

        Each output channel has a scale of its own.

        kernel  array (outputs, inputs, height, width)
        """
        largest = np.abs(kernel).reshape(len(kernel), -1).max(1)
        scales = self.constant(np.maximum(largest / STEPS, 2.0**-20))
        quantize = self.definition.add_quantize(self.constant(kernel), scales, self.trt.int8)
        quantize.axis = 0
        dequantize = self.definition.add_dequantize(
            quantize.get_output(0), scales, self.trt.float16
        )
        dequantize.axis = 0
        return dequantize.get_output(0)

    def relu(self, x):
        return self.definition.add_activation(x, self.trt.ActivationType.RELU).get_output(0)

    def block(self, x, block: Bottleneck):
        """Add a bottleneck block: three convolutions, then the sum with the shortcut, then ReLU.

        x      the input, a tensor of the network
        block  the torch module
        """
        y = self.relu(self.convolution(x, block.conv1, block.norm1))
        y = self.relu(self.convolution(y, block.conv2, block.norm2))
        y = self.convolution(y, block.conv3, block.norm3)
        if isinstance(block.shortcut, nn.Sequential):
            x = self.convolution(x, *block.shortcut)
        return self.relu(
            self.definition.add_elementwise(y, x, self.trt.ElementWiseOperation.SUM).get_output(0)
        )

    def linear(self, x, layer):
        """Add a linear layer, (N, inputs) -> (N, outputs)."""
        as_it_is = self.trt.MatrixOperation.NONE
        matrix = self.constant(layer.weight.detach().cpu().numpy().T)
        product = self.definition.add_matrix_multiply(x, as_it_is, matrix, as_it_is).get_output(0)
        bias = self.constant(layer.bias.detach().cpu().numpy()[None])
        return self.definition.add_elementwise(
            product, bias, self.trt.ElementWiseOperation.SUM
        ).get_output(0)


@torch.no_grad()
def folded(layer: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[np.ndarray, np.ndarray]:
    """Fold a batch norm into the convolution before it. Returns the (weights, bias) of the result.

    layer  the convolution, without bias
    """
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    kernel = layer.weight * scale[:, None, None, None]
    bias = norm.bias - norm.running_mean * scale
    return kernel.cpu().numpy(), bias.cpu().numpy()
