"""Devices that ranks compute on: peaks and memory from data sheets, bandwidth as published."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcbench.predict import constants
from hpcbench.predict.basis import InputBasis
from hpcbench.predict.chips import CHIPS


@dataclass(frozen=True)
class DeviceSpec:
    """A GPU, or a rank's share of the cores of a node."""

    name: str
    family: str
    """Family of the tables that apply: ``V100``, ``A100``, ``H100``, or ``assume_cpu``."""
    tflops: Mapping[str, float] = field(hash=False)
    """Dense peak in TFLOP/s for each precision."""
    units: int
    """Number of streaming multiprocessors, or of cores, among which the tiles of a product are divided."""
    memory_bytes: float | None
    """Memory in bytes; None if unknown."""
    copy_bytes_per_s: float
    """Memory bandwidth of a large copy, bytes read and written."""
    link_bytes_per_s: float
    """Bandwidth from one device to the others of its node, one way."""
    basis: InputBasis
    """Source of `copy_bytes_per_s`."""
    source: str

    def peak(self, precision: str) -> float:
        """Return the dense peak in FLOP/s; that of fp32 for a precision that the device lacks."""
        return (self.tflops.get(precision) or self.tflops["fp32"]) * 1e12


_SHEETS = (
    # pattern of a site's or PyTorch's name, chip of chips.py, family, SMs, memory GB, copy GB/s, link GB/s, basis
    (r"V100.*32", "V100 SXM2", "V100", 80, 32, 770, 75, InputBasis.ELSEWHERE),
    (r"V100", "V100 SXM2", "V100", 80, 16, 770, 75, InputBasis.ELSEWHERE),
    (r"A100.*40", "A100", "A100", 108, 40, 1350, 300, InputBasis.SHEET),
    (r"A100", "A100", "A100", 108, 80, 1610, 300, InputBasis.ELSEWHERE),
    (r"H200", "H200 SXM", "H100", 132, 141, 4010, 450, InputBasis.ELSEWHERE),
    (r"GH200", "GH200", "H100", 132, 96, 3300, 450, InputBasis.SHEET),
    (r"H100", "H100 SXM", "H100", 132, 80, 2900, 450, InputBasis.ELSEWHERE),
    (r"MI250X", "MI250X, one of its two dies", "A100", 110, 64, 1200, 50, InputBasis.SHEET),
    (r"MI300A", "MI300A", "H100", 228, 128, 3500, 128, InputBasis.SHEET),
    (r"MI300X", "MI300X", "H100", 304, 192, 3700, 128, InputBasis.SHEET),
)


def find_device(name: str, memory_gb: float | None = None) -> DeviceSpec | None:
    """Return the GPU with this name in the site file; None if it is not in the table.

    Parameters
    ----------
    memory_gb
        Memory of the device as given by the site; None for the usual size.
    """
    for pattern, chip_name, family, units, memory, copy, link, basis in _SHEETS:
        if re.search(rf"(?<![A-Z]){pattern}", name):
            chip = next(chip for chip in CHIPS if chip.name == chip_name)
            size = (memory_gb or memory) * 1e9
            return DeviceSpec(chip.name, family, chip.tflops, units, size, copy * 1e9, link * 1e9, basis, chip.source)
    return None


def assume_cpu(cores: int, memory_bytes: float | None) -> DeviceSpec:
    """Return a rank's share of the cores of a node without measurements."""
    peak = constants.CPU_FLOPS_A_CORE * cores / 1e12
    return DeviceSpec(
        f"{cores} cores",
        "cpu",
        {"fp32": peak, "fp64": peak / 2, "bf16": peak / 2, "fp16": peak / 4},
        cores,
        memory_bytes,
        constants.CPU_BYTES_PER_S_A_CORE * cores,
        constants.CPU_BYTES_PER_S_A_CORE * cores / 2,
        InputBasis.ASSUMED,
        "assumed: measure with `hpcbench bench gemm`",
    )
