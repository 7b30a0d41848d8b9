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
    """Return the properties of this machine: {field: value}.

    The fields are those of the ledger's `Machine`. On a GPU these are added: the versions of CUDA
    and cuDNN, and the generation of the GPU.

    device  the GPU, or the CPU if there is none
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
    """Return the properties of the GPU: {field: value}.

    They are its name, memory and generation, and the versions of driver, CUDA and cuDNN.
    """
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
    """Return the version of NVIDIA's driver, such as "580.65.06"; None if it is unknown."""
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
    """Return the size of the main memory in bytes; None if the system does not say."""
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None
