"""Answers to the exercises of lesson 00: wrong ones that must be rejected, right ones written differently."""

WRONG = {
    "image-bytes": {
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
        "swaps the rates": lambda ops, moved, ops_rate, byte_rate: max(ops / byte_rate, moved / ops_rate),
    },
}

RIGHT = {
    "image-bytes": {},
    "least-seconds": {},
}
