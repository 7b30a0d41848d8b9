"""Techniques of training and inference, one file each: a functional core under a card that says
when it does not help.

A technique that takes part in training also has a class `Method(Hooks)`, and a field of
`labkit.train.TrainConfig` that switches it on. The loop then makes one and calls its hooks; nothing
else has to know of it.
"""


class Hooks:
    """What a method may do during a training; it overrides what it needs.

    value  of its field in the TrainConfig
    loss   loss(logits, labels, images) to minimise, a mean over the batch; None: the cross-entropy
           stays
    """

    loss = None

    def __init__(self, value):
        self.value = value

    def begin(self, model):
        """Before the first step, with the model on its device: the model to train, with the
        weights of this one.
        """
        return model

    def before_update(self, model):
        """In each step, when all gradients are there (in their true size) and the weights are
        still the old ones.
        """

    def after_update(self, model):
        """In each step, when the weights are the new ones."""

    def result(self, model):
        """The model that is tested, and that the training leaves behind: this one, or a copy with
        other weights.

        The names in its state dict are those of this one. Running statistics of batch norm in a
        copy are counted anew.
        """
        return model

    def state_dict(self):
        """What a checkpoint has to keep for this method: tensors and plain values."""
        return {}

    def load_state_dict(self, state):
        """Go on from what `state_dict` gave."""


class Loss(Hooks):
    """Another loss in place of the cross-entropy: `fit(..., hooks={"loss":
    Loss(Distillation(teacher))})`.

    loss  as of `Hooks`; None: the cross-entropy stays
    """

    def __init__(self, loss):
        self.loss = loss
