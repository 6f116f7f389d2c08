"""Measure time and memory of a report on 1,000 logs of 1,000 steps, compared with `grep -c` over the same files.

    python benchmarks/report.py [--logs 100 200 500 1000] [--steps 1000] [--turns 3] [--format table] [--profile FILE]
                                [--tiny]

The submissions contain 10 cells with 5 schemes each, and enough repeats to reach the number of logs. `hpcbench report`
and grep run alternately as separate commands, with one process each. All files are in the page cache. The minimum time
over the turns is printed. Memory is the peak resident memory that the system reports when the command ends.
"""

import argparse
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from provenance import head
from rich.console import Console
from shared import make_table
from tiny import parse

from hpcbench.console import columns

sys.path.append(str(Path(__file__).parents[1] / "tests" / "report"))

import planted_results
from planted_results import Planted

CELLS = 10
SCHEMES = {"baseline": 1.0, "identity": 1.0, "naive-mpc": 0.9, "naive-zfp8": 0.25, "mzhybrid": 0.4}
"""Bytes on the wire per message byte, for each scheme."""
GOAL_S, GOAL_MB = 5.0, 300.0


@dataclass(frozen=True)
class Cost:
    """Time and memory of a command."""

    wall: float
    processor: float
    memory: float
    """Peak resident memory in MB."""


def runs(logs: int) -> list[Planted]:
    """Make runs whose step times vary as in real runs."""
    draw = random.Random(logs)
    repeats = range(1, logs // (CELLS * len(SCHEMES)) + 1)
    return [
        Planted(
            scheme, repeat, draw.uniform(0.1, 0.3), draw.uniform(2.5, 2.9), SCHEMES[scheme], {"nodes": cell}, noise=0.03
        )
        for repeat, cell, scheme in itertools.product(repeats, range(1, CELLS + 1), SCHEMES)
    ]


def cost(command: list[str]) -> Cost:
    """Run a command, and check that it succeeds and prints some output."""
    with tempfile.TemporaryFile() as output:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        printed = output.read()
    if process.returncode or not printed:
        raise SystemExit(f"{' '.join(command[:6])}: exit {process.returncode}:\n{printed.decode()[-2000:]}")
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def least(turns: list[Cost]) -> Cost:
    """Return the times of the shortest turn, and the peak memory over all turns."""
    shortest = min(turns, key=lambda turn: turn.wall)
    return Cost(shortest.wall, shortest.processor, max(turn.memory for turn in turns))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, nargs="+", default=[100, 200, 500, 1000], help="multiples of 50")
    parser.add_argument("--steps", type=int, default=1000, help="step lines a log")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--format", default="table", help="of the report")
    parser.add_argument("--profile", type=Path, help="where to put a profile of the last report, for pstats")
    options = parse(parser, logs=[50], steps=20, turns=1)
    if any(logs <= 0 or logs % (CELLS * len(SCHEMES)) for logs in options.logs):
        parser.error(f"--logs: multiples of {CELLS * len(SCHEMES)}, which all cells and schemes share")
    if not shutil.which("grep"):
        parser.error("grep is not found")
    print(*head(Path(__file__)), sep="\n", flush=True)

    headings = ("logs", "MB", "report s", "processor s", "ms a log", "memory MB", "grep -c s", "x grep")
    table = make_table(*headings, bold=True)
    turns_taken: list[Cost] = []
    for logs in options.logs:
        with tempfile.TemporaryDirectory() as name:
            root = planted_results.write(Path(name), runs(logs), steps=options.steps, warmup=20)
            files = sorted(root.glob("runs/*/log.txt"))
            size = sum(file.stat().st_size for file in files) / 1e6
            report = ["-m", "hpcbench", "report", str(root), "--format", options.format]
            grep = ["grep", "-c", "^step", *map(str, files)]
            cost(grep)
            pairs = []
            for _ in range(options.turns):
                pairs.append((cost([sys.executable, *report]), cost(grep)))
                print(f"{logs} logs: {pairs[-1][0].wall:.2f} s", file=sys.stderr)
            if options.profile and logs == options.logs[-1]:
                cost([sys.executable, "-m", "cProfile", "-o", str(options.profile), *report])
        ours, its = (least(list(turns)) for turns in zip(*pairs, strict=True))
        turns_taken.append(ours)
        row = [f"{ours.wall:.2f}", f"{ours.processor:.2f}", f"{ours.wall / logs * 1e3:.2f}", f"{ours.memory:.0f}"]
        table.add_row(str(logs), f"{size:.0f}", *row, f"{its.wall:.2f}", f"{ours.wall / its.wall:.1f}")
    console = Console(width=columns(), highlight=False)
    console.print(table)
    last = turns_taken[-1]
    for label, value, goal, unit in (("time", last.wall, GOAL_S, "s"), ("memory", last.memory, GOAL_MB, "MB")):
        console.print(f"{label}: {value:.3g} {unit}, goal {goal:g} {unit}: {'met' if value <= goal else 'missed'}")


if __name__ == "__main__":
    main()
