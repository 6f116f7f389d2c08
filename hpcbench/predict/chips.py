"""Dense peak FLOP/s of GPUs by precision, from vendor data sheets.

Peaks in `machines/chips.csv` are in TFLOP/s and exclude sparsity, which doubles the headline figures of data sheets.
The peaks include matrix units for every precision that the units support, because matrix libraries use them. fp32
excludes TF32, which PyTorch disables by default.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hpcbench.predict.tables import read_table


@dataclass(frozen=True)
class Chip:
    """A GPU, or a part of a GPU that PyTorch reports as a separate device."""

    name: str
    pattern: str
    """Regular expression for the full device name of PyTorch or of a site file. The names of GPU slices and variants
    begin with the name of the chip."""
    tflops: Mapping[str, float]
    """Dense peak in TFLOP/s for each supported precision."""
    source: str

    def peak(self, precision: str) -> float | None:
        """Return the dense peak in FLOP/s, or None if the chip does not support the precision."""
        tflops = self.tflops.get(precision)
        return tflops * 1e12 if tflops else None


def list_chips() -> list[Chip]:
    """Return all chips of the table."""
    precisions = ("fp16", "bf16", "fp32", "fp64")
    return [
        Chip(row["name"], row["pattern"], {name: float(row[name]) for name in precisions if row[name]}, row["source"])
        for row in read_table("chips.csv")
    ]


def find_chip(name: str) -> Chip | None:
    """Return the chip with this name in the table, in PyTorch or in a site file, or None if it is not in the table."""
    name = name.strip()
    return next((chip for chip in list_chips() if name == chip.name or re.fullmatch(chip.pattern, name)), None)
