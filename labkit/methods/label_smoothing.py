"""Label smoothing: ask for a little less than certainty.

What     the target is 1 - s for the right class, and s spread evenly over all classes, the right one among them
When     networks that become too sure of themselves: many classes, long training, labels with errors
Cost     none
Not when the probabilities are used further: for distilling a smaller network, or where they have to be calibrated anew
Source   Szegedy et al. 2015, section 7, arXiv:1512.00567; when it hurts: Müller et al. 2019, arXiv:1906.02629
"""

from torch.nn import functional as F

from labkit.errors import LabError


def smooth_cross_entropy(logits, labels, smoothing):
    """Mean over the batch of the cross-entropy against smoothed labels, in nats.

    logits     (N, classes)
    labels     (N,) int64
    smoothing  s, 0 to 1: the share of the target that is spread over all classes
    """
    if not 0 <= smoothing <= 1:
        raise LabError("Smoothing is a share.", expected="0 to 1", found=smoothing)
    log_p = F.log_softmax(logits, dim=1)
    right = log_p.gather(1, labels[:, None])  # (N, 1)
    return -((1 - smoothing) * right + smoothing * log_p.mean(1, keepdim=True)).mean()
