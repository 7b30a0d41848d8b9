"""Numbers for people."""

import pytest

from labkit.format import shown


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.00123456, "s", "1.23 ms"),
        (0.9999, "s", "1 s"),
        (1234.5, "s", "1,234 s"),
        (0.99996, "B/s", "1 B/s"),
        (0.901, "", "0.901"),
        (0.0123, "op/s", "0.0123 op/s"),
        (0, "s", "0 s"),
        (1e-12, "s", "0.001 ns"),
        (5e15, "op/s", "5,000 Top/s"),
        (-0.002, "s", "-2 ms"),
        (312, "B", "312 B"),
        (48_200, "B", "48.2 kB"),
        (999_999, "B", "1 MB"),
        (44_736_000, "B", "44.7 MB"),
        (1_234_567, "", "1.23 M"),
        (1_234_567, None, "1,234,567"),
        (12_345.6, "images", "12,346 images"),
        (2.16463, "x", "2.16 x"),
        (0.8304, None, "0.83"),
        (99.96, "%", "100 %"),
        (1500, "ms", "1,500 ms"),
        (0.000012, None, "1.2e-05"),
        (float("inf"), "s", "inf s"),
        (None, "s", "unknown"),
        (float("nan"), "s", "unknown"),
    ],
)
def test_a_number_has_three_digits_its_unit_and_a_prefix_where_the_unit_takes_one(
    value, unit, text
):
    assert shown(value, unit) == text


def test_the_digits_can_be_chosen_and_a_whole_number_keeps_all_of_its_own():
    assert shown(0.8304, None, digits=4) == "0.8304"
    assert shown(0.00123456, "s", digits=2) == "1.2 ms"
    assert shown(1_234, "images", digits=2) == "1,234 images"
