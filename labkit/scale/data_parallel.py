"""One gradient from many workers: by hand, by DistributedDataParallel, and sharded by FSDP2.

Every function here runs in each worker of a `Team`, on the whole batch, of which it takes its share. A network is given
whole, and left without gradients.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def ring_all_reduce(x):
    """Replace x, (n,), by the sum of all workers' x; each sends 2 n (k - 1) / k numbers, to the right only."""
    rank, k = dist.get_rank(), dist.get_world_size()
    pieces = x.tensor_split(k)
    for step in range(2 * (k - 1)):
        sending = dist.isend(pieces[(rank - step) % k], (rank + 1) % k)
        piece = pieces[(rank - step - 1) % k]
        coming = torch.empty_like(piece)
        dist.recv(coming, (rank - 1) % k)
        sending.wait()
        piece.copy_(piece + coming if step < k - 1 else coming)  # first the sums are collected, then passed round
    return x


def tree_all_reduce(x):
    """Replace x, (n,), by the sum of all workers' x: halves of the workers send whole sums up a tree, then down."""
    rank, k = dist.get_rank(), dist.get_world_size()
    levels = [2**level for level in range((k - 1).bit_length())]
    for distance in levels:
        if rank % (2 * distance) == distance:
            dist.send(x, rank - distance)
        elif rank % (2 * distance) == 0 and rank + distance < k:
            coming = torch.empty_like(x)
            dist.recv(coming, rank + distance)
            x += coming
    for distance in reversed(levels):
        if rank % (2 * distance) == distance:
            dist.recv(x, rank - distance)
        elif rank % (2 * distance) == 0 and rank + distance < k:
            dist.send(x, rank + distance)
    return x


def _loss_of_share(network, images, labels):
    """This worker's part of the loss: the mean over workers is the mean over all images, whatever the shares' sizes."""
    rank, k = dist.get_rank(), dist.get_world_size()
    x, y = (each.tensor_split(k)[rank] for each in (images, labels))
    return cross_entropy(network(x), y, reduction="sum") * k / len(labels)


def alone(network, images, labels):
    """The gradient of the whole batch in one worker, (weights,)."""
    return _flat(torch.autograd.grad(cross_entropy(network(images), labels), list(network.parameters())))


def by_hand(network, images, labels):
    """The mean over the workers of their gradients, (weights,), by `ring_all_reduce`."""
    slopes = torch.autograd.grad(_loss_of_share(network, images, labels), list(network.parameters()))
    return ring_all_reduce(_flat(slopes)) / dist.get_world_size()


def _by_ddp(network, images, labels, *, bucket_mb=25):
    """The same by torch: buckets of gradients are averaged as soon as they are there."""
    twin = torch.nn.parallel.DistributedDataParallel(network, bucket_cap_mb=bucket_mb)
    _loss_of_share(twin, images, labels).backward()
    return _taken(network)


def _by_fsdp(network, images, labels):
    """The same with every tensor cut into k parts, each kept by one worker. The network stays in parts."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    kind = next(network.parameters()).device.type
    fully_shard(network, mesh=init_device_mesh(kind, (dist.get_world_size(),)))
    _loss_of_share(network, images, labels).backward()
    return _flat([weight.grad.full_tensor() for weight in network.parameters()])


WAYS = {"by hand": by_hand, "DDP": _by_ddp, "FSDP2": _by_fsdp}


def _taken(network):
    """The gradients of a network as one vector; it is left without them."""
    found = _flat([weight.grad for weight in network.parameters()])
    network.zero_grad(set_to_none=True)
    return found


def _flat(tensors):
    return torch.cat([each.flatten() for each in tensors])
