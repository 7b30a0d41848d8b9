"""Exercises of lesson 00: bytes, and the roofline."""

from labkit.lesson.exercises import Exercise, expect, expect_close


def image_bytes(images, height, width, bytes_per_value):
    return images * height * width * bytes_per_value


def verify_image_bytes(answer):
    for shape in ((60_000, 28, 28, 1), (60_000, 28, 28, 4), (7, 3, 5, 2)):
        images, height, width, size = shape
        expect_close(answer(*shape), images * height * width * size, f"image_bytes{shape}")


def least_seconds(operations, bytes_moved, operations_per_second, bytes_per_second):
    return max(operations / operations_per_second, bytes_moved / bytes_per_second)


def verify_least_seconds(answer):
    cases = {
        "much arithmetic on few bytes": ((8e12, 1e9, 2e12, 1e11), 4.0),
        "little arithmetic on many bytes": ((1e9, 4e11, 2e12, 1e11), 4.0),
        "more operations than bytes, and still waiting for memory": ((4e9, 1e9, 2e12, 1e11), 0.01),
        "fifteen operations per byte, where the two limits meet at twenty": ((1.5e10, 1e9, 2e12, 1e11), 0.01),
        "fifteen operations per byte, where the two limits meet at ten": ((1.5e10, 1e9, 1e11, 1e10), 0.15),
        "both limits alike": ((2e12, 1e11, 2e12, 1e11), 1.0),
        "less than a second": ((3e9, 5e8, 2e12, 3e10), 1 / 60),
    }
    for name, (arguments, wanted) in cases.items():
        expect_close(answer(*arguments), wanted, f"{name}, least_seconds{arguments}")
    slower = answer(1e9, 1e9, 1e10, 1e9)
    expect(slower >= 1.0, "A task that moves 1 GB at 1 GB/s cannot take less than 1 s, whatever it computes.")


EXERCISES = (
    Exercise(
        id="image-bytes",
        task="Write the size in bytes of a stack of grey images.",
        difficulty=1,
        minutes=3,
        hint="One value per pixel. How many pixels are there, and how many bytes does one value take?",
        reference=image_bytes,
        verify=verify_image_bytes,
    ),
    Exercise(
        id="least-seconds",
        task="Write the least time a task can take on a machine with these two ceilings.",
        difficulty=2,
        minutes=8,
        hint="Arithmetic and copying go on at the same time. Which of the two is finished last?",
        reference=least_seconds,
        verify=verify_least_seconds,
    ),
)
