"""Command ``hpcbench bench gemm``, from options to a table and a file."""

import json
import os
import statistics
from operator import itemgetter
from pathlib import Path
from typing import Any

from hpcbench.errors import UserError
from hpcbench.predict.measured_tables import PRODUCTS, SCHEMA
from hpcbench.present.document import Document, Field, make_chapter, tabulate
from hpcbench.present.notation import figure_column, integer, text_column

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
    """Measure, print the results, write them to ``measured/SITE/gemm.json``, and return the exit status.

    Raises
    ------
    UserError
        An option is wrong, or PyTorch or the GPU is missing.
    """
    if precision not in _PRECISIONS:
        raise UserError(f"--precision {precision}: is unknown. Use {', '.join(_PRECISIONS)}")
    if device not in ("cpu", "gpu"):
        raise UserError(f"--device {device}: is unknown. Use cpu or gpu")
    if beside < 0 or (beside and device == "gpu"):
        raise UserError(f"--beside {beside}: must be 0 or more, and requires --device cpu")
    if repeats < 1 or min([*hidden, *tokens], default=0) < 2:
        raise UserError("--repeats, --hidden, --tokens: need at least 1 repeat, and sizes of at least 2")
    try:
        import torch
    except ImportError:
        raise UserError("bench gemm: needs PyTorch. Install it with `pip install torch`") from None
    if device == "gpu" and not torch.cuda.is_available():
        raise UserError(
            "--device gpu: PyTorch detects no GPU here. Leave --device out, or run this command in a job on a node "
            "with a GPU"
        )
    from hpcbench.batch.files import now, write_json
    from hpcbench.bench import gemm, layers
    from hpcbench.bench.machine import describe_machine
    from hpcbench.bench.progress import progress
    from hpcbench.present import rich_text

    where = "cuda" if device == "gpu" else "cpu"
    name = torch.cuda.get_device_name() if where == "cuda" else describe_machine()["cpu"]
    units = torch.cuda.get_device_properties(0).multi_processor_count if where == "cuda" else torch.get_num_threads()
    wanted, least = gemm.list_shapes(hidden, tokens), 0.02 if repeats > 1 else 0.0
    with progress(unit="products") as show:
        rows = gemm.measure_products(
            wanted, precision=precision, device=where, least=least, repeats=repeats, progress=show
        )
    memory = gemm.measure_memory([1 << 16, 1 << 20, 1 << 24], device=where, least=least, repeats=repeats)
    errors = gemm.list_left_out_errors(rows, units)
    with layers.run_neighbors(beside, hidden=max(hidden), tokens=max(tokens)), progress(unit="layers") as show:
        steps = layers.measure_layers(hidden, tokens, precision=precision, device=where, repeats=repeats, progress=show)
        update = layers.measure_update(device=where, repeats=repeats)
    path = (out or Path("measured") / site) / PRODUCTS
    document = {
        "schema": SCHEMA,
        "device": name,
        "units": units,
        "threads": torch.get_num_threads(),
        "time": now(),
        "machine": describe_machine(("torch", "numpy")),
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
    rich_text.show(_document(document))
    print(path)
    return 0


def _document(measured: dict[str, Any]) -> Document:
    """Return tables of products, memory-bound operations and layers."""
    products: list[Field[dict[str, Any]]] = [
        text_column("pass", lambda row: row["pass"]),
        *(figure_column(size, itemgetter(size), integer) for size in "mnk"),
        figure_column("us", lambda row: row["seconds"] * 1e6, "{:.1f}".format),
        figure_column("GFLOP/s", lambda row: 2e-9 * row["m"] * row["n"] * row["k"] / row["seconds"], "{:.1f}".format),
    ]
    memory: list[Field[dict[str, Any]]] = [
        text_column("operation", itemgetter("operation")),
        figure_column("MB", lambda row: row["bytes"] / 1e6, "{:.3g}".format),
        figure_column("GB/s", lambda row: row["bytes"] / row["seconds"] / 1e9, "{:.2f}".format),
    ]
    layers: list[Field[dict[str, Any]]] = [
        text_column("pass", itemgetter("pass")),
        figure_column("width", itemgetter("hidden"), integer),
        figure_column("tokens", lambda row: row["micro_batch"] * row["seq_len"], integer),
        text_column("layer", _layer),
        figure_column("us", lambda row: row["seconds"] * 1e6, integer),
    ]
    errors = [
        f"Leave-one-out error, {passage}: mean {statistics.mean(sizes):.1%}, worst {max(sizes):.1%}."
        for passage, sizes in ((key, list(map(abs, of_pass))) for key, of_pass in measured["left_out"].items())
    ]
    update = f"Update of a parameter: {measured['update_s'] * 1e9:.2f} ns."
    tables = (
        tabulate("products", "", measured["products"], products, notes=errors),
        tabulate("memory", "Memory-bound operations", measured["memory"], memory),
        tabulate("layers", "Layers", measured["layers"], layers, notes=[update]),
    )
    title = f"Matrix products on {measured['device']}"
    return Document(title, (make_chapter(title, "", tables),))


def _layer(row: dict[str, Any]) -> str:
    split = f", split {row['tp']} ways" if row["tp"] > 1 else ""
    return f"{row['positions']}{split}{', by positions' if split and row['sequence_parallel'] else ''}"
