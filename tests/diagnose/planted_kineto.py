"""Synthetic GPU traces with known answers, in Kineto's format."""

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

TP = ("1", "TENSOR_MODEL_PARALLEL_GROUP", [0, 1])
TYPES = {"Float": "f32", "BFloat16": "bf16", "Long": "i64"}


def kernel(begin: float, duration: float, name: str = "gemm", stream: int = 7) -> dict[str, Any]:
    """Return a compute kernel."""
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": 0,
        "tid": stream,
        "ts": begin,
        "dur": duration,
        "args": {"stream": stream},
    }


def collective(
    begin: float,
    duration: float,
    operation: str = "allreduce",
    n: int = 1000,
    dtype: str = "BFloat16",
    group: tuple[str, str, list[int]] = ("0", "default_pg", [0, 1]),
    stream: int = 40,
) -> dict[str, Any]:
    """Return an NCCL kernel. `n` is the number of elements of the whole vector."""
    name, description, ranks = group
    share = n // len(ranks)
    args = {
        "Collective name": operation,
        "dtype": dtype,
        "Group size": len(ranks),
        "Process Group Name": name,
        "In msg nelems": share if "gather" in operation else n,
        "Out msg nelems": share if "scatter" in operation else n,
        "Process Group Description": description,
        "Process Group Ranks": str(ranks),
    }
    kernel_name = f"ncclDevKernel_{operation}_Sum_{TYPES.get(dtype, 'u8')}_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    return {**kernel(begin, duration, kernel_name, stream), "args": {**args, "stream": stream}}


def steps(*bounds: float, first: int = 3) -> list[dict[str, Any]]:
    """Return annotations of successive steps, which begin and end at the given times."""
    return [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"ProfilerStep#{first + k}",
            "pid": 1,
            "tid": 1,
            "ts": begin,
            "dur": end - begin,
        }
        for k, (begin, end) in enumerate(pairwise(bounds))
    ]


def two_steps() -> list[dict[str, Any]]:
    """Return two steps of 1,000 us.

    In each step, a DP reduction takes 300 us. Computation covers 100 us of the reduction, and a TP gather overlaps with
    it for 60 us.
    """
    events = steps(0, 1000, 2000)
    for at in (0, 1000):
        events += [
            kernel(at, 500),
            kernel(at + 100, 300, stream=8),  # within the first kernel, so it covers nothing more
            collective(at + 400, 300, "reduce_scatter", n=4000),
            collective(at + 600, 60, "all_gather", n=800, group=TP, stream=41),
            kernel(at + 700, 250),
        ]
    return events


def shifted(events: list[dict[str, Any]], by: float) -> list[dict[str, Any]]:
    """Return the events as recorded by a clock that is ahead."""
    return [{**event, "ts": event["ts"] + by} for event in events]


def write(path: Path, events: list[dict[str, Any]], rank: int | None = 0, world: int = 2, indent: int = 1) -> Path:
    """Write a trace."""
    document: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU [x]"}]}
    if rank is not None:
        document["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world, "pg_config": []}
    document |= {"traceEvents": events, "traceName": str(path), "baseTimeNanoseconds": 1711964646000000000}
    text = json.dumps(document, indent=indent)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path
