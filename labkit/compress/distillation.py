"""Distillation: a small network learns from the answers of a large one, not only from the right
class.

What     the loss is the divergence of the student's from the teacher's probabilities, both softened
         by a temperature, beside the usual cross-entropy
When     a good teacher exists, the student is small, or labels are few
Cost     the teacher's forward pass at every step, so that it sees the very pixels that the student
         sees, also after a random crop (arXiv:2106.05237); much more than the student's own step
         where the student is small. Without augmentation its answers can be remembered
Not when the student is trained long on plenty of labels: the gain is then small, measure it over
several seeds; a
         teacher trained with label smoothing teaches less (arXiv:1906.02629)
Source   Hinton, Vinyals, Dean 2015, arXiv:1503.02531
"""

import torch
from torch.nn.functional import cross_entropy, kl_div, log_softmax


def distillation_loss(student, teacher, labels, *, temperature=4.0, weight=0.9):
    """Return weight * T^2 * KL(teacher / T || student / T) + (1 - weight) * cross-entropy, the
    batch's mean, in nats.

    student, teacher  logits (N, classes)
    labels            int64 (N,)
    temperature       T, above 0; T^2 keeps the gradient's size when T changes
    weight            0 (labels alone) to 1 (teacher alone)
    """
    soft = kl_div(
        log_softmax(student / temperature, 1),
        log_softmax(teacher / temperature, 1),
        log_target=True,
        reduction="batchmean",
    )
    return weight * temperature**2 * soft + (1 - weight) * cross_entropy(student, labels)


class Distillation:
    """The loss of a training: `fit(..., hooks={"loss": Loss(Distillation(teacher))})`.

    teacher  a trained network for the same images and classes; put into eval mode, it learns
             nothing
    remember ask it once per image: for few images that come unchanged in every epoch, so not with
    augmentation
    """

    def __init__(self, teacher, *, temperature=4.0, weight=0.9, remember=False):
        self.teacher = teacher.eval()
        self.temperature = temperature
        self.weight = weight
        self.remembered = {} if remember else None  # {bytes of an image: the teacher's logits}

    def __call__(self, logits, labels, images):
        with torch.no_grad():
            teacher_logits = self._teacher_logits(self.teacher.to(images.device), images)
        return distillation_loss(
            logits, teacher_logits, labels, temperature=self.temperature, weight=self.weight
        )

    def _teacher_logits(self, teacher, images):
        """Return the teacher's logits; those of images that it has seen come from memory."""
        if self.remembered is None:
            return teacher(images)
        keys = [image.tobytes() for image in images.float().cpu().numpy()]
        unseen = [row for row, key in enumerate(keys) if key not in self.remembered]
        if unseen:
            for row, logits in zip(unseen, teacher(images[unseen]), strict=True):
                self.remembered[keys[row]] = logits
        return torch.stack([self.remembered[key] for key in keys])
