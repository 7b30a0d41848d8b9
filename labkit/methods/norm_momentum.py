"""Norm momentum: how fast batch norm's running averages follow the batches.

What     in each step, running += momentum * (that of the batch - running); the running ones
         normalise at inference
When     trainings of few steps: torch's 0.1 leaves a third of the start, mean 0 and variance 1,
         after ten of them
Cost     none
Not when steps are many and batches small: the faster an average follows, the fewer batches it is of
Source   Ioffe and Szegedy 2015, arXiv:1502.03167; 0.4, as in Jordan 2024, arXiv:2404.00498
"""

from torch.nn.modules.batchnorm import _BatchNorm

from labkit.methods import Hooks
from labkit.methods.surgery import twin


class Method(Hooks):
    """In training: `TrainConfig(norm_momentum=0.4)`; the network itself keeps the momentum it
    had.
    """

    def begin(self, model):
        trained = twin(model)
        for layer in trained.modules():
            if isinstance(layer, _BatchNorm):
                layer.momentum = self.value
        return trained
