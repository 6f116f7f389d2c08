"""Predict the step time of tensor parallelism in one to three dimensions on 8 to 512 V100 GPUs with a cost model.

    python benchmarks/tensor_projection.py [--ranks 8 16 ...] [--hidden H] [--layers L] [--batch B] [--seq S]
                                           [--efficiency E] [--bytes 2] [--tiny]

The step time is the time of the matrix products at a fraction of peak speed, plus the communication time of each grid
axis: the bytes of the closed forms divided by the link bandwidth, plus a latency per call. Nothing overlaps. Nodes are
filled in rank order. A line of ranks within a node uses NVLink. A line that spans several nodes has one stream into and
out of each node, as in a ring. If several lines span nodes at the same time, they share the network of the node. The
last rows of the output assume an equal link for every GPU, as in the cost models of the papers.
"""

import argparse
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from provenance import head
from rich.console import Console
from rich.table import Table
from shared import make_table
from tiny import parse

from hpcbench.console import columns
from hpcbench.contract.grid import Axes, Grid, make_grid
from hpcbench.contract.traffic import Traffic
from hpcbench.contract.training import Model
from hpcbench.predict import flops
from hpcbench.predict import grid as grids

PUBLISHED = {"1d": 2.32, "2d": 1.57}
"""Time of each mode on 64 ranks, relative to 3-D."""


@dataclass(frozen=True)
class Machine:
    """A node as in the paper: four V100 with NVLink, and EDR InfiniBand."""

    peak: float = 125e12
    """Operations per second of a GPU, fp16 with tensor cores (NVIDIA V100 SXM2 data sheet)."""
    nvlink: float = 75e9
    """Bandwidth from a GPU to the other GPUs of its node, in bytes/s: 3 bricks of 25 GB/s (IBM AC922 data sheet)."""
    network: float = 12.5e9
    """Bandwidth of a node in one direction, in bytes/s: EDR InfiniBand, 100 Gbit/s (data sheet)."""
    per_node: int = 4
    latency: float = 10e-6
    """Latency of a call and hop in seconds (assumed)."""


@dataclass(frozen=True)
class Work:
    """Assumed size of the model and of a step."""

    hidden: int
    layers: int
    batch: int
    seq: int
    width: int
    efficiency: float

    @property
    def rows(self) -> int:
        """Number of samples times sequence length."""
        return self.batch * self.seq


def compute_seconds(work: Work, machine: Machine, ranks: int) -> float:
    """Return the time of all matrix products in blocks and attention in seconds, forward and backward."""
    sizes = {"layers": work.layers, "hidden": work.hidden, "vocab": 0, "seq_len": work.seq}
    return work.batch * flops.count_model_flops(**sizes) / ranks / (machine.peak * work.efficiency)


def time_line(grid: Grid, axes: Axes, nbytes: float, calls: int, machine: Machine) -> float:
    """Return the time in seconds to send each rank's bytes along the grid's lines, over the slowest link."""
    size = grid.count(axes)
    nodes = {
        len({rank // machine.per_node for rank in range(grid.ranks) if grid.index(rank, grid.others(axes)) == line})
        for line in range(grid.ranks // size)
    }
    latency = calls * machine.latency * (size - 1)
    if max(nodes) == 1:
        return latency + nbytes / machine.nvlink
    together = size // max(nodes)
    sharing = min(machine.per_node, grid.ranks) / together
    return latency + nbytes * sharing / machine.network


def _block(work: Work) -> Model:
    """Model with one layer of the step's width."""
    return Model(layers=1, hidden=work.hidden, heads=1)


def step_seconds(mode: str, ranks: int, depth: int, work: Work, machine: Machine) -> dict[str, float]:
    """Return the time of computation and of each axis in seconds, given the traffic of a block's four products."""
    grid = make_grid(mode, ranks, depth)
    seconds = {"compute": compute_seconds(work, machine, ranks)}
    if mode == "1d":
        # Four all-reduces of the activations per layer (arXiv 1909.08053, section 3).
        nbytes = 4 * 2 * (ranks - 1) / ranks * work.rows * work.hidden * work.width * work.layers
        return seconds | {"t": time_line(grid, ("t",), nbytes, 8 * work.layers, machine)}
    elements: dict[str, int] = dict.fromkeys(grid.axes, 0)
    for layer in grids.list_block_products(work.rows, _block(work)):
        for (*_, axis), n in count_sent_elements(grid, layer).items():
            elements[axis] += n
    pieces = 1 if mode == "3d" else grid.sizes["j"]
    for axis, n in elements.items():
        if axis == "e":  # Once per step, an all-reduce of the rank's weights.
            held = sum(
                grids.count_held(grid, grid.products[p.word].w, p)
                for p in grids.list_block_products(work.rows, _block(work))
            )
            n = round(2 * (depth - 1) / depth * held)
        seconds[axis] = time_line(grid, (axis,), n * work.width * work.layers, 12 * pieces * work.layers, machine)
    return seconds


def list_grids(ranks: int) -> dict[str, int]:
    """Return the modes with a grid for this number of ranks, and their depths."""
    grids_of_modes = {"1d": 1}
    for mode in ("2d", "3d"):
        try:
            make_grid(mode, ranks)
        except ValueError:
            continue
        grids_of_modes[mode] = 1
    for q in range(2, ranks):
        depth, remainder = divmod(ranks, q * q)
        if remainder == 0 and 1 < depth <= q:
            grids_of_modes["2.5d"] = depth
            break
    return grids_of_modes


def table(work: Work, machine: Machine, sizes: list[int]) -> Table:
    """Make a table with a row for each number of ranks and mode."""
    headings = ("GPUs", "mode", "compute s", "sent s", "s a sample", "1-D / it", "GB a GPU", "weights GB")
    page = make_table(*headings, spaced=True)
    for ranks in sizes:
        base = sum(step_seconds("1d", ranks, 1, work, machine).values())
        for mode, depth in sorted(list_grids(ranks).items()):
            seconds = step_seconds(mode, ranks, depth, work, machine)
            total_s = sum(seconds.values())
            name = f"{mode} (depth {depth})" if depth > 1 else mode
            page.add_row(
                str(ranks),
                name,
                f"{seconds['compute']:.3f}",
                f"{total_s - seconds['compute']:.3f}",
                f"{total_s / work.batch:.5f}",
                f"{base / total_s:.2f}",
                f"{count_sent_bytes(mode, ranks, depth, work) / 1e9:.2f}",
                f"{12 * work.hidden**2 * work.layers * work.width * depth / ranks / 1e9:.3f}",
            )
    return page


def count_sent_elements(grid: Grid, layer: grids.GridProduct) -> Counter[Traffic]:
    """Return the number of elements that a rank sends in a layer's forward and backward passes, by channel."""
    sent = Counter[Traffic]()
    for channel, _, held in (*grids.list_forward_moves(grid, layer), *grids.list_backward_moves(grid, layer)):
        sent[channel] += (grid.sizes[channel[3]] - 1) * held
    return sent


def count_sent_bytes(mode: str, ranks: int, depth: int, work: Work) -> float:
    """Return the number of bytes that each rank sends in a step."""
    grid = make_grid(mode, ranks, depth)
    if mode == "1d":
        return 8 * (ranks - 1) / ranks * work.rows * work.hidden * work.width * work.layers
    total = 0.0
    for layer in grids.list_block_products(work.rows, _block(work)):
        total += sum(count_sent_elements(grid, layer).values())
        total += 2 * (depth - 1) / depth * grids.count_held(grid, grid.products[layer.word].w, layer)
    return total * work.width * work.layers


def main() -> None:
    """Read the options, compute and print."""
    parser = argparse.ArgumentParser(description="Projected steps of tensor parallelism on V100.")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 16, 32, 64, 128, 256, 512], metavar="N")
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--batch", type=int, default=384, help="samples a step; none is cut")
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--efficiency", type=float, default=0.4, help="of the peak, in products (assumed)")
    parser.add_argument("--bytes", type=int, default=2, help="of a value in a message")
    options = parse(parser, ranks=[8, 64], layers=1)
    work = Work(options.hidden, options.layers, options.batch, options.seq, options.bytes, options.efficiency)
    for ranks in options.ranks:
        for mode, depth in list_grids(ranks).items():
            grid = make_grid(mode, ranks, depth)
            if work.batch % grid.samples or work.hidden % (grid.sizes.get("j", 1) ** 2):
                parser.error(f"--batch {work.batch}, --hidden {work.hidden}: {grid} does not divide them")
    machine = Machine()
    print(*head(Path(__file__)), sep="\n")
    print("measured: nothing; this is arithmetic")
    print(
        f"data sheets: {machine.peak / 1e12:g} TFLOPS a V100, {machine.nvlink / 1e9:g} GB/s NVLink a GPU, "
        f"{machine.network / 1e9:g} GB/s EDR a node, {machine.per_node} GPUs a node"
    )
    print(
        f"assumed: hidden {work.hidden}, {work.layers} layers, {work.batch} samples of {work.seq} tokens, "
        f"{work.width} bytes a value, {work.efficiency:.0%} of the peak in products, {machine.latency * 1e6:g} us a "
        "call and hop, nothing overlaps; embedding, head and norms are left out\n"
    )
    Console(width=columns(), highlight=False).print(table(work, machine, options.ranks))
    if 64 in options.ranks:
        print()
        for label, links in (("nodes of 4 GPUs", machine), ("a link for each GPU", replace(machine, per_node=1))):
            total_s = {mode: sum(step_seconds(mode, 64, 1, work, links).values()) for mode in ("1d", "2d", "3d")}
            ratios = "; ".join(
                f"over {mode} projected {total_s[mode] / total_s['3d']:.2f} x, published {factor} x"
                for mode, factor in PUBLISHED.items()
            )
            print(f"3-D on 64 V100, {label}: {ratios}")


if __name__ == "__main__":
    main()
