"""Times of matrix products and copies on this machine, for `hpcbench predict`.

Product shapes are taken from transformer layers of several sizes: the forward pass, and input and weight gradients.
PyTorch runs the products as in training.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from hpcbench.predict.products import MeasuredProduct, interpolate


class ProductShape(NamedTuple):
    """A product ``[m, k] x [k, n]`` of one pass."""

    passage: str
    m: int
    n: int
    k: int


def list_shapes(sizes: Sequence[int], tokens: Sequence[int]) -> list[ProductShape]:
    """List the products of QKV, output and MLP layers with these hidden sizes, on one rank and split between two."""
    shapes: dict[ProductShape, None] = {}
    for h in sizes:
        for t in tokens:
            for out, into in ((3 * h, h), (h, h), (4 * h, h), (h, 4 * h), (2 * h, h), (h, h // 2)):
                shapes[ProductShape("fwd", t, out, into)] = None
                shapes[ProductShape("dgrad", t, into, out)] = None
                shapes[ProductShape("wgrad", out, into, t)] = None
    return list(shapes)


def time_call(call: Callable[[], object], wait: Callable[[], object], *, least: float, repeats: int) -> float:
    """Return the time of a call in seconds: the lowest mean of `repeats` turns, each at least `least` seconds long."""
    call()
    wait()
    begin = time.perf_counter()
    call()
    wait()
    once = max(time.perf_counter() - begin, 1e-7)
    calls = max(1, min(1000, math.ceil(least / once)))
    best = math.inf
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        best = min(best, (time.perf_counter() - begin) / calls)
    return best


def measure_products(
    wanted: Sequence[ProductShape],
    *,
    precision: str,
    device: str,
    least: float,
    repeats: int,
    progress: Callable[[int, int, str], object] = lambda done, total, name: None,
) -> list[dict[str, Any]]:
    """Measure the time of each product in seconds.

    Values are random, because a GPU clocks higher on constant values.
    """
    dtype = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    rows = []
    for done, shape in enumerate(wanted):
        progress(done, len(wanted), f"{shape.m} x {shape.n} x {shape.k}")
        left, right = _make_operands(shape, dtype, device)
        out = torch.empty(shape.m, shape.n, dtype=dtype, device=device)
        seconds = time_call(
            lambda left=left, right=right, out=out: torch.matmul(left, right, out=out),  # type: ignore[misc]
            wait,
            least=least,
            repeats=repeats,
        )
        rows.append(
            {
                "pass": shape.passage,
                "precision": precision,
                "m": shape.m,
                "n": shape.n,
                "k": shape.k,
                "seconds": seconds,
            }
        )
    progress(len(wanted), len(wanted), "")
    return rows


def _make_operands(shape: ProductShape, dtype: torch.dtype, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Create operands as in a linear layer. The weight (`fwd`) and the left operand (`wgrad`) are transposed views."""
    _, m, n, k = shape
    if shape.passage == "fwd":
        return torch.randn(m, k, device=device).to(dtype), torch.randn(n, k, device=device).to(dtype).t()
    if shape.passage == "dgrad":
        return torch.randn(m, k, device=device).to(dtype), torch.randn(k, n, device=device).to(dtype)
    return torch.randn(k, m, device=device).to(dtype).t(), torch.randn(k, n, device=device).to(dtype)


def measure_memory(sizes: Sequence[int], *, device: str, least: float, repeats: int) -> list[dict[str, Any]]:
    """Measure a copy, a sum and a layer norm of float32 vectors: bytes read and written, and time in seconds."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    rows = []
    for n in sizes:
        x = torch.randn(n, device=device)
        y, z, weight = torch.empty_like(x), torch.randn(n, device=device), torch.ones(1024, device=device)
        grid, shape = x.view(-1, 1024), (1024,)
        calls: dict[str, tuple[int, Callable[[], object]]] = {
            "copy": (8 * n, lambda x=x, y=y: y.copy_(x)),  # type: ignore[misc]
            "add": (12 * n, lambda x=x, y=y, z=z: torch.add(x, z, out=y)),  # type: ignore[misc]
            "layer norm": (
                8 * n,
                lambda grid=grid, weight=weight, shape=shape: torch.nn.functional.layer_norm(  # type: ignore[misc]
                    grid, shape, weight, weight
                ),
            ),
        }
        for name, (nbytes, call) in calls.items():
            seconds = time_call(call, wait, least=least, repeats=repeats)
            rows.append({"operation": name, "bytes": nbytes, "seconds": seconds})
    return rows


def list_left_out_errors(rows: Sequence[dict[str, Any]], units: int) -> dict[str, list[float]]:
    """Predict each product's time from the other products. Return the relative errors, keyed by pass."""
    rates = [2.0 * row["m"] * row["n"] * row["k"] / row["seconds"] for row in rows]
    peak = max(rates)
    points: dict[str, list[MeasuredProduct]] = {}
    for row, rate in zip(rows, rates, strict=True):
        points.setdefault(row["pass"], []).append(MeasuredProduct(row["m"], row["n"], row["k"], rate / peak))
    return {passage: leave_each_out(those, units) for passage, those in points.items() if len(those) > 1}


def leave_each_out(points: Sequence[MeasuredProduct], units: int, least_flops: float = 0.0) -> list[float]:
    """Predict the time of each product of at least `least_flops` from the others. Return the relative errors."""
    return [
        point.efficiency / interpolate([*points[:i], *points[i + 1 :]], point.m, point.n, point.k, units) - 1
        for i, point in enumerate(points)
        if 2.0 * point.m * point.n * point.k >= least_flops
    ]
