"""SAM, sharpness-aware minimisation: descend along the gradient of a higher point close by.

What     climb by `rho` along the gradient, take the gradient there, go back, and step along that one
When     the network fits its training images and generalises worse than it could; long trainings, large batches
Cost     two gradients per step: twice the time; less if switched on late in the training, for a nearly as flat end
Not when the training ends long before the images are fitted; the gain depends on `rho`, and is often small
Source   Foret, Kleiner, Mobahi, Neyshabur 2020, arXiv:2010.01412; late: Zhou et al. 2024, arXiv:2410.10373
"""

import torch
from torch.nn.functional import cross_entropy


def sam_step(model, optimizer, images, labels, *, rho=0.05):
    """One step of `optimizer` along the gradient at weights + rho * gradient / |gradient|.

    rho      length of the climb, in weight space
    returns  the loss at the weights themselves, a 0-dimensional tensor
    """
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    loss = cross_entropy(model(images), labels)
    slopes = torch.autograd.grad(loss, weights)
    length = torch.stack(torch._foreach_norm(slopes)).norm().clamp_min(1e-12)
    climb = torch._foreach_mul(slopes, rho / length)
    with torch.no_grad():
        torch._foreach_add_(weights, climb)
    optimizer.zero_grad(set_to_none=True)
    cross_entropy(model(images), labels).backward()
    with torch.no_grad():
        torch._foreach_sub_(weights, climb)
    optimizer.step()
    return loss.detach()
