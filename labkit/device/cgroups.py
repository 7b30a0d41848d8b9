"""Read the quota of CPU time that a container or a batch system gives to this process.

On Linux such quotas are set by control groups. A quota of 200 ms in each period of 100 ms stands
for two cores. A group that has used up its quota is stopped until the next period.

Source  kernel.org, "Control Group v2", cpu.max and cpu.stat; "CFS Bandwidth Control" for version 1
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MOUNTS = ("cpu", "cpu,cpuacct")  # folders of control groups version 1; version 2 has none


class Quota(NamedTuple):
    """The smallest quota that holds for this process.

    cores    quota in cores: 0.5 is half of the time of one core
    periods  number of periods in which the group has computed until now
    stopped  number of these periods in which the group used up its quota
    """

    cores: float
    periods: int
    stopped: int


def quota(
    cgroups: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> Quota | None:
    """Return the smallest CPU quota that holds for this process, or None if there is none.

    cgroups     folder where the control groups are mounted
    membership  file that names the groups of this process
    """
    quotas = []
    for group in _groups(cgroups, membership):
        with suppress(OSError, ValueError, KeyError):
            cores = _cores(group)
            if cores is not None:
                counts = dict(
                    line.split() for line in (group / "cpu.stat").read_text().splitlines()
                )
                quotas.append(Quota(cores, int(counts["nr_periods"]), int(counts["nr_throttled"])))
    return min(quotas, default=None)


def _groups(cgroups, membership) -> Iterator[Path]:
    """Yield the folders of this process's control groups and of the groups above them.

    The quotas of the groups above hold for this process, too.
    """
    with suppress(OSError):
        for line in membership.read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            mounts = [cgroups] if not controllers else [cgroups / mount for mount in MOUNTS]
            if controllers and "cpu" not in controllers.split(","):
                continue
            for mount in mounts:
                # In a container the name may be that of the host; its own group is then the mount
                # itself.
                group = mount / name.strip("/")
                yield from [
                    folder for folder in (group, *group.parents) if folder.is_relative_to(mount)
                ]


def _cores(group):
    """Return the quota of one group in cores; None where the group has no quota."""
    with suppress(FileNotFoundError):  # version 2
        most, period = (group / "cpu.max").read_text().split()
        return None if most == "max" else int(most) / int(period)
    most = int((group / "cpu.cfs_quota_us").read_text())
    period = int((group / "cpu.cfs_period_us").read_text())
    return most / period if most > 0 else None
