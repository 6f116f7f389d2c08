"""Dense peak FLOP/s of GPUs by precision, from vendor data sheets.

Peaks exclude sparsity, which doubles the headline figures of data sheets. Matrix units count for every precision that
they support, because matrix libraries use them. fp32 excludes TF32, which PyTorch disables by default.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Chip:
    """A GPU, or a part of a GPU that PyTorch shows as a separate device."""

    name: str
    pattern: str
    """Regular expression for the full PyTorch device name. GPU slices and variants share the chip's prefix."""
    tflops: Mapping[str, float]
    """Dense peak in TFLOP/s for each supported precision."""
    source: str

    def peak(self, precision: str) -> float | None:
        """Return the dense peak in FLOP/s, or None if the chip does not support the precision."""
        tflops = self.tflops.get(precision)
        return tflops * 1e12 if tflops else None


def find_chip(name: str) -> Chip | None:
    """Return the chip with this PyTorch name, or None if it is not in the table."""
    return next((chip for chip in CHIPS if re.fullmatch(chip.pattern, name.strip())), None)


def _tflops(*, half: float, fp32: float, fp64: float, bf16: float | None = None) -> Mapping[str, float]:
    """Return peaks by precision. `bf16` defaults to `half`. A value of 0 removes a precision."""
    peaks = {"fp16": half, "bf16": half if bf16 is None else bf16, "fp32": fp32, "fp64": fp64}
    return MappingProxyType({precision: peak for precision, peak in peaks.items() if peak})


_V100 = "NVIDIA V100 data sheet (2020)"
_H100 = "NVIDIA H100 data sheet (2023), half of the figure with sparsity"
_H200 = "NVIDIA H200 data sheet (2024), half of the figure with sparsity"
_BLACKWELL = "NVIDIA Blackwell data sheet (2024), half of the figure with sparsity"

CHIPS = (
    Chip("V100 SXM2", r"Tesla V100-SXM2-(16|32)GB(-LS)?", _tflops(half=125, bf16=0, fp32=15.7, fp64=7.8), _V100),
    Chip("V100 SXM3", r"Tesla V100-SXM3-32GB(-H)?", _tflops(half=125, bf16=0, fp32=15.7, fp64=7.8), _V100),
    Chip("V100 PCIe", r"Tesla V100-PCIE-(16|32)GB", _tflops(half=112, bf16=0, fp32=14, fp64=7), _V100),
    Chip("V100S PCIe", r"Tesla V100S-PCIE-32GB", _tflops(half=130, bf16=0, fp32=16.4, fp64=8.2), _V100),
    Chip(
        "A100",
        r"(NVIDIA )?A100(-SXM4-(40|80)GB|-PCIE-(40|80)GB| 80GB PCIe)",
        _tflops(half=312, fp32=19.5, fp64=19.5),
        "NVIDIA A100 data sheet (2022); fp64 by its matrix units",
    ),
    Chip("H100 SXM", r"NVIDIA H100 80GB HBM3", _tflops(half=989.4, fp32=66.9, fp64=66.9), _H100),
    Chip("H100 PCIe", r"NVIDIA H100 PCIe", _tflops(half=756, fp32=51, fp64=51), _H100),
    Chip("H100 NVL", r"NVIDIA H100 NVL", _tflops(half=835.5, fp32=60, fp64=60), _H100),
    Chip("H200 SXM", r"NVIDIA H200", _tflops(half=989.4, fp32=66.9, fp64=66.9), _H200),
    Chip("H200 NVL", r"NVIDIA H200 NVL", _tflops(half=835.5, fp32=60, fp64=60), _H200),
    Chip(
        "GH200",
        r"(NVIDIA )?GH200 (120|144G|480|624)(GB)?( HBM3e?)?",
        _tflops(half=989.4, fp32=66.9, fp64=66.9),
        "NVIDIA GH200 data sheet (2023), half of the figure with sparsity",
    ),
    Chip("B200", r"NVIDIA B200", _tflops(half=2250, fp32=75, fp64=37), _BLACKWELL),
    Chip("GB200", r"NVIDIA GB200", _tflops(half=2500, fp32=80, fp64=40), _BLACKWELL),
    Chip(
        "MI100",
        r"(AMD )?(Instinct )?MI100",
        _tflops(half=184.6, bf16=92.3, fp32=46.1, fp64=11.5),
        "AMD Instinct MI100 brochure (2020)",
    ),
    Chip(
        "MI250X, one of its two dies",
        r"(AMD )?(Instinct )?MI250X(/MI250)?",
        _tflops(half=191.5, fp32=47.9, fp64=47.9),
        "AMD Instinct MI250X data sheet (2021), half of the package, which is two devices",
    ),
    Chip(
        "MI300A",
        r"(AMD )?(Instinct )?MI300A",
        _tflops(half=980.6, fp32=122.6, fp64=122.6),
        "AMD Instinct MI300A data sheet (2023)",
    ),
    Chip(
        "MI300X",
        r"(AMD )?(Instinct )?MI300X( OAM)?",
        _tflops(half=1307.4, fp32=163.4, fp64=163.4),
        "AMD Instinct MI300X data sheet (2023)",
    ),
)
