"""Predict where compression pays: the gain over 16-bit messages for models, GPUs and networks of 2026.

    python benchmarks/where_it_pays.py [--nodes 64] [--tokens 4194304] [--plot FILE.svg] [--json FILE] [--tiny]

arXiv 2103.00543 predicted more than 200 setups of data-parallel training; compression was faster in 6 of them. This
script answers the same question for current models and machines. A cell is a model, with its layout, on one kind of GPU
and network. The baseline of a cell sends 16-bit messages through the vendor's collectives. The first number in a cell
is the gain of the fastest scheme. The second number is the bandwidth of a node in Gbit/s below which that scheme pays.

Assumptions: 8 GPUs per node, speeds of links and matrix products from data sheets and published measurements, one batch
size for all models, a network without other traffic, and assumed codec speeds. Losses are not considered. All numbers
are predictions.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from provenance import head, provenance
from rich.table import Table
from tiny import parse

from hpcbench import plot_style
from hpcbench.console import show_table
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import CommPrecision, Model
from hpcbench.predict.machine import make_gpu_machine
from hpcbench.predict.prediction import predict
from hpcbench.predict.workload import BASELINE, Workload, make_train
from hpcbench.study import presets

PER_NODE = 8
LAYOUTS: dict[str, dict[str, int]] = {
    "gpt2-small": {"tp": 1, "pp": 1},
    "megatron-1.7b": {"tp": 1, "pp": 1},
    "llama-3.1-8b": {"tp": 2, "pp": 1},
    "gpt-neox-20b": {"tp": 8, "pp": 1},
    "llama-3.1-70b": {"tp": 8, "pp": 4},
}
"""Tensor-parallel ranks share a node."""
GPUS = {"V100": "NVIDIA V100-SXM2", "A100": "NVIDIA A100", "H100": "NVIDIA H100", "H200": "NVIDIA H200"}
GBIT = (25, 100, 400, 1600, 3200)
PAYS = 0.03
"""Smallest gain for which compression is worth trying."""


def _make_scheme(name: str, *rules: Rule) -> NamedScheme:
    return NamedScheme(name=name, algorithm="encoded", rules=list(rules))


SCHEMES = (
    _make_scheme("dp-int8", Rule(dimension="DP", codec="int8:256")),
    _make_scheme("dp-int4", Rule(dimension="DP", codec="int4:64")),
    _make_scheme("dp-int8-zero-int8", *(Rule(dimension=name, codec="int8:256") for name in ("DP", "ZERO"))),
    _make_scheme("dp-int4-zero-int8", Rule(dimension="DP", codec="int4:64"), Rule(dimension="ZERO", codec="int8:256")),
    NamedScheme(name="naive-int8", algorithm="encoded", default="int8:256"),
    NamedScheme(
        name="naive-int8-dp-int4",
        algorithm="encoded",
        default="int8:256",
        rules=[Rule(dimension="DP", codec="int4:64")],
    ),
)


@dataclass(frozen=True)
class PredictedCell:
    """The best scheme for a model on a machine."""

    model: str
    gpu: str
    gbit: int
    scheme: str
    gain: float
    break_even_gbit: float | None
    """Bandwidth of a node below which the scheme pays, or None if the scheme pays at every bandwidth or at none."""


def predict_cell(model: str, gpu: str, gbit: int, nodes: int, tokens: int) -> PredictedCell:
    """Predict all schemes of a cell, and return the fastest."""
    sizes = LAYOUTS[model]
    seq_len = 2048
    dp = nodes * PER_NODE // sizes["tp"] // sizes["pp"]
    # A replica needs one sample per stage to fill the pipeline.
    samples = max(tokens // seq_len // dp, sizes["pp"])
    # Use a few large micro-batches. Their number matters only when filling the pipeline.
    micro_batch = next(size for size in range(max(1, samples // (4 * sizes["pp"])), 0, -1) if samples % size == 0)
    half = "fp16" if gpu == "V100" else "bf16"
    train = make_train(
        global_batch=dp * samples,
        micro_batch=micro_batch,
        seq_len=seq_len,
        precision=half,
        zero=1,
        recompute="full" if sizes["tp"] * sizes["pp"] > 1 else "none",
        bucket_mb=100.0,
        comm_precision=CommPrecision(activations=half, gradients=half, parameters=half),
    )
    machine = make_gpu_machine(GPUS[gpu], node_gbit=gbit)
    assert machine is not None
    shape = Model(**presets.model(model))
    workload = Workload(shape, train, Layout(dp=dp, **sizes), PER_NODE)
    pairs = [(scheme.name, replace(workload, scheme=scheme)) for scheme in (BASELINE, *SCHEMES)]
    predictions = predict("", pairs, machine, baseline="baseline")
    best = max(
        (each for each in predictions if each.against),
        key=lambda each: each.against.gain if each.against and each.against.gain is not None else -math.inf,
    )
    assert best.against is not None and best.against.gain is not None
    limit = best.against.bytes_per_s
    gbit_limit = limit * 8e-9 if limit is not None and 0 < limit < math.inf else None
    return PredictedCell(model, gpu, gbit, best.scheme, best.against.gain, gbit_limit)


def show(cells: Sequence[PredictedCell], gpu: str, networks: Sequence[int]) -> None:
    """Print the table of one GPU."""
    table = Table(title=f"{gpu}: gain of the best scheme over 16-bit messages; break-even in Gbit/s per node")
    table.add_column("model")
    for gbit in networks:
        table.add_column(f"{gbit}", justify="right")
    table.add_column("break-even at the fastest network that pays", justify="right")
    for model in dict.fromkeys(each.model for each in cells):
        row = [each for each in cells if each.model == model and each.gpu == gpu]
        paying = [each for each in row if each.gain >= PAYS]
        last = paying[-1] if paying else None
        limit = "-" if last is None else f"{last.break_even_gbit:.0f}" if last.break_even_gbit else "none"
        name = "" if last is None else f" ({last.scheme})"
        table.add_row(model, *(f"{100 * each.gain:+.0f} %" for each in row), f"{limit}{name}")
    show_table(table)


def draw(cells: Sequence[PredictedCell], path: Path) -> None:
    """Save the heat map, with a panel for each GPU."""
    from matplotlib.figure import Figure

    gpus, models = (list(dict.fromkeys(getattr(each, name) for each in cells)) for name in ("gpu", "model"))
    networks = sorted({each.gbit for each in cells})
    with plot_style.styled():
        figure = Figure(figsize=(2.4 * plot_style.WIDTH, 1.5 * plot_style.WIDTH), layout="constrained")
        panels = figure.subplots(2, -(-len(gpus) // 2), sharex=True, sharey=True, squeeze=False).flat
        for panel, gpu in zip(panels, gpus, strict=False):
            gains = {(each.model, each.gbit): each.gain for each in cells if each.gpu == gpu}
            rows = [[100 * gains[model, gbit] for gbit in networks] for model in models]
            panel.imshow(rows, cmap="RdBu", vmin=-50, vmax=50, aspect="auto")
            for i, values in enumerate(rows):
                for k, value in enumerate(values):
                    color = "white" if abs(value) > 35 else plot_style.INK
                    panel.text(k, i, f"{value:.0f}", ha="center", va="center", color=color, fontsize=plot_style.SMALL)
            panel.set_title(gpu)
            panel.set_xticks(range(len(networks)), [str(gbit) for gbit in networks])
            panel.set_yticks(range(len(models)), models)
        figure.supxlabel("network of a node, Gbit/s")
        figure.suptitle("Predicted gain of the best scheme over 16-bit messages, percent")
        plot_style.save(figure, path)


def main() -> None:
    """Predict all cells and print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=4 << 20, help="tokens of a step of all replicas")
    parser.add_argument("--models", nargs="+", choices=list(LAYOUTS), default=list(LAYOUTS))
    parser.add_argument("--gpus", nargs="+", choices=list(GPUS), default=list(GPUS))
    parser.add_argument("--gbit", type=int, nargs="+", default=list(GBIT))
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", type=Path)
    options = parse(parser, models=["gpt2-small"], gpus=["H100"], gbit=[25, 3200], nodes=2, tokens=1 << 16)
    print("\n".join(head(Path(__file__))), end="\n\n", flush=True)
    cells = [
        predict_cell(model, gpu, gbit, options.nodes, options.tokens)
        for gpu in options.gpus
        for model in options.models
        for gbit in options.gbit
    ]
    for gpu in options.gpus:
        show(cells, gpu, options.gbit)
    paying = sum(each.gain >= PAYS for each in cells)
    print(f"The best scheme gains {100 * PAYS:.0f} % or more in {paying} of {len(cells)} cells.")
    fast = [each for each in cells if each.gbit >= 400]
    print(f"With 400 Gbit/s per node or more: in {sum(each.gain >= PAYS for each in fast)} of {len(fast)} cells.")
    if options.json:
        document = {"provenance": provenance(Path(__file__)), "cells": [asdict(each) for each in cells]}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.plot:
        draw(cells, options.plot)


if __name__ == "__main__":
    main()
