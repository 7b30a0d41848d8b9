"""Techniques of training and inference, one file each.

The docstring of a file is a card that says what the technique does, when to use it, what it costs
and when it does not help. A technique that takes part in training also has a class
`Method(Hooks)`, and a field of `labkit.train.TrainConfig` that switches it on. The training loop
makes the `Method` of each such field and calls its hooks; nothing else has to know of it.
"""


class Hooks:
    """What a method may do during a training; a subclass overrides the hooks that it needs.

    value  setting of the method: the value of its field in the `TrainConfig`
    loss   function loss(logits, labels, images) to minimise, a mean over the batch; None: the loss
           stays the cross-entropy
    """

    loss = None

    def __init__(self, value):
        self.value = value

    def begin(self, model):
        """Return the model to train, with the weights of `model`. Called before the first step.

        model  the network, on its device
        """
        return model

    def before_update(self, model):
        """Act in each step before the optimizer changes the weights.

        The gradients are final then: the loss scaling of half precision is undone, and they are
        clipped.
        """

    def after_update(self, model):
        """Act in each step after the optimizer has changed the weights."""

    def result(self, model):
        """Return the model that is tested, and that the training leaves at its end.

        It is `model`, or a copy with other weights, such as an average. The copy has the same names
        in its state dict. The training loop recomputes batch norm's running statistics in a copy.
        """
        return model

    def state_dict(self):
        """Return what a checkpoint has to store for this method: tensors and plain values."""
        return {}

    def load_state_dict(self, state):
        """Restore what `state_dict` returned, to continue a training."""


class Loss(Hooks):
    """Replace the cross-entropy by another loss.

    For example `fit(..., hooks={"loss": Loss(Distillation(teacher))})`.

    loss  function loss(logits, labels, images), as in `Hooks`; None: the loss stays the
          cross-entropy
    """

    def __init__(self, loss):
        self.loss = loss
