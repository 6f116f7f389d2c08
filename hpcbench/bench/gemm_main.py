"""``hpcbench bench gemm``: from options to a table and a file."""

import json
import os
import statistics
from pathlib import Path
from typing import Any

from hpcbench.errors import UserError
from hpcbench.predict.measured import PRODUCTS, SCHEMA

_PRECISIONS = ("fp32", "fp64", "bf16", "fp16")


def bench_gemm(
    *,
    site: str,
    device: str,
    precision: str,
    hidden: list[int],
    tokens: list[int],
    repeats: int,
    out: Path | None,
    beside: int = 0,
) -> int:
    """Measure, print and write ``measured/SITE/gemm.json``; gives the exit status.

    Raises
    ------
    UserError
        An option is wrong, or PyTorch or the GPU is missing.
    """
    if precision not in _PRECISIONS:
        raise UserError(f"--precision {precision}: is unknown: use {', '.join(_PRECISIONS)}")
    if device not in ("cpu", "gpu"):
        raise UserError(f"--device {device}: is unknown: use cpu or gpu")
    if beside < 0 or (beside and device == "gpu"):
        raise UserError(f"--beside {beside}: give 0 or more processes, and only with --device cpu")
    if repeats < 1 or min([*hidden, *tokens], default=0) < 2:
        raise UserError("--repeats, --hidden, --tokens: need at least 1 turn, and sizes of at least 2")
    try:
        import torch
    except ImportError:
        raise UserError("bench gemm: needs torch: pip install torch") from None
    if device == "gpu" and not torch.cuda.is_available():
        raise UserError(
            "--device gpu: PyTorch sees no GPU here: leave it out, or run it in a job on a node that has one"
        )
    from hpcbench.batch.files import now, write_json
    from hpcbench.bench import gemm, layers
    from hpcbench.bench.machine import machine
    from hpcbench.bench.progress import progress

    where = "cuda" if device == "gpu" else "cpu"
    name = torch.cuda.get_device_name() if where == "cuda" else machine()["cpu"]
    units = torch.cuda.get_device_properties(0).multi_processor_count if where == "cuda" else torch.get_num_threads()
    wanted, least = gemm.shapes(hidden, tokens), 0.02 if repeats > 1 else 0.0
    with progress(unit="products") as show:
        rows = gemm.measure_products(
            wanted, precision=precision, device=where, least=least, repeats=repeats, progress=show
        )
    memory = gemm.measure_memory([1 << 16, 1 << 20, 1 << 24], device=where, least=least, repeats=repeats)
    errors = gemm.left_out(rows, units)
    with layers.neighbours(beside, hidden=max(hidden), tokens=max(tokens)), progress(unit="layers") as show:
        steps = layers.measure_layers(hidden, tokens, precision=precision, device=where, repeats=repeats, progress=show)
        update = layers.measure_update(device=where, repeats=repeats)
    path = (out or Path("measured") / site) / PRODUCTS
    document = {
        "schema": SCHEMA,
        "device": name,
        "units": units,
        "threads": torch.get_num_threads(),
        "time": now(),
        "machine": machine(("torch", "numpy")),
        "cores": len(os.sched_getaffinity(0)),
        "products": rows,
        "memory": memory,
        "left_out": errors,
        "layers": steps,
        "update_s": update,
        "beside": beside,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, json.loads(json.dumps(document)))
    _show(rows, memory, errors, name)
    _show_layers(steps, update)
    print(path)
    return 0


def _show(
    rows: list[dict[str, object]], memory: list[dict[str, object]], errors: dict[str, list[float]], name: str
) -> None:
    from rich.table import Table
    from rich.text import Text

    from hpcbench.console import show_table

    table = Table(title=Text(f"Matrix products on {name}"), title_justify="left", box=None, pad_edge=False)
    for head in ("pass", "m", "n", "k", "us", "GFLOP/s"):
        table.add_column(head, justify="left" if head == "pass" else "right")
    for row in rows:
        m, n, k, seconds = (float(str(row[key])) for key in ("m", "n", "k", "seconds"))
        rate = 2 * m * n * k / seconds / 1e9
        table.add_row(str(row["pass"]), f"{m:.0f}", f"{n:.0f}", f"{k:.0f}", f"{seconds * 1e6:.1f}", f"{rate:.1f}")
    show_table(table)
    for row in memory:
        nbytes, seconds = float(str(row["bytes"])), float(str(row["seconds"]))
        print(f"{row['operation']} of {nbytes / 1e6:.3g} MB: {nbytes / seconds / 1e9:.2f} GB/s")
    for passage, those in errors.items():
        sizes = [abs(error) * 100 for error in those]
        print(f"leave-one-out error, {passage}: mean {statistics.mean(sizes):.1f} %, worst {max(sizes):.1f} %")


def _show_layers(steps: list[dict[str, Any]], update: float) -> None:
    for row in steps:
        tokens, how = row["micro_batch"] * row["seq_len"], row["positions"]
        if row["tp"] > 1:
            how += f", split {row['tp']} ways" + (", by positions" if row["sequence_parallel"] else "")
        what = f"layer of width {row['hidden']}, {tokens} positions ({how}), {row['pass']}"
        print(f"{what}: {row['seconds'] * 1e6:.0f} us")
    print(f"update of a parameter: {update * 1e9:.2f} ns")
