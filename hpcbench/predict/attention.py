"""How fast the core of attention is: fused kernels by table, unfused by its products and what they write."""

import csv
import math
from functools import lru_cache

from hpcbench.predict.constants import NOT_HIDDEN
from hpcbench.predict.devices import DeviceSpec
from hpcbench.predict.products import TABLES, Products


def time_fused_attention(
    device: DeviceSpec, *, kernel: str, seq_len: int, head_dim: int, flops: float, precision: str
) -> float:
    """Seconds of `flops` operations, causal ones counted half, in a fused kernel: ``FA1`` or ``FA2``.

    The first FlashAttention is known on an A100 alone; elsewhere it is slower than the second one as it is there. Where
    the kernel has no table, as on a V100 and on CPUs, it has half of the rate of large products.
    """
    peak = device.peak(precision)
    if precision not in ("fp16", "bf16"):
        return flops / (0.35 * peak)
    curve = _curve(device.family, kernel, head_dim)
    if curve:
        return flops / _rate(curve, seq_len)
    usual = _curve(device.family, "FA2", head_dim)
    if not usual:
        return flops / (0.35 * peak)
    slower = _rate(_curve("A100", "FA2", head_dim), seq_len) / _rate(_curve("A100", kernel, head_dim), seq_len)
    return slower * flops / _rate(usual, seq_len)


def _rate(curve: tuple[tuple[float, float], ...], seq_len: int) -> float:
    """FLOP/s at a length, linear in both logarithms."""
    x = math.log(seq_len)
    below = max((point for point in curve if point[0] <= x), default=curve[0])
    above = min((point for point in curve if point[0] >= x), default=curve[-1])
    share = 0.0 if above[0] == below[0] else (x - below[0]) / (above[0] - below[0])
    return math.exp(below[1] + share * (above[1] - below[1])) * 1e12


@lru_cache(maxsize=32)
def _curve(family: str, kernel: str, head_dim: int) -> tuple[tuple[float, float], ...]:
    """Logarithms of the length and of TFLOP/s, of a causal kernel at the nearest head size."""
    nearest = "64" if head_dim < 96 else "128"
    found = []
    with (TABLES / "attention.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if (row["gpu"], row["kernel"], row["pass"]) != (family, kernel, "fwd+bwd"):
                continue
            if (row["head_dim"], row["causal"]) == (nearest, "1"):
                found.append((math.log(int(row["seq"])), math.log(float(row["tflops"]))))
    return tuple(sorted(found))


def time_unfused_product(
    products: Products, device: DeviceSpec, *, batch_heads: int, m: int, n: int, k: int, precision: str
) -> float:
    """Seconds of a batch of products of one head each; scores of m x n are written, or read, from memory.

    The memory's time is hidden behind the arithmetic in part.
    """
    flops = 2.0 * batch_heads * m * n * k
    # a batch fills the device: efficiency is that of one product with the heads side by side
    arithmetic = flops / (device.peak(precision) * products.efficiency(m, n * max(1, batch_heads // 4), k))
    square = batch_heads * max(m * n, m * k) * 2 / device.copy_bytes_per_s
    return max(arithmetic, square) + NOT_HIDDEN * min(arithmetic, square)
