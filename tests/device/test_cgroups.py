"""The quota of a container: read from files as Linux has them, in both versions, and said where
it matters.
"""

import os
from pathlib import Path

import pytest

from labkit import device, doctor
from labkit.device import machine
from labkit.device.cgroups import Quota, quota


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


STAT = "usage_usec 1\nnr_periods 124\nnr_throttled 40\nthrottled_usec 3\n"
OLD_STAT = "nr_periods 124\nnr_throttled 40\nthrottled_time 3\n"


def version_2(folder, most, name=""):
    write(folder / name, cpu__max=f"{most}\n", cpu__stat=STAT)


def version_1(folder, most, name="", mount="cpu,cpuacct"):
    write(
        folder / mount / name,
        cpu__cfs_quota_us=f"{most}\n",
        cpu__cfs_period_us="100000\n",
        cpu__stat=OLD_STAT,
    )


def quota_of(folder, own):
    write(folder, own=own)
    return quota(folder, folder / "own")


def test_a_quota_of_version_2_is_read_in_a_container(tmp_path):
    version_2(tmp_path, "200000 100000")
    assert quota_of(tmp_path, "0::/\n") == Quota(2.0, 124, 40)


def test_a_quota_of_version_1_is_read_in_a_container_whose_name_is_that_of_the_host(tmp_path):
    version_1(tmp_path, 40_000)
    own = "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/docker/abc\n"
    assert quota_of(tmp_path, own) == Quota(0.4, 124, 40)


def test_of_the_groups_above_each_other_the_smallest_quota_holds(tmp_path):
    version_2(tmp_path, "max 100000", "slice")
    version_2(tmp_path, "150000 100000", "slice/job")
    version_2(tmp_path, "800000 100000", "slice/job/step")
    assert quota_of(tmp_path, "0::/slice/job/step\n").cores == 1.5
    version_1(tmp_path, -1, "job", "cpu")
    version_1(tmp_path, 50_000, "", "cpu")
    assert quota_of(tmp_path, "1:cpu:/job\n").cores == 0.5


@pytest.mark.parametrize("most", ["max 100000", "", "nonsense", "1 2 3"])
def test_without_a_quota_there_is_none(tmp_path, most):
    version_2(tmp_path, most)
    assert quota_of(tmp_path, "0::/\n") is None
    version_1(tmp_path, -1)
    assert quota_of(tmp_path, "4:cpu,cpuacct:/\n") is None
    assert quota(Path("/nowhere"), Path("/nowhere/own")) is None


@pytest.mark.parametrize(
    ("cores", "usable"), [(2.0, 2), (1.5, 2), (0.4, 1), (128.0, 64), (None, 64)]
)
def test_the_usable_cores_are_those_of_the_quota_rounded_up(monkeypatch, cores, usable):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
    monkeypatch.setattr(machine, "quota", lambda: None if cores is None else Quota(cores, 0, 0))
    assert device.usable_cores() == usable
    assert device.allowed_cores() == 64


def test_the_doctor_names_a_quota_and_says_what_to_do_where_torch_has_more_threads(monkeypatch):
    monkeypatch.setattr(machine, "quota", lambda: Quota(0.4, 124, 40))
    monkeypatch.setattr(device, "quota", lambda: Quota(0.4, 124, 40))
    for threads in (1, 8):
        monkeypatch.setattr(device, "threads", lambda threads=threads: threads)
        [check] = doctor._quota()
        assert check.ok == (threads == 1)
        assert "0.4 cores' time" in check.detail and "used up in 40 of 124 periods" in check.detail
        assert "OMP_NUM_THREADS=1" in check.fix
    monkeypatch.setattr(device, "quota", lambda: None)
    assert list(doctor._quota()) == []
