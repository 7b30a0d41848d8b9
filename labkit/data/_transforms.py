"""The transforms of a batch before the network: crop and mirror, resize, normalise.

Each transform works on a whole batch, on the device that trains. Random numbers are drawn on the
CPU, so that every device sees the same images for the same seed.
"""


def crop_and_mirror(images, generator):
    """Augment images: crop each at random from a copy with a black border, and mirror about half.

    images     uint8 (N, C, H, W)
    generator  a torch.Generator on the CPU
    returns    the same shape and type
    Source     He et al. 2015, arXiv:1512.03385, section 4.2 (a border of 4 for 32 pixels, an
               eighth)
    """
    import torch

    count, _, height, width = images.shape
    border = (height // 8, width // 8)
    down = torch.randint(0, 2 * border[0] + 1, (count,), generator=generator)
    right = torch.randint(0, 2 * border[1] + 1, (count,), generator=generator)
    mirror = torch.rand(count, generator=generator) < 0.5
    return crop(images, down, right, mirror, border=border)


def crop(images, down, right, mirror, *, border):
    """Crop each image from a copy with a black border, at an offset of its own, and mirror some.

    The crop has the size of the image.

    images   (N, C, H, W)
    down     int64 (N,), 0 to 2 border[0]: first row of the crop in the bordered image
    right    int64 (N,), 0 to 2 border[1]: first column of the crop in the bordered image
    mirror   bool (N,): True for images to mirror, left to right
    border   (rows added above and below, columns added left and right)
    returns  (N, C, H, W)
    """
    import torch
    from torch.nn.functional import pad

    count, channels, height, width = images.shape
    bordered = pad(images, (border[1], border[1], border[0], border[0]))
    rows = down[:, None] + torch.arange(height)  # (N, H)
    columns = right[:, None] + torch.arange(width)  # (N, W)
    columns = torch.where(mirror[:, None], columns.flip(1), columns)
    # (N, 1, H*W)
    flat = (rows[:, :, None] * bordered.shape[3] + columns[:, None, :]).reshape(count, 1, -1)
    flat = flat.to(images.device).expand(-1, channels, -1)
    return bordered.flatten(2).gather(2, flat).reshape(count, channels, height, width)


def resize(images, size):
    """Scale images to (N, C, size, size) by bilinear interpolation.

    images   uint8 or float (N, C, H, W)
    size     pixels a side; None: return the images as they are
    returns  float32 where the images were scaled, else the same tensor
    """
    from torch.nn.functional import interpolate

    if size is None or images.shape[2:] == (size, size):
        return images
    shrinks = size < max(images.shape[2:])
    return interpolate(images.float(), (size, size), mode="bilinear", antialias=shrinks)


def normalise(images, mean, std):
    """Return (images / 255 - mean) / std per channel, as float32.

    images  uint8 or float (N, C, H, W), 0 to 255
    mean    C numbers, of pixels scaled to 0..1
    std     C numbers, of pixels scaled to 0..1
    """
    import torch

    shape = (1, -1, 1, 1)
    mean_of_bytes = torch.tensor(mean, device=images.device).reshape(shape) * 255
    std_of_bytes = torch.tensor(std, device=images.device).reshape(shape) * 255
    copied = images.to(torch.float32, copy=True)  # never in place in the caller's tensor
    return copied.sub_(mean_of_bytes).div_(std_of_bytes)
