"""Machine facts of a run: processors, clock frequencies, loaded modules, packages, and revision.

The facts are recorded so that differences between results can be explained later. Facts that cannot be detected are
omitted.
"""

import os
import platform
import re
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mpi4py import MPI

from hpcbench import versions

_CPU = Path("/sys/devices/system/cpu/cpu0/cpufreq")
_GPU_FIELDS = {
    "name": "name",
    "uuid": "uuid",
    "driver_version": "driver",
    "clocks.sm": "clock_mhz",
    "clocks.max.sm": "max_clock_mhz",
    "clocks.mem": "memory_clock_mhz",
    "power.limit": "power_limit_w",
    "compute_mode": "compute_mode",
}
"""Queried fields of nvidia-smi, mapped to names in the log. A call of nvidia-smi can be killed if the driver hangs."""


def job(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return facts that are the same on all ranks: loaded modules, package versions, and the hpcbench revision."""
    facts: dict[str, Any] = {"packages": versions.packages()}
    if modules := [name for name in environment.get("LOADEDMODULES", "").split(":") if name]:
        facts["modules"] = modules
    if revision := versions.package_revision():
        facts["revision"] = revision
    return facts


def hosts(comm: MPI.Comm, *, gpus: bool) -> list[dict[str, Any]]:
    """Return the processors of each host, ordered by first rank (a collective call).

    Parameters
    ----------
    gpus
        Whether to include GPUs.
    """
    names = comm.allgather(socket.gethostname())
    first = names.index(names[comm.rank]) == comm.rank
    everyone = comm.allgather({"host": names[comm.rank], **host(gpus=gpus)} if first else None)
    return [entry for entry in everyone if entry is not None]


def host(*, gpus: bool, cpu_info: Path = Path("/proc/cpuinfo"), scaling: Path = _CPU) -> dict[str, Any]:
    """Return the processors of this host."""
    facts: dict[str, Any] = {"kernel": platform.release()}
    cpu_text = _read(cpu_info)
    # the field is "model name" on x86 and "cpu" on POWER, and both may be missing on Arm
    if named := re.search(r"^(?:model name|cpu)\s*:\s*(.+)$", cpu_text, re.MULTILINE):
        facts["cpu"] = named[1].strip()
    if clocks := [float(clock) for clock in re.findall(r"^(?:cpu MHz|clock)\s*:\s*([0-9.]+)", cpu_text, re.MULTILINE)]:
        facts["cpu_mhz"] = round(sum(clocks) / len(clocks), 1)
    if governor := _read(scaling / "scaling_governor").strip():
        facts["governor"] = governor
    if (highest := _read(scaling / "scaling_max_freq").strip()).isdecimal():
        facts["cpu_max_mhz"] = int(highest) / 1000
    if gpus and (devices := _gpus()):
        facts["gpus"] = devices
    return facts


def _gpus() -> list[dict[str, str | float]]:
    query = ",".join(_GPU_FIELDS)
    try:
        output = subprocess.run(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=30,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return []
    return devices(output.stdout) if output.returncode == 0 else []


def devices(output: str) -> list[dict[str, str | float]]:
    """Parse the output of nvidia-smi, which contains one GPU per line. Unavailable fields are omitted."""
    rows = [[value.strip() for value in line.split(",")] for line in output.splitlines() if line.strip()]
    return [
        {name: _value(value) for name, value in zip(_GPU_FIELDS.values(), row, strict=True) if not _absent(value)}
        for row in rows
        if len(row) == len(_GPU_FIELDS)
    ]


def _absent(value: str) -> bool:
    return not value or value.startswith("[")  # [N/A], [Not Supported], [Unknown Error]


def _value(value: str) -> str | float:
    return float(value) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", value) else value


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
