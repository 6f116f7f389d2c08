"""Is the wait worth more than the age of the weights costs? What a submission of studies/staleness.yaml says of it.

    hpcbench submit studies/staleness.yaml --site sites/virtual-hosts.yaml --out results/staleness --wait
    python benchmarks/staleness.py results/staleness [--json FILE] [--tiny]

Arms are the ways to keep stages or replicas in step; each is compared with its reference, `1f1b` for pipelines and
collectives for replicas, over pairs of runs of the same seed and scheme. Time to a loss: the seconds in steps until the
mean of the last losses (a twentieth of the steps) was as low as the reference's at its end, with one part in a hundred
on top; a ratio below 1 is faster. Runs that never got there are counted. Bubble: the part of forward and backward
passes in which stages wait for messages, the mean over stages. Staleness: the parts of all gradients by the number of
updates that their weights were old. With ``--tiny`` it submits a few short runs of the study itself.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from provenance import head
from rich.console import Console
from rich.table import Table
from tiny import parse

from hpcbench.collect.find import jobs_of, resolve
from hpcbench.collect.submission import RunResult, load
from hpcbench.console import columns
from hpcbench.contract.events import Phases, Staleness
from hpcbench.errors import UserError
from hpcbench.report.compare import WINDOW, curve
from hpcbench.report.statistics import Interval, paired_difference, paired_ratio

STUDY = Path(__file__).parents[1] / "studies/staleness.yaml"
TINY = (
    *("train.steps=6", "train.warmup_steps=1", "train.eval_every=0", "train.eval_samples=4", "train.seq_len=32"),
    *("model.hidden=32", "model.layers=2", "repeats=1", "matrix.scheme=[baseline]"),
    "matrix.zip=[{train.schedule: [1f1b, pipedream, 1f1b, 1f1b], "
    "train.sync: [all-reduce, all-reduce, all-reduce, asp], "
    "layout.pp: [2, 2, 1, 1], layout.dp: [1, 1, 2, 2]}]",
)
"""A pipeline and two replicas, waiting and not."""
MARGIN = 1.01
"""A run has reached the reference when its loss is at most this factor of the reference's last one."""


def arm_of(settings: Mapping[str, Any]) -> str:
    """The way in which a run keeps its ranks in step."""
    train, layout = settings["train"], settings["layout"]
    if layout["pp"] > 1:
        return f"{train['schedule']}{', vertical sync' if train['vertical_sync'] else ''}"
    sync = f"{train['sync']}({train['staleness']})" if train["sync"] == "ssp" else train["sync"]
    return f"{sync}, rank {train['slow_rank']} x {train['slow_factor']:g}" if train["slow_factor"] > 1 else sync


def reference_of(arm: str, arms: Sequence[str]) -> str | None:
    """The arm that an arm is compared with: one that waits."""
    pipelines = ("gpipe", "1f1b", "interleaved", "pipedream")
    wanted = "1f1b" if arm.startswith(pipelines) else "all-reduce"
    return next((other for other in arms if other.startswith(wanted)), None)


def bubble(run: RunResult) -> float | None:
    """Part of the passes in which stages wait for messages."""
    stages = run.log.said(Phases).stages if run.log else None
    if not stages:
        return None
    parts = []
    for stage in stages:
        if stage.bubble_s is None or stage.forward_s is None or stage.backward_s is None:
            return None
        passes = stage.bubble_s + stage.forward_s + stage.backward_s
        parts.append(stage.bubble_s / passes if passes else 0.0)
    return fmean(parts)


def histogram(runs: Sequence[RunResult]) -> dict[int, float]:
    """Parts of all gradients by their staleness; all of none where the weights are always the newest."""
    counts: Counter[int] = Counter()
    for run in runs:
        for place in (run.log.said(Staleness).places if run.log else None) or ():
            counts.update({int(age): number for age, number in (place.counts or {}).items()})
    total = sum(counts.values())
    return {age: counts[age] / total for age in sorted(counts)} if total else {0: 1.0}


def times_to(mine: RunResult, other: RunResult) -> tuple[float, float] | None:
    """Seconds of a run and of its reference to the reference's loss; None if the run never got there."""
    ours, theirs = curve(mine.log), curve(other.log)
    if ours is None or theirs is None:
        return None
    window = max(1, round(WINDOW * min(len(ours.times), len(theirs.times))))
    last = theirs.loss_at(theirs.times[-1], window)
    if last is None:
        return None
    pair = ours.time_to(last * MARGIN, window), theirs.time_to(last * MARGIN, window)
    return (pair[0], pair[1]) if pair[0] is not None and pair[1] is not None else None


def compared(runs: Sequence[RunResult]) -> list[dict[str, Any]]:
    """A row for each arm and scheme."""
    by_arm: dict[tuple[str, str], dict[int, RunResult]] = defaultdict(dict)
    for run in runs:
        if run.state == "completed" and run.log is not None:
            by_arm[arm_of(run.settings), run.scheme][run.repeat] = run
    arms = list(dict.fromkeys(arm for arm, _ in by_arm))
    rows = []
    for (arm, scheme), own in by_arm.items():
        reference = reference_of(arm, arms)
        others = by_arm.get((reference or "", scheme), {})
        seeds = sorted(own.keys() & others.keys())
        reached = [pair for seed in seeds if (pair := times_to(own[seed], others[seed]))]
        idle = [
            (a, b) for seed in seeds if (a := bubble(own[seed])) is not None and (b := bubble(others[seed])) is not None
        ]
        losses = [
            (a, b)
            for seed in seeds
            if (a := own[seed].log.final_loss()) is not None and (b := others[seed].log.final_loss()) is not None
        ]
        rows.append(
            {
                "arm": arm,
                "scheme": scheme,
                "against": reference,
                "pairs": len(seeds),
                "time_to_loss": paired_ratio(*zip(*reached, strict=True)) if reached and reference != arm else None,
                "reached": len(reached),
                "loss": paired_difference(*zip(*losses, strict=True)) if losses and reference != arm else None,
                "bubble": fmean(a for a, _ in idle) if idle else None,
                "bubble_change": paired_difference(*zip(*idle, strict=True)) if idle and reference != arm else None,
                "staleness": histogram(list(own.values())),
            }
        )
    return rows


def told(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows, with 95 % intervals over the pairs."""
    page = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("arm", "scheme", "pairs", "time to loss, of the reference's", "reached", "loss minus the reference's"):
        page.add_column(name)
    for name in ("bubble", "minus the reference's", "staleness"):
        page.add_column(name)
    for row in rows:
        ages = ", ".join(f"{age}: {part:.0%}" for age, part in row["staleness"].items())
        page.add_row(
            row["arm"],
            row["scheme"],
            str(row["pairs"]),
            _shown(row["time_to_loss"], "1" if row["against"] == row["arm"] else "-"),
            f"{row['reached']} of {row['pairs']}",
            _shown(row["loss"], "-", signed=True),
            "-" if row["bubble"] is None else f"{row['bubble']:.3f}",
            _shown(row["bubble_change"], "-", signed=True),
            ages,
        )
    return page


def _shown(interval: Interval | None, none: str, *, signed: bool = False) -> str:
    if interval is None:
        return none
    sign = "+" if signed else ""
    if interval.low is None or interval.high is None:
        return f"{interval.estimate:{sign}.3f}"
    return f"{interval.estimate:{sign}.3f} ({interval.low:{sign}.3f} to {interval.high:{sign}.3f})"


def submit(settings: Sequence[str], directory: Path) -> None:
    """Train a few runs of the study on this machine."""
    sets = [word for one in settings for word in ("--set", one)]
    command = [str(Path(sys.executable).with_name("hpcbench")), "submit", str(STUDY), "--site", "local"]
    done = subprocess.run([*command, "--out", str(directory), "--wait", *sets], capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"{STUDY}: {done.stderr.strip() or done.stdout.strip()}")


def main() -> int:
    """Read the options and print; returns the exit status."""
    parser = argparse.ArgumentParser(description="What waiting and old weights cost, of a submission.")
    parser.add_argument("directory", type=Path, nargs="?", help="what `hpcbench submit studies/staleness.yaml` made")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the rows, beside the table")
    options = parse(parser)
    try:
        if options.directory is None and not options.tiny:
            raise UserError("DIRECTORY: is missing: submit studies/staleness.yaml first, or use --tiny")
        with tempfile.TemporaryDirectory(prefix="staleness-") as scratch:
            if options.directory is None:
                submit(TINY, Path(scratch))
            root = resolve(options.directory or Path(scratch))
            rows = compared(load(root, jobs_of(root)).runs)
        if not rows:
            raise UserError(f"{options.directory}: holds no completed runs")
    except UserError as error:
        print(f"staleness.py: {error}", file=sys.stderr)
        return 2
    for line in head(Path(__file__)):
        print(line)
    Console(width=columns(), highlight=False).print(told(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1, default=vars) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
