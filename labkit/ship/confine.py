"""What a process with a stranger's code may do: compute, read the libraries and the training images, write one folder.

What     limits of memory, CPU time, file size and open files (everywhere but on Windows); writing and reading by
         Landlock, no other process and no socket by seccomp, no network by a namespace of its own (Linux, where the
         kernel has them); and Python's audit hook, which says in words what was tried
Not      a virtual machine. A hole in the kernel, or in a library that reads the file, is a hole here. Where the
         kernel has neither Landlock nor seccomp (macOS), the audit hook is all there is, and native code passes by
         it. The GPU's driver is not confined. Score strangers' code on a machine that holds nothing else
Sources  kernel.org: Landlock, seccomp_filter; PEP 578 (audit hooks)
"""

import ctypes
import os
import platform
import signal
import struct
import sys
from contextlib import suppress
from pathlib import Path

from labkit.files import root

MEMORY = 4 * 2**30  # bytes beyond what is in use when the limits are set
FILE_BYTES, OPEN_FILES = 2**26, 256
_LANDLOCK = {"create": 444, "add": 445, "restrict": 446}  # system calls, the same numbers on every machine
_WRITES = sum(1 << bit for bit in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12))  # write, remove, make things of each kind
_READS = 1 << 2 | 1 << 3  # files, folders
_SHARED = 1 << 13 | 1 << 14  # move between folders (from the second version of Landlock), cut short (from the third)
_FORBIDDEN = {  # audit events by how they begin: in words
    "socket.": "open a socket",
    "subprocess.": "start a process",
    "os.system": "start a process",
    "os.exec": "start a process",
    "os.posix_spawn": "start a process",
    "os.fork": "fork",
    "os.kill": "send a signal",
    "signal.pthread_kill": "send a signal",
}
# x86_64 and aarch64: (number of the machine, {what is refused: numbers}, clone, clone3)
_CALLS = {
    "x86_64": (0xC000003E, (41, 53, 57, 58, 59, 62, 101, 200, 234, 322, 425), 56, 435),
    "aarch64": (0xC00000B7, (198, 199, 221, 129, 117, 130, 131, 281, 425), 220, 435),
}  # socket, socketpair, fork, vfork, execve, kill, ptrace, tkill, tgkill, execveat, io_uring_setup


def confine(folder, *, cpu_s, readable=(), tell=lambda words: None):
    """Confine this process for good; returns {protection: whether it is in force}.

    folder    the one folder it may write
    cpu_s     most seconds of computing
    readable  files and folders it may read besides Python, its libraries and the training images
    tell      called with words such as "open a socket" when Python code tries what is forbidden
    """
    folder = Path(folder).resolve()
    _set_limits(cpu_s)
    os.chdir(folder)
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    found = {"limits": os.name == "posix", "audit hook": True}
    found["no network"] = libc is not None and libc.unshare(0x10000000 | 0x40000000) == 0  # user, network
    quiet = libc is not None and libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges: the two below need it
    found["files"] = quiet and _landlock(libc, folder, readable)
    found["no processes"] = quiet and _seccomp(libc)
    sys.addaudithook(_hook(folder, tell))
    return found


def _set_limits(cpu_s):
    """Limits that every Unix has; memory counts from what is in use now."""
    import resource

    import psutil

    limits = {"RLIMIT_CPU": int(cpu_s) + 1, "RLIMIT_FSIZE": FILE_BYTES, "RLIMIT_NOFILE": OPEN_FILES, "RLIMIT_CORE": 0}
    if sys.platform == "linux":
        limits["RLIMIT_AS"] = psutil.Process().memory_info().vms + MEMORY
    for name, most in limits.items():
        with suppress(ValueError, OSError):  # there is a lower limit already
            resource.setrlimit(getattr(resource, name), (most, most))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then writing too much is an OSError


def _hook(folder, tell):
    """An audit hook that refuses, in words, what the kernel may refuse with a number or not at all."""

    def hook(event, arguments):
        words = next((words for begin, words in _FORBIDDEN.items() if event.startswith(begin)), None)
        if event == "open" and _writes(arguments) and not _inside(arguments[0], folder):
            words = "write a file outside its folder"
        if event in ("os.remove", "os.rename", "os.rmdir", "os.truncate") and not _inside(arguments[0], folder):
            words = "change a file outside its folder"
        if words:
            tell(words)
            raise PermissionError(f"a submission may not {words}")

    return hook


def _writes(arguments):
    """Whether an event `open` asks for writing."""
    _, mode, flags = (*arguments, None, None)[:3]
    return bool(set(mode or "") & set("wax+")) or bool((flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _inside(place, folder):
    if isinstance(place, int):  # a file that is open already
        return True
    path = os.path.realpath(os.fsdecode(place))
    return path == os.devnull or path.startswith(f"{folder}{os.sep}")


def _landlock(libc, folder, readable):
    """Let this process read and write only where it is allowed to; False where the kernel has no Landlock."""
    version = libc.syscall(_LANDLOCK["create"], None, 0, 1)
    if version < 1:
        return False
    shared = _SHARED & ((1 << 13 if version >= 2 else 0) | (1 << 14 if version >= 3 else 0))
    rights = struct.pack("Q", _READS | _WRITES | shared)
    rules = libc.syscall(_LANDLOCK["create"], rights, len(rights), 0)
    for place in (*_libraries(), *readable):
        _allow(libc, rules, place, _READS)
    for place in (folder, *_devices()):
        _allow(libc, rules, place, _READS | _WRITES | shared)
    done = libc.syscall(_LANDLOCK["restrict"], rules, 0) == 0
    os.close(rules)
    return done


def _devices():
    """What libraries write to that is no file: never the disks."""
    return [os.devnull, *Path("/dev").glob("nvidia*")]


def _libraries():
    """Python, its libraries, this package, the training images: not the test images, nor anybody's home."""
    data = root() / "data"
    own = [root() / "labkit", data / "trained", *(data / "fashion-mnist").glob("train-*"), *data.glob("*/LICENSE")]
    system = ("/usr", "/lib", "/lib64", "/etc", "/proc", "/sys", "/dev", "/opt")
    return [*own, *map(Path, (*system, sys.prefix, sys.base_prefix, *filter(None, sys.path)))]


def _allow(libc, rules, place, rights):
    """Add a rule for a file or a folder and all below it."""
    path = Path(place)
    if path.resolve() == root().resolve() or not path.exists():  # the root holds the test images
        return
    held = os.open(path, os.O_PATH)
    if not path.is_dir():
        rights &= 1 << 1 | 1 << 2 | 1 << 14  # of a file: write, read, cut short
    libc.syscall(_LANDLOCK["add"], rules, 1, struct.pack("=Qi", rights, held), 0)
    os.close(held)


def _seccomp(libc):
    """Let this process make threads, but no processes and no sockets; False where that is not known how."""
    if platform.machine() not in _CALLS:
        return False
    machine, refused, clone, clone3 = _CALLS[platform.machine()]
    load, equal, has, end = 0x20, 0x15, 0x45, 0x06
    refuse, unknown, allow = 0x00050001, 0x00050026, 0x7FFF0000  # EPERM; ENOSYS, so that libc tries clone
    steps = [(load, 0, 0, 4), (equal, 1, 0, machine), (end, 0, 0, refuse), (load, 0, 0, 0)]
    for number in refused:
        steps += [(equal, 0, 1, number), (end, 0, 0, refuse)]
    steps += [(equal, 0, 1, clone3), (end, 0, 0, unknown), (equal, 0, 3, clone), (load, 0, 0, 16)]
    steps += [(has, 1, 0, 0x10000), (end, 0, 0, refuse), (end, 0, 0, allow)]  # a thread of this process
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    return libc.prctl(22, 2, ctypes.create_string_buffer(program), 0, 0) == 0
