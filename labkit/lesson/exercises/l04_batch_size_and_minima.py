"""Exercises of lesson 04: how noisy training is, sharpness in a box, directions as long as the weights."""

import numpy as np
import torch

from labkit.lesson.exercises import Exercise, Wrong, expect, expect_close, shorten, untouched


def noise_scale(learning_rate, images, batch, momentum):
    return learning_rate * (images / batch - 1) / (1 - momentum)


def verify_noise_scale(answer):
    expect_close(answer(0.1, 6_000, 60, 0.0), 9.9, "rate 0.1, 6,000 images, batch 60, no momentum")
    expect_close(answer(0.1, 6_000, 60, 0.9), 99.0, "the same with momentum 0.9")
    expect_close(answer(0.1, 6_000, 6_000, 0.9), 0.0, "a batch of all images has no noise", tolerance=1e-6)
    for batch in (32, 128, 1024):
        wanted = noise_scale(0.05, 8_192, batch, 0.9)
        expect_close(answer(0.05, 8_192, batch, 0.9), wanted, f"rate 0.05, 8,192 images, batch {batch}, momentum 0.9")


def box_sharpness(curvatures, weights, epsilon):
    import numpy as np

    width = epsilon * (abs(weights) + 1)
    loss = np.sum(curvatures * weights**2) / 2
    highest = np.sum(curvatures * (abs(weights) + width) ** 2) / 2
    return 100 * (highest - loss) / (1 + loss)


def verify_box_sharpness(answer):
    answer = untouched(answer)
    cases = {
        "one weight at the bottom of a bowl (curvature 8, w = 0, epsilon 0.1)": ([8.0], [0.0], 0.1),
        "the same bowl in three dimensions": ([8.0, 8.0, 8.0], [0.0, 0.0, 0.0], 0.1),
        "a weight of 3, whose box is four times as wide": ([2.0], [3.0], 0.1),
        "a weight of -3: the highest point lies on its side": ([2.0], [-3.0], 0.1),
        "four different curvatures": ([9.0, 4.0, 1.0, 0.1], [0.5, -1.0, 2.0, 0.0], 1e-3),
    }
    for name, (curvatures, weights, epsilon) in cases.items():
        given = np.array(curvatures), np.array(weights)
        expect_close(answer(*given, epsilon), box_sharpness(*given, epsilon), name)


def filter_normalise(direction, weight):
    each = tuple(range(1, weight.dim()))
    lengths = (weight**2).sum(each, keepdim=True).sqrt()
    return direction * lengths / (direction**2).sum(each, keepdim=True).sqrt()


def verify_filter_normalise(answer):
    answer = untouched(answer)
    random = torch.Generator().manual_seed(0)
    for shape in ((8, 3, 3, 3), (10, 64)):
        weight = torch.randn(shape, generator=random) * torch.arange(1, shape[0] + 1).view(-1, *[1] * (len(shape) - 1))
        direction = torch.randn(shape, generator=random)
        found = answer(direction.clone(), weight.clone())
        if not isinstance(found, torch.Tensor) or found.shape != weight.shape:
            raise Wrong(f"Expected a tensor of shape {tuple(shape)}, found {shorten(found)}.")
        got, wanted = found.flatten(1).norm(dim=1), weight.flatten(1).norm(dim=1)
        for row in range(shape[0]):
            expect_close(got[row], float(wanted[row]), f"the length of filter {row} of {shape[0]}", tolerance=1e-4)
        cosine = torch.nn.functional.cosine_similarity(found.flatten(1), direction.flatten(1))
        expect(bool((cosine > 0.999).all()), "The filters have the right lengths, but no longer point the same way.")


EXERCISES = (
    Exercise(
        id="noise-scale",
        task="How strongly the random choice of images shakes the weights.",
        difficulty=1,
        minutes=4,
        hint="rate (images / batch - 1), and momentum makes every push last 1 / (1 - momentum) steps.",
        reference=noise_scale,
        verify=verify_noise_scale,
    ),
    Exercise(
        id="box-sharpness",
        task="The sharpness of a bowl whose highest point in the box you can write down.",
        difficulty=2,
        minutes=10,
        hint="In a bowl around 0 every weight raises the loss most by moving away from 0, to the edge of its own box.",
        reference=box_sharpness,
        verify=verify_box_sharpness,
    ),
    Exercise(
        id="filter-normalise",
        task="Make every filter of a direction as long as the filter it will move.",
        difficulty=2,
        minutes=8,
        hint="One length for each w[i]: sum the squares over all dimensions but the first, and keep those dimensions.",
        reference=filter_normalise,
        verify=verify_filter_normalise,
    ),
)
