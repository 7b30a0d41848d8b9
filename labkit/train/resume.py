"""Going on with a training as if it had never stopped."""

from dataclasses import asdict

from labkit import device as devices
from labkit.train.checkpoint import CheckpointError, load_checkpoint, save_checkpoint

FREE = {"workers", "pin_memory", "resident", "phases", "cudnn_autotuner"}  # these do not change what is learned
REMEMBERED = ("losses", "accuracy", "epoch_seconds", "epoch_phases")


class Keeper:
    """Saves and restores everything that decides how a training goes on.

    path   of the checkpoint's sidecar; None: nothing is kept
    parts  {name: anything with state_dict() and load_state_dict(...)}
    """

    def __init__(self, path, parts, config, data, device):
        self.path, self.parts, self.device = path, parts, device
        self.about = {
            "config": asdict(config),
            "images": len(data),
            "digest": getattr(data, "digest", None),
        }

    def restore(self, history):
        """Put what was kept into the parts and into `history`; without a checkpoint all stay as they are."""
        found = load_checkpoint(self.path) if self.path else None
        if found is None:
            return
        state, facts = found
        self.check(facts)
        try:
            for name, part in self.parts.items():
                part.load_state_dict(state[name])
        except (RuntimeError, ValueError, KeyError) as error:
            raise CheckpointError(
                f"The checkpoint {self.path} is of another network.",
                expected="the same layers",
                found=str(error).strip().splitlines()[0],
                fix="train under another name, or delete the checkpoint",
            ) from None
        devices.set_rng_state(self.device, state["rng"])
        for name in REMEMBERED:
            setattr(history, name, facts["history"][name])

    def check(self, facts):
        """Refuse a checkpoint of another training."""
        ours, theirs = differing(self.about, facts)
        if ours:
            raise CheckpointError(
                f"The checkpoint {self.path} is of another training.",
                expected=", ".join(f"{name} {value!r}" for name, value in ours.items()),
                found=", ".join(f"{name} {value!r}" for name, value in theirs.items()),
                fix="use the same settings, or train under another name, or delete the checkpoint",
            )

    def save(self, history):
        """Keep everything after an epoch."""
        if self.path:
            state = {name: part.state_dict() for name, part in self.parts.items()}
            state["rng"] = devices.rng_state(self.device)
            kept = {name: getattr(history, name) for name in REMEMBERED}
            save_checkpoint(self.path, state, {**self.about, "history": kept})


def differing(ours, theirs):
    """The entries of two descriptions that differ and matter, flat: (ours, theirs)."""
    ours, theirs = ({**about, **about.get("config", {})} for about in (ours, theirs))
    names = [name for name in ours if name not in FREE | {"config"} and ours[name] != theirs.get(name)]
    return {name: ours[name] for name in names}, {name: theirs.get(name) for name in names}
