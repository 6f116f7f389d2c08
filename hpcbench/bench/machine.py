"""Description of the machine used for a measurement."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hpcbench import __version__

_CPU_KEYS = ("model name", "cpu", "Hardware")
"""Fields of /proc/cpuinfo with the processor name on x86, POWER and some Arm systems."""


def find_cpu_model() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return next((fields[key] for key in _CPU_KEYS if fields.get(key)), platform.machine())


def describe_machine(packages: tuple[str, ...] = ("numpy", "ml_dtypes")) -> dict[str, Any]:
    """Return the processor name, the operating system, and package versions.

    Parameters
    ----------
    packages
        Python distributions whose versions are included if they are installed.
    """
    versions = {"hpcbench": __version__, "python": platform.python_version()}
    for name in packages:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "cpu": find_cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "versions": versions,
    }
