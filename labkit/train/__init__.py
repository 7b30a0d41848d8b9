"""Train networks: one plain loop with switches, checkpoints, and many settings and seeds.

    history = fit(model, (train, test), TrainConfig(epochs=3, amp="bf16"), device=device)
    history.losses, history.accuracy, history.seconds

A switch is a field of `config.TrainConfig`. A batch that does not fit, a loss that is no number and
a damaged checkpoint end in an error that says what to do.

A name of this package is imported when it is first asked for. So the command line can read the
fields of `TrainConfig`, and `labkit.train.workers` can start its processes, without torch.
"""

from labkit.on_demand import offered

_OFFERED = {
    "checkpoint": ("CheckpointError", "load_checkpoint", "save_checkpoint"),
    "config": ("TrainConfig", "method"),
    "feed": ("epoch_seed",),
    "history": ("History",),
    "loop": ("fit",),
    "optimizers": ("make_optimizer",),
    "testing": ("accuracy", "right_answers"),
    "torchscript": ("scripted",),
    "trained_network": ("restored",),
    "watch": ("PHASES", "Laps", "NotFinite", "OutOfMemory"),
}


def __getattr__(name):
    """Import a name of `_OFFERED` when it is first asked for."""
    return offered(__name__, _OFFERED, name)
