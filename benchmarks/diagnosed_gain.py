"""Compare the bound that `hpcbench diagnose` reports with the measured gain of int8 on unchanged programs.

    python benchmarks/diagnosed_gain.py [ddp] [fsdp] [tp] [--rates 100mbit 1gbit] [--repeats N] [--json FILE] [--tiny]

Four ranks, each on a virtual host behind a limited link, train with PyTorch's own collectives over gloo. `hpcbench
diagnose --run` traces some steps of each program. Then the program runs alone, and under `hpcbench run` with the
schemes `identity` (our algorithm without a codec) and `naive-int8`, in rotated order.

exposed, transfer: fractions of a traced step in which any communication, or a transfer, is exposed. bound: largest
possible gain of int8 on all dimensions together, according to the diagnosis. int8, identity: speed relative to the
program alone, as a geometric mean over the repeats. codec: speed with int8 relative to identity, with its 95 %
interval. The bound applies to the codec only: another algorithm may gain more (gloo runs a reduce-scatter as an
all-reduce, which sends twice the bytes).

The gain of the codec must not exceed the bound. If more than half of a step is exposed transfer, the gain must be at
least 60 % of the bound. Times vary, because ranks share the cores. Requires Linux, root or user namespaces, iproute2,
and hpcbench[torch,local].
"""

import argparse
import json
import math
import os
import re
import runpy
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from provenance import ROOT, head, provenance
from rich.table import Table
from tiny import parse

from hpcbench.bench.progress import progress
from hpcbench.console import show_table
from hpcbench.errors import UserError
from hpcbench.report.significance import student_t_quantile
from hpcbench.testing.hosts import why_not

SCRIPTS = ROOT / "studies" / "programs"
PROGRAMS = {
    "ddp": [str(SCRIPTS / "gpt_ddp.py"), "--layers", "4", "--width", "192"],
    "fsdp": [str(SCRIPTS / "gpt_fsdp_tp.py"), "--tp", "1", "--width", "384"],
    "tp": [str(SCRIPTS / "gpt_fsdp_tp.py"), "--tp", "{ranks}", "--width", "384", "--batch", "256"],
}
"""Scripts and arguments: data-parallel gradients, sharded weights, and tensor-parallel activations."""
STEP_SECONDS = re.compile(r"time ([\d.]+)ms|in ([\d.]+) s$", re.MULTILINE)
GROUPS = "lossy: [parameters]\n"
"""Groups file with which FSDP2's gathers of parameters are encoded as well."""
WARMUP = 3
"""Warm-up steps, which are not counted."""
CODEC = "int8"


@dataclass(frozen=True)
class Row:
    """Results of a program over links of one rate."""

    program: str
    rate: str
    exposed: float
    """Fraction of the traced step in which communication was exposed."""
    transfer: float
    """Fraction of the traced step in which transfers were exposed.

    The time spent waiting for late ranks is excluded.
    """
    bound: float
    int8: list[float]
    """Speed with int8 relative to the program alone, per repeat."""
    identity: list[float]
    """Speed of hpcbench's algorithm without a codec, relative to the program alone, per repeat."""

    @property
    def gain(self) -> float:
        """Gain of the codec: the geometric mean over the repeats."""
        return mean_ratio(self.int8) / mean_ratio(self.identity)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Student's 95 % interval of the codec's gain. With one repeat, the interval is None."""
        if len(self.int8) < 2:
            return None
        logarithms = [math.log(coded / plain) for coded, plain in zip(self.int8, self.identity, strict=True)]
        error = stdev(logarithms) / math.sqrt(len(logarithms)) * student_t_quantile(0.975, len(logarithms) - 1)
        return self.gain * math.exp(-error), self.gain * math.exp(error)

    @property
    def verdict(self) -> str:
        """Verdict on the diagnosis, which is undecided if the interval contains the bound."""
        low, high = self.interval or (self.gain, self.gain)
        if low > self.bound:
            return "ABOVE THE BOUND"
        if self.transfer > 0.5 and high < 0.6 * self.bound:
            return "BELOW 60 % OF THE BOUND"
        holds = high <= self.bound and (self.transfer <= 0.5 or low >= 0.6 * self.bound)
        return "holds" if holds else "undecided"


def mean_ratio(ratios: list[float]) -> float:
    """Return the geometric mean."""
    return math.exp(fmean(map(math.log, ratios)))


def become_rank(arguments: list[str]) -> None:
    """Run a script as the rank that the MPI launcher assigned to this process."""
    os.environ.update(RANK=os.environ["PMI_RANK"], WORLD_SIZE=os.environ["PMI_SIZE"], LOCAL_RANK="0")
    os.environ.update(MASTER_ADDR="host1", MASTER_PORT="29500")
    sys.argv = arguments
    runpy.run_path(arguments[0], run_name="__main__")


def call(command: list[str]) -> str:
    """Return the output of a command.

    Raises
    ------
    UserError
        The command failed.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        last = " ".join((done.stderr or done.stdout).split())[-400:]
        raise UserError(f"{' '.join(command[:8])} ...: exit status {done.returncode}: {last}")
    return done.stdout


def program_command(name: str, rate: str, ranks: int, steps: int) -> list[str]:
    """Return the command that trains a program on virtual hosts."""
    arguments = [word.format(ranks=ranks) for word in PROGRAMS[name]]
    hosts = [sys.executable, "-m", "hpcbench.testing.hosts.launcher", "-n", str(ranks), "-ppn", "1", "--rate", rate]
    return [*hosts, sys.executable, str(Path(__file__).resolve()), "--rank", *arguments, "--steps", str(steps)]


def diagnose(command: list[str]) -> dict[str, Any]:
    """Trace some steps of a program, and return the diagnosis."""
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "diagnosis.json"
        options = ["--run", "--directory", directory, "--output", str(output)]
        call([sys.executable, "-m", "hpcbench", "diagnose", *options, "--", *command])
        content: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    return content


def bound_gain(diagnosis: dict[str, Any]) -> float:
    """Return the largest possible gain of the codec on all dimensions together."""
    saved = sum(1 - 1 / gain["factor"] for gain in diagnosis["gains"] if gain["codec"] == CODEC)
    return 1 / (1 - saved)


def step_seconds(output: str) -> float:
    """Return the mean time of the counted steps in a program's output."""
    times = [float(ms) / 1e3 if ms else float(s) for ms, s in STEP_SECONDS.findall(output)]
    return fmean(times[WARMUP:])


def measure(name: str, rate: str, ranks: int, steps: int, repeats: int) -> Row:
    """Diagnose a program, and measure its gain."""
    command = program_command(name, rate, ranks, steps)
    diagnosis = diagnose(command)
    rows = diagnosis["rows"]
    transfer = sum(kind["exposed_transfer"] for kind in rows) / diagnosis["step_seconds"]
    row = Row(name, rate, diagnosis["exposed"], transfer, bound_gain(diagnosis), [], [])
    with tempfile.TemporaryDirectory() as directory:
        groups = Path(directory) / "groups.yaml"
        groups.write_text(GROUPS, encoding="utf-8")
        run = [sys.executable, "-m", "hpcbench", "run", "--groups", str(groups), "--scheme"]
        commands = {"": command} | {name: [*run, name, "--", *command] for name in ("identity", f"naive-{CODEC}")}
        for repeat in range(repeats):
            order = [*commands][repeat % 3 :] + [*commands][: repeat % 3]
            seconds = {scheme: step_seconds(call(commands[scheme])) for scheme in order}
            row.int8.append(seconds[""] / seconds[f"naive-{CODEC}"])
            row.identity.append(seconds[""] / seconds["identity"])
    return row


def tabulate(rows: list[Row]) -> Table:
    """Return the table of all rows."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("program")
    for heading in ("link", "exposed", "transfer", "bound", "int8", "identity", "codec (95 % CI)", "of the bound"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for row in rows:
        interval = f" ({row.interval[0]:.2f} to {row.interval[1]:.2f})" if row.interval else ""
        figures = [f"{row.exposed:.1%}", f"{row.transfer:.1%}", f"{row.bound:.2f}"]
        figures += [f"{mean_ratio(row.int8):.2f}", f"{mean_ratio(row.identity):.2f}", f"{row.gain:.2f}{interval}"]
        table.add_row(row.program, row.rate, *figures, f"{row.gain / row.bound:.0%}", row.verdict)
    return table


def main() -> int:
    """Run the benchmark, and return the exit status."""
    if sys.argv[1:2] == ["--rank"]:
        become_rank(sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="ddp|fsdp|tp")
    parser.add_argument("--rates", nargs="+", default=["100mbit", "1gbit"], help="of each host's link")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each scheme")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parse(parser, programs=["ddp"], rates=["100mbit"], ranks=2, steps=9, repeats=1)
    try:
        if wrong := [name for name in options.programs if name not in PROGRAMS]:
            raise UserError(f"no program {wrong[0]!r}: use {', '.join(PROGRAMS)}")
        if reason := why_not():
            raise UserError(reason)
        print(*head(Path(__file__)), "", sep="\n", flush=True)
        cases = [(name, rate) for name in options.programs or PROGRAMS for rate in options.rates]
        rows = []
        with progress() as show:
            for number, (name, rate) in enumerate(cases):
                show(number, len(cases), f"{name}, {rate}")
                rows.append(measure(name, rate, options.ranks, options.steps, options.repeats))
    except UserError as error:
        print(f"diagnosed_gain: {error}", file=sys.stderr)
        return 2
    show_table(tabulate(rows))
    if options.json:
        content = {"provenance": provenance(Path(__file__)), "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
