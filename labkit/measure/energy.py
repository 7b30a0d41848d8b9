"""How many joules does an item cost? Counted by the hardware over a window long enough to mean something."""

from labkit import device as devices
from labkit.ledger.rows import Energy
from labkit.measure import _counters
from labkit.measure.clock import as_calls, clock_of, provenance

SHORTEST_S = 2.0  # the counters step every 20 to 100 ms: 2 s keeps that under 5 %
NOT_READABLE = {
    "gpu": ("this GPU does not count its energy", "use an NVIDIA GPU of the Volta generation or later"),
    "cpu": (
        "the CPU's energy counter (RAPL) is not there or not readable (virtual machines seldom have it)",
        "on your own Linux machine: sudo chmod a+r /sys/class/powercap/*-rapl:*/energy_uj",
    ),
}


def energy(fn, *, device=None, inputs=None, batch=1, seconds=SHORTEST_S, name=""):
    """Joules an item of calling `fn` over and over for `seconds`: a `rows.Energy`, without a number but with a
    reason where the hardware does not tell.

    seconds  less than 2 is taken as 2
    """
    clock, calls = clock_of(device), as_calls(inputs)
    where = {**provenance(clock), "name": name, "batch": batch}
    source, read = energy_counter(clock.device)
    if read is None:
        reason, fix = NOT_READABLE[source]
        return Energy(**where, reason=reason, fix=fix)
    clock.time(fn, calls[0])
    before, begin, count = read(), clock.now(), 0
    while clock.now() - begin < max(seconds, SHORTEST_S):
        clock.time(fn, calls[count % len(calls)])
        count += 1
    taken, joules, items = clock.now() - begin, _used(before, read()), count * batch
    return Energy(**where, joules_per_item=joules / items, joules=joules, seconds=taken, items=items, source=source)


def _used(before, after):
    """Joules between two readings of [(joules, wrap)]; a counter that started again is unwrapped."""
    return sum(now - then + (wrap if now < then else 0) for (then, wrap), (now, _) in zip(before, after, strict=True))


def energy_counter(device):
    """(source, () -> [(joules, wrap)]), or (kind of counter that is missing, None)."""
    uuid, domains = devices.uuid(device), _counters.rapl_domains()
    if uuid is not None and _counters.gpu_energy_j(uuid) is not None:
        return "NVML", lambda: [(_counters.gpu_energy_j(uuid), 0.0)]
    if uuid is not None or not domains:
        return "cpu" if uuid is None else "gpu", None
    return "RAPL", lambda: _counters.rapl_energy_j(domains)
