"""Answers to the exercises of lesson 00: wrong ones that must be rejected, right ones written differently."""

import math

import numpy as np


def sorted_times(operations, bytes_moved, operations_per_second, bytes_per_second):
    times = [bytes_moved / bytes_per_second, operations / operations_per_second]
    return sorted(times)[-1]


def times_in_numpy(operations, bytes_moved, operations_per_second, bytes_per_second):
    rates = np.array([operations_per_second, bytes_per_second])
    return (np.array([operations, bytes_moved]) / rates).max()


WRONG = {
    "image-bytes": {
        "gives text": lambda images, height, width, size: str(images * height * width * size),
        "forgets the bytes of a value": lambda images, height, width, bytes_per_value: images * height * width,
        "counts bits": lambda images, height, width, bytes_per_value: images * height * width * bytes_per_value * 8,
        "counts one image": lambda images, height, width, bytes_per_value: height * width * bytes_per_value,
        "uses the height twice": lambda images, height, width, bytes_per_value: (
            images * height * height * bytes_per_value
        ),
    },
    "least-seconds": {
        "adds the two": lambda ops, moved, ops_rate, byte_rate: ops / ops_rate + moved / byte_rate,
        "takes the smaller": lambda ops, moved, ops_rate, byte_rate: min(ops / ops_rate, moved / byte_rate),
        "looks at arithmetic only": lambda ops, moved, ops_rate, byte_rate: ops / ops_rate,
        "turns the rates around": lambda ops, moved, ops_rate, byte_rate: max(ops_rate / ops, byte_rate / moved),
        "compares operations with bytes": lambda ops, moved, ops_rate, byte_rate: (
            ops / ops_rate if ops > moved else moved / byte_rate
        ),
        "believes that the corner lies at ten": lambda ops, moved, ops_rate, byte_rate: (
            ops / ops_rate if ops / moved > 10 else moved / byte_rate
        ),
        "believes that the corner lies at twenty": lambda ops, moved, ops_rate, byte_rate: (
            ops / ops_rate if ops / moved > 20 else moved / byte_rate
        ),
        "gives whole seconds": lambda ops, moved, ops_rate, byte_rate: max(ops // ops_rate, moved // byte_rate),
        "gives whole seconds of copying": lambda ops, moved, ops_rate, byte_rate: max(
            ops / ops_rate, moved // byte_rate
        ),
        "swaps the rates": lambda ops, moved, ops_rate, byte_rate: max(ops / byte_rate, moved / ops_rate),
    },
}

RIGHT = {
    "image-bytes": {
        "as a product": lambda *sizes: math.prod(sizes),
        "as a float": lambda images, height, width, size: float(images) * size * (height * width),
    },
    "least-seconds": {
        "sorted": sorted_times,
        "in NumPy": times_in_numpy,
    },
}
