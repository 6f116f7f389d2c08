"""Train on GPUs once with every scheme preset. Print loss, step time from CUDA events, bytes and device memory.

    python benchmarks/train_gpu.py [--schemes NAME ...] [--set KEY=VALUE ...] [--out DIR]
                                   [--tiny]

The model is gpt2-small on the text of Python's standard library (benchmarks/train_gpu.yaml), on the GPUs of this
machine. Ranks share GPUs if there are too few. Shared GPUs test the code path, but not the network. `--set layout.tp=2`
changes the layout. `--device cpu --set model=gpt-tiny` runs the same training on the CPU to compare losses. Logs are
kept in DIR. Exit status: 0 if all runs completed, 1 if some did not, 2 without a GPU or CuPy.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from provenance import head
from rich.console import Console
from rich.table import Table
from tiny import parse

from hpcbench.contract.run import RankShape
from hpcbench.errors import UserError
from hpcbench.study import presets
from hpcbench.study.expand import expand
from hpcbench.study.load import load_study
from hpcbench.study.run import run_file
from hpcbench.study.size import Capacity

STUDY = Path(__file__).with_suffix(".yaml")
NUMBERS = {"rate": 8, "dp": 8, "mp": 16, "share": 0.01, "rank": 4}
NEEDS = {
    "onebit-adam": ["train.zero=0", "train.clip=0", "train.freeze_step=20"],
    "zeropp": ["train.zero=3"],
    "aq-sgd": ["data.samples=320"],
}
"""Settings that a scheme requires."""
TINY_SCHEMES = ["baseline", "naive-int8"]
TINY_RUN = [
    "model=gpt-tiny",
    "train={steps: 6, warmup_steps: 2, global_batch: 4, micro_batch: 2, seq_len: 32, precision: bf16, eval_samples: 4}",
]
COLUMNS = ("scheme", "loss", "ms a step", "samples/s", "wire/message", "exposed ms", "GPU MiB", "buffers MiB", "state")


def schemes() -> list[str]:
    """List all presets. A value is filled in for presets that take a number."""
    return [name.format(**NUMBERS) for name in presets.schemes()]


def need_gpu() -> None:
    """Raise UserError without a GPU or CuPy."""
    import torch

    from hpcbench.codecs.device import cuda

    if not torch.cuda.is_available():
        raise UserError("PyTorch detects no GPU here: run it on a node with a GPU, or with --device cpu")
    try:
        cuda()
    except (ImportError, RuntimeError) as error:
        raise UserError(str(error)) from None


def resolved(scheme: str, device: str, sets: list[str]) -> dict[str, Any]:
    """Return the run of a scheme."""
    both = ", ".join(dict.fromkeys(("baseline", scheme)))  # A study contains the controls of the scheme.
    runs = expand(
        load_study(STUDY, [*NEEDS.get(scheme, []), *sets, f"matrix.scheme=[{both}]"]), Capacity("here", None, 1024)
    )
    run = next(run for run in runs if run.scheme_name == scheme)
    ranks = run.size.layout.ranks
    crowded = ranks > len(os.sched_getaffinity(0))
    shape = shape_of(ranks) if device == "cuda" else None
    return run_file(run, site="local", threads=1, oversubscribe=crowded, device=device, base=STUDY.parent, shape=shape)


def shape_of(ranks: int) -> RankShape:
    """Return the shape of the ranks on this machine. Ranks share GPUs if there are too few."""
    import torch

    share = -(-ranks // torch.cuda.device_count())
    return RankShape(nodes=1, ranks_per_node=ranks, cores_per_rank=1, gpus_per_rank=f"1/{share}", visibility="all")


def train(run: dict[str, Any], directory: Path) -> tuple[str, ...]:
    """Train on ranks of this machine, and return the row of the table."""
    name = run["scheme"]["name"]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "run.json").write_text(json.dumps(run))
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [str(mpiexec) if mpiexec.exists() else "mpiexec", "-n", str(run["ranks"]), sys.executable]
    command += ["-m", "hpcbench.train", str(directory / "run.json")]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    (directory / "log").write_text(done.stdout + done.stderr)
    if done.returncode:
        return name, *["-"] * (len(COLUMNS) - 2), (done.stderr.strip().splitlines() or ["no words"])[-1][:100]
    return name, *measured(done.stdout, run), "completed"


def measured(log: str, run: dict[str, Any]) -> tuple[str, ...]:
    """Read the steps after warm-up from the log."""
    events = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    last = {event["event"]: event for event in events}
    steps = [tuple(map(float, s)) for s in re.findall(r"^step .* loss (\S+) .* time (\S+) s ", log, re.M)]
    warm = run["train"]["warmup_steps"]
    seconds = fmean(step[1] for step in steps[warm:])
    channels, counted = last["traffic"]["channels"], (len(steps) - warm) * run["ranks"]
    message, wire, exposed = (sum(each[k] for each in channels) for k in ("message_bytes", "wire_bytes", "exposed_s"))
    memory = [last["memory"].get(key) for key in ("device_bytes", "device_buffer_bytes")]
    return (
        f"{steps[-1][0]:.4f}",
        f"{1e3 * seconds:.1f}",
        f"{run['train']['global_batch'] / seconds:.1f}",
        f"{wire / message:.3f}" if message else "-",
        f"{1e3 * exposed / counted:.1f}",
        *("-" if n is None else f"{n / 2**20:.0f}" for n in memory),
    )


def main() -> int:
    """Train, print the table, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemes", nargs="+", default=schemes())
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="sets")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, default=Path("results/train-gpu"))
    options = parse(parser, schemes=TINY_SCHEMES, sets=TINY_RUN)
    try:
        if options.device == "cuda":
            need_gpu()
        runs = [resolved(scheme, options.device, options.sets) for scheme in options.schemes]
    except UserError as error:
        print(f"train_gpu.py: {error}", file=sys.stderr)
        return 2
    print(*head(Path(__file__), ["cupy-cuda13x", "cupy-cuda12x"]), sep="\n", flush=True)
    table = Table(*COLUMNS, title=f"{runs[0]['model']['name']}, {runs[0]['train']['precision']}, {runs[0]['layout']}")
    states = []
    for run in runs:
        row = train(run, options.out / run["scheme"]["name"])
        print(f"{row[0]}: {row[-1]}", file=sys.stderr, flush=True)
        table.add_row(*row)
        states.append(row[-1])
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return int(any(state != "completed" for state in states))


if __name__ == "__main__":
    sys.exit(main())
