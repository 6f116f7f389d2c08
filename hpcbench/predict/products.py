"""Matrix product speed by shape, interpolated from measured tables.

Efficiency is the fraction of the dense peak. Tile and wave quantization make efficiency discontinuous in the shape
(arXiv 2401.14489): a product of 109 tiles takes two waves on 108 multiprocessors. Half of this loss, on a logarithmic
scale, is removed before interpolation. Interpolation weights decrease with the distance in log m, log n and log k.
Outside the table, the nearest shapes are used.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from hpcbench.predict.basis import InputBasis
from hpcbench.predict.tables import read_table

_TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.97), (256, 64, 0.9), (64, 256, 0.9), (128, 64, 0.8))
"""Rows, columns and relative speed of the available tiles."""
_QUANTISATION = 0.5
"""Exponent of the removed tile and wave loss: 1 overstates the loss, because libraries split k; 0 understates it."""
_NEIGHBOURS = 6
_NEAR = 1e-3
"""Squared log distance below which neighbors have about the same interpolation weight."""
_ENOUGH = 20
"""Minimum number of points for a pass. With fewer points, points of the forward pass are used."""


class MeasuredProduct(NamedTuple):
    """A measured product ``[m, k] x [k, n]``."""

    m: int
    n: int
    k: int
    efficiency: float


@dataclass(frozen=True, eq=False)
class Products:
    """Measured products of one device, by pass: ``fwd``, ``dgrad`` or ``wgrad``."""

    points: tuple[tuple[str, tuple[MeasuredProduct, ...]], ...]
    units: int
    basis: InputBasis
    source: str

    def efficiency(self, m: int, n: int, k: int, passage: str = "fwd") -> float:
        """Return the interpolated fraction of the peak that a product reaches."""
        return _interpolate_efficiency(self, m, n, k, passage)

    def _get_points(self, passage: str) -> tuple[MeasuredProduct, ...]:
        table = dict(self.points)
        points = table.get(passage, ())
        return points if len(points) >= _ENOUGH or "fwd" not in table else table["fwd"]


@lru_cache(maxsize=65536)
def _interpolate_efficiency(products: Products, m: int, n: int, k: int, passage: str) -> float:
    return interpolate(products._get_points(passage), m, n, k, products.units)


def interpolate(points: Sequence[MeasuredProduct], m: int, n: int, k: int, units: int) -> float:
    """Return the efficiency at a shape: the mean over the nearest shapes, weighted by inverse squared distance.

    Raises
    ------
    ValueError
        `points` is empty.
    """
    if not points:
        raise ValueError("no measured products to interpolate between")
    x, y, z = math.log(m), math.log(n), math.log(k)
    near = sorted(((math.log(p.m) - x) ** 2 + (math.log(p.n) - y) ** 2 + (math.log(p.k) - z) ** 2, p) for p in points)[
        :_NEIGHBOURS
    ]
    total = value = 0.0
    for distance, p in near:
        weight = 1 / (distance + _NEAR)
        total += weight
        value += weight * math.log(p.efficiency / compute_fill(p.m, p.n, units) ** _QUANTISATION)
    return min(1.0, math.exp(value / total) * math.pow(compute_fill(m, n, units), _QUANTISATION))


@lru_cache(maxsize=65536)
def compute_fill(m: int, n: int, units: int) -> float:
    """Return the utilized fraction of the multiprocessors, excluding tile padding and idle slots in the last wave."""
    best = 0.0
    for rows, columns, speed in _TILES:
        down, across = -(-m // rows), -(-n // columns)
        waves = -(-down * across // units)
        best = max(best, speed * m * n / (rows * columns * waves * units))
    return best


@lru_cache(maxsize=8)
def read_published(family: str) -> Products | None:
    """Read a GPU family's table from `machines/gemm.csv`, or return None if the file does not contain the family."""
    peaks = {"V100": (125.0, 80), "A100": (312.0, 108), "H100": (989.4, 132)}
    if family not in peaks:
        return None
    peak, units = peaks[family]
    table: dict[str, list[MeasuredProduct]] = {}
    sources: dict[str, None] = {}
    for row in read_table("gemm.csv"):
        if not row["gpu"].startswith(family) or row["dtype"] == "fp8" or row["op"] == "best":
            continue
        if row["layout"] == "" or row["batch"] not in ("", "1"):
            continue  # Chart values, mostly measured with all-zero matrices, are upper bounds.
        shape = (int(row["m"]), int(row["n"]), int(row["k"]))
        passage = {"any": "fwd", "wgrad_fp32acc": "wgrad"}.get(row["op"], row["op"])
        table.setdefault(passage, []).append(MeasuredProduct(*shape, float(row["tflops"]) / peak))
        sources[row["source"].partition(",")[0]] = None
    points = tuple((passage, tuple(measured)) for passage, measured in table.items())
    return Products(points, units, InputBasis.ELSEWHERE, "; ".join(sources))
