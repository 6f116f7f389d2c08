"""Time of core attention: fused kernels from a table, unfused kernels from matrix products and memory traffic."""

import math
from functools import lru_cache

from hpcbench.predict import constants
from hpcbench.predict.devices import DeviceSpec
from hpcbench.predict.products import Products
from hpcbench.predict.tables import read_table


def time_fused_attention(
    device: DeviceSpec, *, kernel: str, seq_len: int, head_dim: int, flops: float, precision: str
) -> float:
    """Return the time in seconds of `flops` operations in a fused causal kernel, ``FA1``, ``FA2`` or ``FA3``.

    `flops` must be half of the operations of unmasked attention. FlashAttention 1 was measured only on an A100. The
    speed of FlashAttention 1 relative to FlashAttention 2 is assumed to be the same on other GPUs. FlashAttention 3
    also represents cuDNN's kernels, which are equally fast. FlashAttention 3 is available only on an H100. Other GPUs
    run FlashAttention 2. Devices without a table, such as a V100 or a CPU, are assumed to run at half the rate of large
    matrix products.
    """
    peak = device.peak(precision)
    if precision not in ("fp16", "bf16"):
        return flops / (0.35 * peak)
    # Another device of the family reaches the same fraction of its peak.
    flops *= constants.ATTENTION_TFLOPS.get(device.family, peak / 1e12) * 1e12 / (peak * device.product_share)
    curve = _curve(device.family, kernel, head_dim)
    if curve:
        return flops / _rate(curve, seq_len)
    second_curve = _curve(device.family, "FA2", head_dim)
    if not second_curve:
        return flops / (0.35 * peak)
    if kernel == "FA3":
        return flops / _rate(second_curve, seq_len)
    slowdown = _rate(_curve("A100", "FA2", head_dim), seq_len) / _rate(_curve("A100", kernel, head_dim), seq_len)
    return slowdown * flops / _rate(second_curve, seq_len)


def _rate(curve: tuple[tuple[float, float], ...], seq_len: int) -> float:
    """Return the FLOP/s at a sequence length, by log-log interpolation."""
    x = math.log(seq_len)
    below = max((point for point in curve if point[0] <= x), default=curve[0])
    above = min((point for point in curve if point[0] >= x), default=curve[-1])
    share = 0.0 if above[0] == below[0] else (x - below[0]) / (above[0] - below[0])
    return math.exp(below[1] + share * (above[1] - below[1])) * 1e12


@lru_cache(maxsize=32)
def _curve(family: str, kernel: str, head_dim: int) -> tuple[tuple[float, float], ...]:
    """Return sorted (log length, log TFLOP/s) pairs of a causal kernel at the nearest measured head size."""
    rates = _read_rates(family, kernel, "64" if head_dim < 96 else "128")
    combined = {seq: rate for (passage, causal, seq), rate in rates.items() if (passage, causal) == ("fwd+bwd", "1")}
    if not combined:  # Passes were measured separately, and the backward pass only without a mask.
        for (passage, causal, seq), backward in rates.items():
            forward, unmasked = rates.get(("fwd", "1", seq)), rates.get(("fwd", "0", seq))
            if (passage, causal) == ("bwd", "0") and forward and unmasked:
                combined[seq] = 3.5 / (1 / forward + 2.5 / (backward * forward / unmasked))
    return tuple(sorted((math.log(seq), math.log(rate)) for seq, rate in combined.items()))


def _read_rates(family: str, kernel: str, head_dim: str) -> dict[tuple[str, str, int], float]:
    """Return the TFLOP/s of a kernel, keyed by pass, mask and length."""
    return {
        (row["pass"], row["causal"], int(row["seq"])): float(row["tflops"])
        for row in read_table("attention.csv")
        if (row["gpu"], row["kernel"], row["head_dim"]) == (family, kernel, head_dim)
    }


def time_unfused_product(
    products: Products, device: DeviceSpec, *, batch_heads: int, m: int, n: int, k: int, precision: str
) -> float:
    """Return the time in seconds of a batch of m x n x k products, one per head, with scores [m, n] in memory.

    The shorter of the arithmetic time and the memory time is partly hidden (`NOT_HIDDEN`).
    """
    flops = 2.0 * batch_heads * m * n * k
    # A batch fills the device like a single product with the heads side by side.
    arithmetic = flops / (device.peak(precision) * products.efficiency(m, n * max(1, batch_heads // 4), k))
    square = batch_heads * max(m * n, m * k) * 2 / device.copy_bytes_per_s
    return max(arithmetic, square) + constants.NOT_HIDDEN * min(arithmetic, square)
