"""Exercises of lesson 00: bytes, and the least time of a task."""

from labkit.lesson.exercises import Exercise, expect, expect_close


def image_bytes(images, height, width, bytes_per_value):
    return images * height * width * bytes_per_value


def verify_image_bytes(answer):
    for shape in ((60_000, 28, 28, 1), (60_000, 28, 28, 4), (7, 3, 5, 1), (11, 7, 3, 2), (60_013, 97, 113, 4)):
        images, height, width, size = shape
        expect_close(answer(*shape), images * height * width * size, f"image_bytes{shape}", tolerance=0)


def least_seconds(operations, bytes_moved, calls, machine):
    seconds = {
        "arithmetic": operations / machine["arithmetic"],
        "memory": bytes_moved / machine["memory"],
        "overhead": calls * machine["overhead"],
    }
    limit = max(seconds, key=seconds.get)
    return seconds[limit], limit


def verify_least_seconds(answer):
    fast = {"arithmetic": 2.1e12, "memory": 1.3e11, "overhead": 3e-6}
    slow = {"overhead": 7e-6, "memory": 9e9, "arithmetic": 1.7e10}  # a limit is found by its name, not by its place
    cases = {
        "much arithmetic on few bytes": ((8.4e12, 1e9, 5, fast), (4.0, "arithmetic")),
        "little arithmetic on many bytes": ((1e9, 3.9e11, 5, fast), (3.0, "memory")),
        "many calls on hardly any numbers": ((400, 1_600, 11, fast), (3.3e-5, "overhead")),
        "a thousand calls, each of them long": ((6.3e12, 1e9, 1_000, fast), (3.0, "arithmetic")),
        "more operations than bytes, and still waiting for memory": ((4e9, 1.3e9, 1, fast), (0.01, "memory")),
        "calls that take longer than either, less than both": (
            (4.2e12, 1.95e11, 900_001, fast),
            (2.700003, "overhead"),
        ),
        "five operations per byte, where the ridge is at 16": ((6.5e9, 1.3e9, 1, fast), (0.01, "memory")),
        "five operations per byte, where the ridge is at 2": ((8.5e9, 1.7e9, 1, slow), (0.5, "arithmetic")),
    }
    for name, ((*task, machine), (seconds, limit)) in cases.items():
        what = f"{name}, least_seconds{tuple(task)} on {machine}"
        given = dict(machine)
        found = answer(*task, given)
        expect(isinstance(found, tuple) and len(found) == 2, f"{what}: expected (seconds, limit), found {found!r}.")
        expect_close(found[0], seconds, f"{what}: the seconds")
        expect(found[1] == limit, f"{what}: the limit is {limit!r}, found {found[1]!r}.")
        expect(given == machine, "Your function changes `machine`, which belongs to the caller.")


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
        task="Write the least time a task can take on a machine with these three limits, and which of them says so.",
        difficulty=2,
        minutes=8,
        hint="How many seconds would each limit alone allow? The task cannot be done before the last of them is.",
        reference=least_seconds,
        verify=verify_least_seconds,
    ),
)
