"""Workers that begin again: killed for real, and given up after the last restart."""

import os
import signal
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from labkit.errors import LabError
from labkit.scale import elastic


def counting(folder, dies_in):
    """Twelve steps, each the sum over the workers; worker 1 is killed in step `dies_in` of the first attempt."""
    path, first, total = Path(folder) / "newest", 0, 0.0
    if path.exists():
        first, total = (float(word) for word in path.read_text().split())
    for step in range(int(first), 12):
        if (step, dist.get_rank(), elastic.attempt()) == (dies_in, 1, 0):
            os.kill(os.getpid(), signal.SIGKILL)
        x = torch.tensor(float(step + dist.get_rank()))
        dist.all_reduce(x)
        total += float(x)
        if dist.get_rank() == 0:
            path.with_suffix(".tmp").write_text(f"{step + 1} {total}")
            path.with_suffix(".tmp").replace(path)
    return elastic.attempt(), int(first), total


@pytest.mark.kills
def test_after_a_kill_all_go_on_from_the_checkpoint_and_the_handlers_of_this_process_stay(tmp_path):
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    found = elastic.run(counting, tmp_path, 7)
    assert {attempts for attempts, _, _ in found.values()} == {1}
    assert {first for _, first, _ in found.values()} == {7}
    assert found[0][2] == sum(2 * step + 1 for step in range(12))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


@pytest.mark.slow
def test_a_function_that_always_fails_is_given_up_with_its_words():
    def fails():
        raise ValueError("no such layer")

    with pytest.raises(LabError, match="failed 1 times") as caught:
        elastic.run(fails, restarts=0)
    assert "ValueError: no such layer" in caught.value.found
