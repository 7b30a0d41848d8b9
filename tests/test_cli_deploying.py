"""`labkit export`, `quantize` and `build`: how sizes are written."""

import pytest

from labkit.cli.deploying import size


@pytest.mark.parametrize(
    ("count", "words"), [(312, "0.312 kB"), (48_200, "48.2 kB"), (999_000, "999 kB"), (44_736_000, "44.7 MB")]
)
def test_small_files_are_given_in_kilobytes(count, words):
    assert size(count) == words
