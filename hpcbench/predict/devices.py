"""Compute devices: peaks and memory from data sheets, and published bandwidths."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcbench.predict import constants
from hpcbench.predict.basis import InputBasis
from hpcbench.predict.chips import list_chips
from hpcbench.predict.tables import read_table


@dataclass(frozen=True)
class DeviceSpec:
    """A GPU, or a rank's share of a node's cores."""

    name: str
    family: str
    """Family of the tables that apply: ``V100``, ``A100``, ``H100``, or ``assume_cpu``."""
    tflops: Mapping[str, float] = field(hash=False)
    """Dense peak in TFLOP/s for each precision."""
    units: int
    """Number of streaming multiprocessors or cores over which the tiles of a product are distributed."""
    memory_bytes: float | None
    """Memory in bytes, or None if unknown."""
    copy_bytes_per_s: float
    """Memory bandwidth of a large copy, counting bytes read and written."""
    link_bytes_per_s: float
    """One-way bandwidth from one device to the other devices in the node."""
    basis: InputBasis
    """Source of `copy_bytes_per_s`."""
    source: str
    links: str = ""
    """Family of the measured links within a node, or an empty string if the nominal bandwidth is used."""
    product_share: float = 1.0
    """Fraction of the peak that products and attention reach, relative to the family's table."""

    def peak(self, precision: str) -> float:
        """Return the dense peak in FLOP/s. For unsupported precisions, the fp32 peak is returned."""
        return (self.tflops.get(precision) or self.tflops["fp32"]) * 1e12


def find_device(name: str, memory_gb: float | None = None) -> DeviceSpec | None:
    """Return the GPU with this name in the site file, in any case, or None if it is not in the table.

    Parameters
    ----------
    memory_gb
        Device memory according to the site, or None for the usual size.
    """
    for row in read_table("devices.csv"):
        if re.search(rf"(?<![A-Z]){row['pattern']}", name, re.IGNORECASE):
            chip = next(chip for chip in list_chips() if chip.name == row["chip"])
            return DeviceSpec(
                chip.name,
                row["family"],
                chip.tflops,
                int(row["units"]),
                (memory_gb or float(row["memory_gb"])) * 1e9,
                float(row["copy_gb_s"]) * 1e9,
                float(row["link_gb_s"]) * 1e9,
                InputBasis(row["basis"]),
                f"{chip.source}; {row['source']}",
                row["links"],
                float(row["product_share"]),
            )
    return None


def list_gpus() -> list[str]:
    """List the GPUs in the table, without variants."""
    return list(dict.fromkeys(re.split(r"\W", row["pattern"])[0] for row in read_table("devices.csv")))


def assume_cpu(cores: int, memory_bytes: float | None) -> DeviceSpec:
    """Return a rank's share of a node's cores, with assumed speeds."""
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
        "assumed: to measure, run `hpcbench bench gemm`",
    )
