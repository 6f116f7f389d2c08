"""What compression gains in training on links that are really slow: every scheme beside the uncompressed baseline.

    python benchmarks/throttled_training.py [--study FILE] [--set KEY=VALUE ...] [--json FILE]
                                            [--shares 25 40 60 | --rates 100mbit ...]

A small GPT is trained end to end on virtual hosts whose links are limited (hpcbench.testing.hosts). In each repeat all
schemes run one after another in the same processes, in rotated order, with the same seed, and are compared in pairs.
Three link rates are chosen so that the baseline spends about the given shares of its time in communication: what it
takes without a limit is the rest. The ideal gain of a scheme follows from bytes alone: of the time that the limit
costs the baseline, the share that its bytes between hosts are of the uncompressed ones would remain.

Needs Linux, root or user namespaces, iproute2, and hpcbench[train,local]. Exit status 2 if something is missing.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hpcbench.bench.machine import machine
from hpcbench.bench.progress import progress
from hpcbench.console import columns
from hpcbench.errors import UserError
from hpcbench.report.statistics import Interval, paired_difference, paired_ratio
from hpcbench.study.expand import expand
from hpcbench.study.load import load_study
from hpcbench.study.run import run_file
from hpcbench.study.size import Room
from hpcbench.testing.hosts import Hosts, why_not

HOSTS, RANKS_A_HOST = 4, 2
TRIAL = "100mbit"
"""Rate of the trial that tells what a limit costs."""
SMOOTH = 5
"""Steps whose training losses are averaged for the loss at equal time."""

LEGEND = f"""speed: ratio of samples/s over pairs of runs of one repeat, Student's t.
wire: bytes between hosts, of those of the same algorithm without a codec.
exposed, hidden: time of communication in a step that a rank waited, and computed meanwhile.
ideal: the speed if the limit cost the baseline only that share of what it costs it.
loss: difference to the baseline's; at equal time: mean training loss of {SMOOTH} steps when the fastest run ended.
"""


def worker(directory: Path) -> None:
    """Run the run files of a directory in the order of their names; rank 0 prints a JSON line for each."""
    from mpi4py import MPI

    from hpcbench.comm.progress import Progress
    from hpcbench.comm.wait import Wait
    from hpcbench.predict import flops
    from hpcbench.train import config, text
    from hpcbench.train.traffic import Traffic
    from hpcbench.train.trainer import Trainer

    world = MPI.COMM_WORLD
    driver, corpus = Progress(Wait.GIVE_WAY, background=True), None
    for path in sorted(directory.glob("*.json")):
        run, _ = config.load(path)
        if corpus is None:
            import torch

            torch.set_num_threads(1)
            corpus = text.load_shared(world, driver, run.data, run.train.seq_len)
        trainer = Trainer(run, world.Dup(), driver, corpus)
        losses, ends = [], []
        traffic, start = Traffic(trainer.policy, trainer.mesh), time.perf_counter()
        for k in range(run.train.steps):
            if k == run.train.warmup_steps:
                traffic, warm = Traffic(trainer.policy, trainer.mesh), time.perf_counter()
            losses.append(trainer.step(k).loss)
            ends.append(time.perf_counter() - start)
        counted = run.train.steps - run.train.warmup_steps
        seconds = (time.perf_counter() - warm) / counted
        channels = traffic.report()
        valid, _ = trainer.evaluate()
        agree = trainer.replicas_agree()
        model = run.model
        operations = flops.model_flops_per_sample(
            layers=model.layers, hidden=model.hidden, vocab=model.vocab, seq_len=run.train.seq_len
        )
        if world.rank == 0:
            result = {
                "scheme": run.scheme.name,
                "repeat": run.repeat,
                "seconds": seconds,
                "samples_per_s": run.train.global_batch / seconds,
                "gflops_per_rank": operations * run.train.global_batch / seconds / run.ranks / 1e9,
                "losses": losses,
                "ends": ends,
                "valid": valid,
                "replicas_agree": agree,
                "steps": counted,
                "channels": channels,
            }
            print(json.dumps(result), flush=True)


def train(hosts: Hosts, runs: list[dict[str, Any]], ranks_a_host: int = RANKS_A_HOST) -> list[dict[str, Any]]:
    """Train all runs, one after another in one start of the ranks."""
    with tempfile.TemporaryDirectory() as directory:
        for k, run in enumerate(runs):
            (Path(directory) / f"{k:03}.json").write_text(json.dumps(run))
        command = [sys.executable, __file__, "--worker", directory]
        done = hosts.run(command, ranks=hosts.count * ranks_a_host, ranks_per_host=ranks_a_host, timeout=3600)
    if done.returncode:
        raise UserError(f"the ranks ended with {done.returncode}: {' '.join(done.stderr.split())[-400:]}")
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if any(not result["replicas_agree"] for result in results):
        raise UserError("replicas differ: the numbers mean nothing")
    return results


def choose_rates(free: float, limited: float, shares: list[float]) -> list[str]:
    """Rates in whole Mbit/s at which a limit costs the given shares of the time of a step.

    Parameters
    ----------
    free, limited
        Seconds a step without a limit, and at the rate of the trial.
    """
    megabits = (limited - free) * float(TRIAL.removesuffix("mbit"))  # that pass the busiest link in a step
    return [f"{max(1, round(megabits * (1 - share) / (share * free)))}mbit" for share in shares]


def between_hosts(result: dict[str, Any]) -> float:
    """Bytes a step that left their host."""
    return sum(channel["network_bytes"] for channel in result["channels"]) / result["steps"]


def of_rank(result: dict[str, Any], name: str) -> float:
    """Seconds that a rank spent so in a step, over all channels."""
    return sum(channel[name] for channel in result["channels"]) / result["steps"] / (HOSTS * RANKS_A_HOST)


def loss_at(result: dict[str, Any], seconds: float) -> float:
    """Mean training loss of the last steps that had ended by then."""
    ended = sum(end <= seconds for end in result["ends"])
    return statistics.fmean(result["losses"][max(0, ended - SMOOTH) : max(1, ended)])


def shown(interval: Interval, digits: int, sign: str = "") -> str:
    """An estimate with its interval."""
    if interval.low is None:
        return f"{interval.estimate:{sign}.{digits}f}"
    return f"{interval.estimate:{sign}.{digits}f} ({interval.low:{sign}.{digits}f} to {interval.high:{sign}.{digits}f})"


def compare(results: list[dict[str, Any]], free: float) -> list[dict[str, Any]]:
    """A row a scheme: against the baseline of the same repeat, and against what its bytes would allow."""
    of: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in sorted(results, key=lambda r: int(r["repeat"])):
        of[result["scheme"]].append(result)
    base, plain = of["baseline"], of["identity"]
    until = [min(runs[k]["ends"][-1] for runs in of.values()) for k in range(len(base))]
    rows = []
    for scheme, runs in of.items():
        share = statistics.fmean(between_hosts(r) for r in runs) / statistics.fmean(between_hosts(r) for r in plain)
        taken, taken_base = (statistics.fmean(r["seconds"] for r in which) for which in (runs, base))
        ideal = taken_base - (taken_base - free) * (1 - share)
        rows.append(
            {
                "scheme": scheme,
                "samples_per_s": statistics.fmean(r["samples_per_s"] for r in runs),
                "gflops_per_rank": statistics.fmean(r["gflops_per_rank"] for r in runs),
                "speed": paired_ratio([r["samples_per_s"] for r in runs], [r["samples_per_s"] for r in base]),
                "wire": None if scheme == "baseline" else share,
                "ideal_speed": taken_base / ideal,
                "share_of_ideal": (taken_base - taken) / (taken_base - ideal) if share < 0.999 else None,
                "loss_steps": paired_difference([r["valid"] for r in runs], [r["valid"] for r in base]),
                "loss_time": paired_difference(
                    [loss_at(r, t) for r, t in zip(runs, until, strict=True)],
                    [loss_at(r, t) for r, t in zip(base, until, strict=True)],
                ),
                "exposed_s": statistics.fmean(of_rank(r, "exposed_s") for r in runs),
                "hidden_s": statistics.fmean(of_rank(r, "hidden_s") for r in runs),
            }
        )
    return rows


def table(rate: str, rows: list[dict[str, Any]], free: float) -> Table:
    """The answer at one rate."""
    base = next(row for row in rows if row["scheme"] == "baseline")
    step = 1 / base["samples_per_s"]
    lost = 1 - free / (step * base["batch"])
    made = Table(title=f"links of {rate}: communication costs the baseline {lost:.0%} of its time", box=None)
    heads = (
        "samples/s",
        "GFLOPS/rank",
        "speed vs baseline (95 % CI)",
        "wire",
        "ideal",
        "share of ideal gain",
        "exposed, hidden",
    )
    made.add_column("scheme")
    for head in (*heads, "loss, equal steps", "loss, equal time"):
        made.add_column(head, justify="right")
    for row in rows:
        first = row["scheme"] == "baseline"
        made.add_row(
            row["scheme"],
            f"{row['samples_per_s']:.1f}",
            f"{row['gflops_per_rank']:.3f}",
            "-" if first else shown(row["speed"], 2),
            "-" if first else f"{row['wire']:.3f}",
            "-" if first else f"{row['ideal_speed']:.2f}",
            "-" if first or row["share_of_ideal"] is None else f"{row['share_of_ideal']:.2f}",
            f"{row['exposed_s'] * 1e3:.0f}, {row['hidden_s'] * 1e3:.0f} ms",
            f"{base['valid']:.4f}" if first else shown(row["loss_steps"], 4, "+"),
            "-" if first else shown(row["loss_time"], 4, "+"),
        )
    return made


def main() -> int:
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=Path, default=Path(__file__).with_suffix(".yaml"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="sets")
    parser.add_argument("--shares", type=float, nargs="+", default=[25.0, 40.0, 60.0], metavar="PERCENT")
    parser.add_argument(
        "--rates", nargs="+", metavar="RATE", help="of the links, in place of those that shares ask for"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return 0
    try:
        return measure(options)
    except UserError as error:
        print(f"throttled_training: {error}", file=sys.stderr)
        return 2


def measure(options: argparse.Namespace) -> int:
    """Calibrate, train, compare, print."""
    if reason := why_not():
        raise UserError(reason)
    room = Room("virtual hosts", RANKS_A_HOST, RANKS_A_HOST)
    runs = expand(load_study(options.study, options.sets), room)
    base = options.study.parent
    files = [run_file(run, site="hosts", threads=1, oversubscribe=True, device="cpu", base=base) for run in runs]
    batch = files[0]["train"]["global_batch"]
    repeats = sorted({run["repeat"] for run in files})
    everything: dict[str, Any] = {"machine": machine(), "study": options.study.read_text(), "rates": {}}
    console = Console(width=columns(), highlight=False)
    trial = next(run for run in files if run["scheme"]["name"] == "baseline")
    with Hosts(HOSTS) as hosts, progress() as show:
        turns = 1 + len(options.rates or options.shares) * len(repeats)
        show(0, turns, "the calibration")
        free = statistics.median(result["seconds"] for result in train(hosts, [trial] * 3))
        rates = options.rates
        if not rates:
            hosts.set_rate(TRIAL)
            limited = train(hosts, [trial])[0]["seconds"]
            rates = choose_rates(free, limited, [share / 100 for share in options.shares])
        for i, rate in enumerate(rates):
            hosts.set_rate(rate)
            results = []
            for k, repeat in enumerate(repeats):
                show(1 + i * len(repeats) + k, turns, f"{rate}, repeat {repeat}")
                results += train(hosts, [run for run in files if run["repeat"] == repeat])
            rows = compare(results, free)
            valid = statistics.fmean(r["valid"] for r in results if r["scheme"] == "baseline")
            for row in rows:
                row.update(batch=batch, valid=valid)
            everything["rates"][rate] = {"rows": rows, "free_step_s": free, "runs": results}
            console.print(table(rate, rows, free), "")
    console.print(f"{len(repeats)} repeats; a step takes {free * 1e3:.0f} ms without a limit.", LEGEND, soft_wrap=True)
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1, default=vars) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
