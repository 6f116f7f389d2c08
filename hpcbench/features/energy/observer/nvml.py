"""Energy counter of an NVIDIA GPU, read through NVML with NVIDIA's `pynvml`."""

from collections.abc import Callable
from typing import Any

from hpcbench.contract.event.machine import RankGpu
from hpcbench.features.energy.observer.counters import NoCounterError, Part


class GpuCounter:
    """Energy counter of one GPU (Volta or later), which starts when the driver is loaded.

    Parameters
    ----------
    handle
        Handle of the GPU.
    name
        UUID or PCI address of the GPU in NVML.
    """

    source = "nvml"
    part: Part = "gpu"
    span: float | None = None
    refresh = 0.1

    def __init__(self, handle: Any, name: str) -> None:
        self._handle, self.name = handle, name

    def read(self) -> float:
        """Return the current value in joules."""
        return float(_ask("", lambda nvml: nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))) / 1e3


def open_gpu_counter(about: RankGpu) -> GpuCounter:
    """Open the energy counter of a rank's GPU.

    Raises
    ------
    NoCounterError
        `pynvml` is not installed, NVML cannot find the GPU, or the GPU has no energy counter.
    """
    _ask("", lambda nvml: nvml.nvmlInit())
    if about.uuid:
        name = about.uuid if about.uuid.startswith(("GPU-", "MIG-")) else f"GPU-{about.uuid}"
        handle = _ask(f"{name}: ", lambda nvml: nvml.nvmlDeviceGetHandleByUUID(name))
    elif about.pci:
        name = f"{about.pci}.0"
        handle = _ask(f"{name}: ", lambda nvml: nvml.nvmlDeviceGetHandleByPciBusId(name))
    else:
        raise NoCounterError("PyTorch reports neither a UUID nor a PCI address of the GPU")
    counter = GpuCounter(handle, name)
    counter.read()
    return counter


def _ask(what: str, question: Callable[[Any], Any]) -> Any:
    """Call NVML. The import is local because ranks without a GPU do not need NVML."""
    try:
        import pynvml
    except ImportError:
        raise NoCounterError("pynvml is not installed: pip install nvidia-ml-py") from None
    try:
        return question(pynvml)
    except pynvml.NVMLError as error:
        raise NoCounterError(f"{what}NVML reports: {error}") from None
