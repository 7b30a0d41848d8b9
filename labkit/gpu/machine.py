"""Describes the machine that is measured, without any path, host name or user name."""

import json
import os
import platform
import re
import subprocess
from contextlib import suppress
from pathlib import Path

import torch

from labkit import device as devices
from labkit.device.machine import cpu_name
from labkit.files import short_digest


def describe(device: torch.device) -> dict:
    """Return {field: value} of the machine: the fields of the ledger's `Machine`, and some more.

    On a GPU, the versions of CUDA and cuDNN and the GPU's generation are added.

    device  the GPU, or the CPU where there is none
    """
    facts = {
        "cpu": cpu_name(),
        "logical_cores": devices.usable_cores(),
        "cpu_isa": " ".join(devices.cpu_isa()) or None,
        "ram_bytes": _ram_bytes(),
        **(_gpu_facts(device) if device.type == "cuda" else {}),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torch_threads": torch.get_num_threads(),
    }
    return {"machine_key": short_digest(json.dumps(facts, sort_keys=True)), **facts}


def _gpu_facts(device):
    """Return {field: value} of the GPU: name, memory, generation, versions of the software."""
    properties = torch.cuda.get_device_properties(device)
    return {
        "gpu": properties.name,
        "gpu_memory_bytes": properties.total_memory,
        "gpu_driver": driver_version(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "instructions": f"sm_{properties.major}{properties.minor}",
    }


def driver_version() -> str | None:
    """Return the version of NVIDIA's driver, such as "580.65.06"; None where it cannot be found."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    with suppress(OSError, subprocess.SubprocessError):
        completed = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        words = completed.stdout.split()
        return words[0] if words else None
    with suppress(OSError):
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
        match = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", text)
        return match.group() if match else None
    return None


def _ram_bytes():
    """Return the bytes of main memory; None where the system does not say."""
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None
