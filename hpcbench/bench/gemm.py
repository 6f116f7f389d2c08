"""Matrix products and copies on this machine: what `hpcbench predict` takes in place of tables of other machines.

Products are of the shapes of a transformer's layers at several sizes: the forward pass, and the gradients of input and
weight, in PyTorch as training makes them.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from hpcbench.predict.products import MeasuredProduct, interpolate

PASSES = ("fwd", "dgrad", "wgrad")


class Shape(NamedTuple):
    """A product ``[m, k] x [k, n]`` of one pass."""

    passage: str
    m: int
    n: int
    k: int


def shapes(sizes: Sequence[int], tokens: Sequence[int]) -> list[Shape]:
    """Products of layers of these hidden sizes, whole and cut in two: QKV, output, and both of the MLP."""
    found: dict[Shape, None] = {}
    for h in sizes:
        for t in tokens:
            for out, into in ((3 * h, h), (h, h), (4 * h, h), (h, 4 * h), (2 * h, h), (h, h // 2)):
                found[Shape("fwd", t, out, into)] = None
                found[Shape("dgrad", t, into, out)] = None
                found[Shape("wgrad", out, into, t)] = None
    return list(found)


def seconds_of(call: Callable[[], object], wait: Callable[[], object], *, least: float, repeats: int) -> float:
    """The least mean of `repeats` turns, each so many calls that it lasts `least` seconds."""
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
    wanted: Sequence[Shape],
    *,
    precision: str,
    device: str,
    least: float,
    repeats: int,
    progress: Callable[[int, int, str], object] = lambda done, total, name: None,
) -> list[dict[str, Any]]:
    """Seconds of each product, with random values: constant ones let a GPU run at a higher clock."""
    dtype = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    rows = []
    for done, shape in enumerate(wanted):
        progress(done, len(wanted), f"{shape.m} x {shape.n} x {shape.k}")
        left, right = _operands(shape, dtype, device)
        out = torch.empty(shape.m, shape.n, dtype=dtype, device=device)
        seconds = seconds_of(
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


def _operands(shape: Shape, dtype: torch.dtype, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """As a linear layer has them: its weight is transposed forward, the input in the gradient of the weight."""
    _, m, n, k = shape
    if shape.passage == "fwd":
        return torch.randn(m, k, device=device).to(dtype), torch.randn(n, k, device=device).to(dtype).t()
    if shape.passage == "dgrad":
        return torch.randn(m, k, device=device).to(dtype), torch.randn(k, n, device=device).to(dtype)
    return torch.randn(k, m, device=device).to(dtype).t(), torch.randn(k, n, device=device).to(dtype)


def measure_memory(sizes: Sequence[int], *, device: str, least: float, repeats: int) -> list[dict[str, Any]]:
    """Copy, sum and norm of vectors of so many float32 values: bytes that they read and write, and seconds."""
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
            seconds = seconds_of(call, wait, least=least, repeats=repeats)
            rows.append({"operation": name, "bytes": nbytes, "seconds": seconds})
    return rows


def left_out(rows: Sequence[dict[str, Any]], units: int) -> dict[str, list[float]]:
    """By pass, relative errors of each product's time when the other products predict it."""
    rates = [2.0 * row["m"] * row["n"] * row["k"] / row["seconds"] for row in rows]
    peak = max(rates)
    points: dict[str, list[MeasuredProduct]] = {}
    for row, rate in zip(rows, rates, strict=True):
        points.setdefault(row["pass"], []).append(MeasuredProduct(row["m"], row["n"], row["k"], rate / peak))
    return {
        passage: [
            point.efficiency / interpolate([*those[:i], *those[i + 1 :]], point.m, point.n, point.k, units) - 1
            for i, point in enumerate(those)
        ]
        for passage, those in points.items()
        if len(those) > 1
    }
