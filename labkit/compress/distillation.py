"""Distillation: a small network, the student, also learns from a large network, the teacher.

What     the loss is a weighted sum of two terms: the divergence of the student's probabilities from
         the teacher's, both softened by a temperature, and the usual cross-entropy with the labels
When     a good teacher exists, the student is small, or labels are few
Cost     a forward pass of the teacher at every step. The teacher has to see the same pixels as the
         student, also after a random crop (arXiv:2106.05237). For a small student this pass takes
         much longer than the student's own step. Without augmentation the teacher's answers can be
         stored
Not when the student trains long on plenty of labels: then the gain is small, and several seeds are
         needed to measure it. A teacher trained with label smoothing teaches less
         (arXiv:1906.02629)
Source   Hinton, Vinyals, Dean 2015, arXiv:1503.02531
"""

import torch
from torch.nn.functional import cross_entropy, kl_div, log_softmax


def distillation_loss(student, teacher, labels, *, temperature=4.0, weight=0.9):
    """Return weight * T^2 * KL(teacher / T || student / T) + (1 - weight) * cross-entropy.

    The loss is the mean over the batch, in nats, as a tensor without dimensions.

    student, teacher  logits (N, classes)
    labels            int64 (N,)
    temperature       T, above 0; the factor T^2 keeps the size of the gradient when T changes
    weight            0 (the labels alone count) to 1 (the teacher alone counts)
    """
    soft = kl_div(
        log_softmax(student / temperature, 1),
        log_softmax(teacher / temperature, 1),
        log_target=True,
        reduction="batchmean",
    )
    return weight * temperature**2 * soft + (1 - weight) * cross_entropy(student, labels)


class Distillation:
    """The distillation loss of a training: `fit(..., hooks={"loss": Loss(Distillation(teacher))})`.

    An object is called as a function (logits of the student, labels, images), and returns the loss
    of `distillation_loss`.

    teacher      a trained network for the same images and classes. It is put into eval mode, and is
                 not trained further
    temperature  as in `distillation_loss`
    weight       as in `distillation_loss`
    remember     True: store the teacher's logits of each image, and reuse them when the same image
                 comes again. Use this for few images without augmentation
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
        """Return the teacher's logits (N, classes) for a batch of images.

        If `remember` is True, only images that have not come before are computed.
        """
        if self.remembered is None:
            return teacher(images)
        keys = [image.tobytes() for image in images.float().cpu().numpy()]
        unseen = [row for row, key in enumerate(keys) if key not in self.remembered]
        if unseen:
            for row, logits in zip(unseen, teacher(images[unseen]), strict=True):
                self.remembered[keys[row]] = logits
        return torch.stack([self.remembered[key] for key in keys])
