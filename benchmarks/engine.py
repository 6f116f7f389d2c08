"""Measure the cost of the engine: a step compared with a plain PyTorch loop, with DDP and with FSDP2.

    python benchmarks/engine.py [--turns 16] [--steps N] [--threads 1] [--ranks 4] [--only one|dp] [--json FILE]
                                [--tiny]

All measured programs train the same GPT from the same weights on the same samples in fp32, with AdamW, clipping and
equal learning rates. PyTorch's loops clip with torch.nn.utils.clip_grad_norm_ and use torch.optim.AdamW, fused unless
the row states otherwise. DDP uses buckets as gradient views. DDP communicates over gloo, or with a communication hook
over the MPI library that hpcbench uses. The hook is either blocking, or nonblocking with a progress thread. FSDP2
gathers weights and scatters gradients, as in ZeRO-3. Before anything is timed, the losses must agree to 1e-5 (5 % for
lossy schemes and hooks), because only equal work can be compared.

All programs run alternately in the same processes, each for some steps per turn and in rotated order. The time of a
turn is the time of the slowest rank. "gradients" is the forward and backward pass with exposed communication.
"optimizer" is the gradient norm, clipping and update. The step of hpcbench also sums the losses of the ranks and counts
its traffic. Times are medians over the turns. Ratios are paired by turn and averaged geometrically, with Student's 95 %
interval of their logarithms. The fastest loop, or the fastest DDP over the same MPI library, sets the goal. The goal is
met or missed only if the whole interval is on one side of the goal. The exit status is 1 if a goal is missed, except
with --tiny, whose few steps are not meaningful.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from engine_runs import CHECKED, COMMUNICATION, COMPUTE, TINY, Size
from provenance import head, provenance
from rich.console import Console
from rich.table import Table
from tiny import parse

from hpcbench.console import columns
from hpcbench.report.statistics import Interval, paired_ratio

MOST_OVERHEAD = 1.03
"""Largest step time on one rank that meets the goal, as a multiple of the time of the faster plain loop."""
OURS = ("hpcbench", "hpcbench baseline")
"""The measured program to which the goals apply."""


def measure(size: Size, ranks: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Start the ranks, and parse their results."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [str(mpiexec), "-n", str(ranks), "-bind-to", "none", sys.executable, __file__]
    command += ["--worker", size.name, "--port", str(port), "--turns", str(options.turns)]
    command += ["--steps", str(options.steps or size.steps), "--threads", str(options.threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads), "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"engine: the ranks ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def seconds(row: dict[str, Any], part: int = 0) -> list[float]:
    """Return the time per turn in seconds: of the whole step (0), of its gradients (1), or of its optimizer (2)."""
    return [turn[part] for turn in row["turns"]]


def fastest(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the peer that sets the goal: of the peers that may do so, the one with the shortest turns."""
    fair = [row for row in rows if row["fair"] and "turns" in row]
    return min(fair, key=lambda row: paired_ratio(seconds(row), seconds(fair[0])).estimate)


def verdict(ratio: Interval, limit: float) -> str:
    """Return whether the upper bound of the ratio's interval is at most `limit`."""
    if ratio.low is None or ratio.high is None:
        return "not decided"
    return "met" if ratio.high <= limit else "missed" if ratio.low > limit else "not decided"


def shown(ratio: Interval) -> str:
    """Format a ratio with its interval."""
    ends = f" ({ratio.low:.3f} to {ratio.high:.3f})" if ratio.low is not None else ""
    return f"{ratio.estimate:.3f}{ends}"


def show(title: str, rows: list[dict[str, Any]], reference: dict[str, Any]) -> Table:
    """Make a table with the medians of each program, and the ratios to the reference in the same turns."""
    table = Table(title=title, box=None, pad_edge=False, title_justify="left")
    heads = (
        "transport",
        "step, ms",
        "gradients",
        "optimizer",
        f"x {reference['name']} (95 % CI)",
        f"loss after {CHECKED} steps",
    )
    for heading in ("", *heads):
        table.add_column(heading, justify="left" if heading in ("", "transport") else "right")
    for row in rows:
        if "lack" in row:
            table.add_row(row["name"], row["transport"], f"does not run: {row['lack']}")
            continue
        times = [f"{1e3 * median(seconds(row, part)):.2f}" for part in range(3)]
        ratio = "-" if row is reference else shown(paired_ratio(seconds(row), seconds(reference)))
        table.add_row(row["name"], row["transport"], *times, ratio, f"{row['losses'][-1]:.6f}")
    return table


def main() -> int:
    """Measure, and print whether the goals are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=16)
    parser.add_argument("--steps", type=int, help="of a turn, in place of each size's own")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch, on each rank and both sides")
    parser.add_argument("--ranks", type=int, default=4, help="of the data parallel part")
    parser.add_argument("--only", choices=("one", "dp"))
    parser.add_argument("--json", type=Path, help="where to put the times of all turns")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    options = parse(parser, turns=2, ranks=2)
    if options.worker:
        from engine_turns import worker

        (size,) = (size for size in (COMPUTE, COMMUNICATION, TINY) if size.name == options.worker)
        worker(size, turns=options.turns, steps=options.steps, threads=options.threads, port=options.port)
        return 0
    print(*head(Path(__file__), ["numpy"]), sep="\n", flush=True)
    console = Console(width=columns(), highlight=False)
    sizes = (TINY,) if options.tiny else (COMPUTE, COMMUNICATION)
    missed, everything = False, []
    for size in sizes:
        for ranks, part in ((1, "one"), (options.ranks, "dp")):
            if options.only not in (None, part):
                continue
            rows = measure(size, ranks, options)
            reference = fastest(rows)
            tokens = size.samples * size.seq_len
            title = (
                f"{size.name}: {size.model.name} GPT, {tokens} tokens a rank and step, {ranks} rank{'s' * (ranks > 1)}"
            )
            console.print(show(title, rows, reference))
            (ours,) = (row for row in rows if row["name"] in OURS)
            ratio, limit = paired_ratio(seconds(ours), seconds(reference)), MOST_OVERHEAD if ranks == 1 else 1.0
            result = verdict(ratio, limit)
            missed |= result == "missed"
            console.print(
                f"goal, at most {limit:.2f} x {reference['name']}: {shown(ratio)}: {result}", "", soft_wrap=True
            )
            everything.append({"size": size.name, "ranks": ranks, "rows": rows})
    cores = len(os.sched_getaffinity(0))
    steps = ", ".join(f"{options.steps or size.steps} steps ({size.name})" for size in sizes)
    note = f"{options.turns} turns of {steps}, {options.threads} thread a rank, {cores} cores."
    if options.ranks * options.threads > cores and options.only != "one":
        note += f" {options.ranks} ranks of {options.threads} thread share them: they wait for each other's cores."
    console.print(note, soft_wrap=True)
    if options.json:
        document = {"provenance": provenance(Path(__file__)), "measured": everything}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return int(missed and not options.tiny)


if __name__ == "__main__":
    sys.exit(main())
