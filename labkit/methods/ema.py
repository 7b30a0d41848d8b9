"""EMA: a running average of the weights, tested in place of the last weights.

What     after each step, average += (1 - decay) * (weights - average)
When     the last weights jump about: large learning rates, small batches, schedules that do not end
         near 0
Cost     one pass over the weights per step, and a second copy of them; for a network with batch
         norm also one forward pass over the training images per test
Not when the schedule ends near 0, because the average then hardly differs from the weights; or the
         training is short, because the average lags behind the weights
Source   Polyak and Juditsky 1992; as used for networks: Tarvainen and Valpola 2017,
         arXiv:1703.01780
"""

from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from labkit.methods import Hooks


class Method(Hooks):
    """Average the weights in a training, by `TrainConfig(ema=0.999)`; the average is the result.

    The value is the decay, 0 to 1: the average reaches back about 1 / (1 - decay) steps. It starts
    at the weights before the first step.

    Batch norm's running statistics in the model belong to the last weights and normalise wrongly
    with averaged weights. The loop computes them anew over the training images before each test.
    Averaging the statistics too (as timm does) would save that pass, but mixes in statistics of all
    earlier weights, and at first the initial mean 0 and variance 1.
    """

    def begin(self, model):
        self.average = AveragedModel(
            model, multi_avg_fn=get_ema_multi_avg_fn(self.value)
        ).requires_grad_(False)
        self.average.update_parameters(model)  # torch's first update copies
        return model

    def after_update(self, model):
        self.average.update_parameters(model)

    def result(self, model):
        return self.average.module

    def state_dict(self):
        return self.average.state_dict()

    def load_state_dict(self, state):
        self.average.load_state_dict(state)
