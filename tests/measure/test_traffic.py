"""The memory that counts."""

import numpy as np
import pytest

from labkit.errors import MeasureError
from labkit.measure.traffic import CountedMemory


def test_what_is_loaded_and_stored_is_counted_number_by_number():
    memory = CountedMemory(x=np.arange(4.0), y=np.zeros(4))
    memory.store("y", np.array([1, 2]), 2 * memory.load("x", np.array([1, 2])))
    assert memory.arrays["y"].tolist() == [0, 2, 4, 0]
    assert (memory.loaded, memory.stored, memory.traffic) == ({"x": 2}, {"y": 2}, 4)


def test_an_unknown_array_and_a_place_outside_are_refused():
    memory = CountedMemory(x=np.zeros(4))
    with pytest.raises(MeasureError, match="no array 'z'"):
        memory.load("z", np.array([0]))
    with pytest.raises(MeasureError, match="no place 4"):
        memory.load("x", np.array([3, 4]))
