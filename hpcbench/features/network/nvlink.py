"""NVLink counters of a node's GPUs, read with NVIDIA's `pynvml`. The counters exclude protocol headers."""

from collections.abc import Iterator
from typing import Any

from hpcbench.features.network.counters import Reading

_ALL_LINKS = 0xFFFFFFFF
_UNIT = 1024
"""Bytes per counter unit."""


class NvLinks:
    """NVLink counters of all GPUs that are visible to NVML.

    There are no counters if `pynvml`, the driver, or NVLink is missing.
    """

    def __init__(self) -> None:
        self._nvml, self._gpus = _find_gpus()

    def read(self) -> dict[str, Reading]:
        """Read the counters, keyed by GPU. GPUs without NVLink are omitted."""
        return dict(self._read())

    def _read(self) -> Iterator[tuple[str, Reading]]:
        for number, gpu in enumerate(self._gpus):
            nvml = self._nvml
            fields = (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX)
            try:
                values = nvml.nvmlDeviceGetFieldValues(gpu, [(field, _ALL_LINKS) for field in fields])
            except nvml.NVMLError:
                continue
            if all(value.nvmlReturn == nvml.NVML_SUCCESS for value in values):
                sent, received = (int(value.value.ullVal) * _UNIT for value in values)
                yield f"gpu{number}", Reading("nvlink", sent, received)


def _find_gpus() -> tuple[Any, list[Any]]:
    """Return the NVML library and the GPU handles."""
    try:
        import pynvml
    except ImportError:
        return None, []
    try:
        pynvml.nvmlInit()
        return pynvml, [pynvml.nvmlDeviceGetHandleByIndex(k) for k in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return pynvml, []
