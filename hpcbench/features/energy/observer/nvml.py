"""The energy counter of an NVIDIA GPU, by the driver's own library: no package is needed."""

import ctypes
from functools import cache
from typing import Any

from hpcbench.contract.event.machine import RankGpu
from hpcbench.features.energy.observer.counters import NoCounterError, Part

_LIBRARY = "libnvidia-ml.so.1"


class GpuCounter:
    """The counter of one GPU, from Volta on: millijoules since the driver was loaded.

    Parameters
    ----------
    library
        NVML, initialized.
    handle
        Handle of the GPU.
    name
        By which it is known.
    """

    source = "nvml"
    part: Part = "gpu"
    span: float | None = None
    refresh = 0.1

    def __init__(self, library: Any, handle: Any, name: str) -> None:
        self._library, self._handle, self.name = library, handle, name

    def read(self) -> float:
        """Joules that the counter shows now."""
        found = ctypes.c_ulonglong()
        _check(self._library, self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle, ctypes.byref(found)))
        return found.value / 1e3


def gpu(about: RankGpu, library: Any = None) -> GpuCounter:
    """The counter of the GPU that a rank computes on.

    Raises
    ------
    NoCounterError
        The GPU is not known to NVML, or has no counter.
    """
    nvml = library or _nvml()
    handle = ctypes.c_void_p()
    if about.uuid:
        name = about.uuid if about.uuid.startswith(("GPU-", "MIG-")) else f"GPU-{about.uuid}"
        status = nvml.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
    elif about.pci:
        name = f"{about.pci}.0"
        status = nvml.nvmlDeviceGetHandleByPciBusId_v2(name.encode(), ctypes.byref(handle))
    else:
        raise NoCounterError("PyTorch does not say which GPU it is")
    _check(nvml, status, f"{name}: ")
    counter = GpuCounter(nvml, handle, name)
    counter.read()
    return counter


@cache
def _nvml() -> Any:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        raise NoCounterError(f"{_LIBRARY}: not found") from None
    library.nvmlErrorString.restype = ctypes.c_char_p
    _check(library, library.nvmlInit_v2())
    return library


def _check(library: Any, status: int, what: str = "") -> None:
    if status:
        words = library.nvmlErrorString(status)
        raise NoCounterError(f"{what}NVML says {words.decode(errors='replace') if words else status}")
