"""How many joules does an item cost? Counted by the hardware over a window long enough to mean something."""

from labkit import device as devices
from labkit.ledger.rows import Energy
from labkit.measure import counters
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

    seconds  at least 2
    """
    clock, calls = clock_of(device), as_calls(inputs)
    where = {**provenance(clock), "name": name, "batch": batch}
    source, read = energy_counter(clock.device)
    if read is None:
        reason, fix = NOT_READABLE[source]
        return Energy(**where, reason=reason, fix=fix)
    if seconds < SHORTEST_S:
        reason = f"a window of {seconds:g} s is too short for the energy counter"
        return Energy(**where, reason=reason, fix=f"seconds={SHORTEST_S:g} or more")
    joules, taken, count = run_window(fn, calls, clock, read, seconds)
    items = count * batch
    return Energy(**where, joules_per_item=joules / items, joules=joules, seconds=taken, items=items, source=source)


def run_window(fn, calls, clock, read, seconds):
    """(joules, seconds, calls) of calling for at least `seconds`, after one call to warm up."""
    clock.time(fn, calls[0])
    before, begin, count = read(), clock.now(), 0
    while clock.now() - begin < seconds:
        clock.time(fn, calls[count % len(calls)])
        count += 1
    taken = clock.now() - begin
    return used(before, read()), taken, count


def used(before, after):
    """Joules between two readings of [(joules, wrap)]; a counter that started again is unwrapped."""
    return sum(now - then + (wrap if now < then else 0) for (then, wrap), (now, _) in zip(before, after, strict=True))


def energy_counter(device):
    """(source, () -> [(joules, wrap)]), or (kind of counter that is missing, None)."""
    uuid = devices.uuid(device)
    if uuid is not None:
        if counters.gpu_energy_j(uuid) is None:
            return "gpu", None
        return "NVML", lambda: [(counters.gpu_energy_j(uuid), 0.0)]
    domains = counters.rapl_domains()
    return ("RAPL", lambda: counters.rapl_energy_j(domains)) if domains else ("cpu", None)
