"""NVLink counters of a node's GPUs, from NVIDIA's `pynvml`. They count data without headers."""

from collections.abc import Iterator
from typing import Any

from hpcbench.features.network.counters import Reading

_ALL_LINKS = 0xFFFFFFFF
_UNIT = 1024
"""Bytes of one unit of the counters."""


class NvLinks:
    """The NVLink counters of all GPUs that NVML shows to this process; none without `pynvml`, driver or NVLink."""

    def __init__(self) -> None:
        self._nvml, self._gpus = _find_gpus()

    def read(self) -> dict[str, Reading]:
        """Read the counters by GPU. GPUs without NVLink are left out."""
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
    """Return the library and the handles of the GPUs."""
    try:
        import pynvml
    except ImportError:
        return None, []
    try:
        pynvml.nvmlInit()
        return pynvml, [pynvml.nvmlDeviceGetHandleByIndex(k) for k in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return pynvml, []
