"""Results as a submission leaves them on disk, written with chosen numbers: what a report must read back."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcbench.train.log import Step

FLOPS_PER_SAMPLE = 6.4e8
PARAMETERS = 820_000
RULES: dict[str, tuple[str, str, list[dict[str, Any]]]] = {
    "baseline": ("native", "none", []),
    "identity": ("two-shot", "none", []),
    "naive-zfp8": ("two-shot", "zfp:8", []),
    "naive-mpc": ("two-shot", "mpc", []),
    "mzhybrid": ("two-shot", "mpc", [{"dimension": "DP", "phase": None, "kind": None, "codec": "zfp:8"}]),
    "zhybrid-16-8": ("two-shot", "zfp:16", [{"dimension": "DP", "phase": None, "kind": None, "codec": "zfp:8"}]),
}


@dataclass
class Planted:
    """One run with the numbers that its log is to give."""

    scheme: str
    repeat: int
    seconds: float
    """Of each step after the warm-up; the steps of the warm-up take ten times as long."""
    loss: float
    """Validation loss at the end."""
    wire: float = 1.0
    """Wire bytes per message byte."""
    cell: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    """Variables of the scheme, which then is the MPI library's own."""

    @property
    def id(self) -> str:
        """The run's id, as `submit` makes it."""
        return "-".join([f"r{self.repeat}", *(f"{key}{value}" for key, value in self.cell.items()), self.scheme])


def settings(run: Planted, *, steps: int = 12, warmup: int = 2, device: str = "cpu") -> dict[str, Any]:
    """The run's ``run.json``."""
    algorithm, default, rules = RULES.get(run.scheme, ("two-shot", "zfp:8", []))
    if run.environment:
        algorithm, default, rules = "native", "none", []
    return {
        "schema": 1,
        "study": "demo",
        "name": "demo-000000",
        "site": "local",
        "run": run.id,
        "repeat": run.repeat,
        "pairing": f"r{run.repeat}",
        "cell": run.cell,
        "model": {"name": "gpt-tiny", "layers": 4, "hidden": 128, "heads": 4, "vocab": 256},
        "data": {"source": "stdlib", "path": None, "valid_fraction": 0.1},
        "train": {"steps": steps, "warmup_steps": warmup, "global_batch": 8, "seq_len": 128, "seed": 1000 + run.repeat},
        "layout": {"dp": 2, "tp": 2, "pp": 2},
        "scheme": {
            "name": run.scheme,
            "algorithm": algorithm,
            "default": default,
            "rules": rules,
            "environment": run.environment,
        },
        "ranks": 8,
        "threads": 1,
        "oversubscribe": True,
        "device": device,
    }


def log_lines(run: Planted, *, steps: int = 12, warmup: int = 2, device: str = "cpu") -> list[str]:
    """The lines of a run that completed."""
    asked = settings(run, steps=steps, warmup=warmup, device=device)
    identity = {key: asked[key] for key in ("study", "run", "site", "repeat", "pairing", "cell")}
    world = [{"rank": rank, "host": "n1", "pid": 4000 + rank, "cores": [0, 1], "threads": 1} for rank in range(8)]
    facts = {"parameters": PARAMETERS, "model_flops_per_sample": FLOPS_PER_SAMPLE}
    scale = {"valid_loss_uniform": 5.545177, "valid_loss_unigram": 3.31}
    lines = [
        _event("start", time="2026-11-21T06:30:00.123Z", schema=1, version="0.1.0", scheme=run.scheme, **identity),
        _event("environment", mpi="MPICH 5.0.2", python="3.11.7", world=world),
        _event("configuration", run=asked, **facts, **scale),
    ]
    for k in range(1, steps + 1):
        seconds = run.seconds * (10 if k <= warmup else 1)
        rate = 8 / seconds
        flops = FLOPS_PER_SAMPLE * rate / 8
        loss = 5.5 - (5.5 - run.loss) * k / steps
        wire = round(1_000_000 * run.wire)
        lines.append(Step(k, steps, loss, seconds, rate, flops, flops, 1e-3, 1.25, 1_000_000, wire, 0).line())
    counted = {
        "message_bytes": 1_000_000 * (steps - warmup),
        "wire_bytes": round(1_000_000 * run.wire) * (steps - warmup),
    }
    lines.append(_event("traffic", from_step=warmup + 1, to_step=steps, channels=[{"dimension": "DP", **counted}]))
    lines.append(_event("evaluation", step=steps, split="valid", loss=run.loss, tokens=4096))
    lines.append(
        _event("end", time="2026-11-21T06:31:00.000Z", state="completed", steps=steps, seconds=37.4, reason="")
    )
    return lines


def write(root: Path, runs: list[Planted], *, steps: int = 12, warmup: int = 2, device: str = "cpu") -> Path:
    """Write a submission in which all runs completed; one job a repeat.

    Returns
    -------
    Path
        `root`.
    """
    jobs: dict[str, list[str]] = {}
    for run in runs:
        jobs.setdefault(f"j{run.repeat:04}-r{run.repeat}", []).append(run.id)
        directory = root / "runs" / run.id
        directory.mkdir(parents=True)
        lines = log_lines(run, steps=steps, warmup=warmup, device=device)
        (directory / "log.txt").write_text("".join(line + "\n" for line in lines))
        (directory / "err.txt").write_text("")
        (directory / "run.json").write_text(json.dumps(settings(run, steps=steps, warmup=warmup, device=device)))
        write_marker(directory, f"j{run.repeat:04}-r{run.repeat}", 0)
    for job in jobs:
        (root / "jobs" / job).mkdir(parents=True)
        (root / "jobs" / job / "status.json").write_text(
            json.dumps(
                {
                    "state": "ended",
                    "attempt": 1,
                    "exit": 0,
                    "start": "2026-11-21T06:29:59Z",
                    "end": "2026-11-21T06:40:00Z",
                    "host": "n1",
                }
            )
        )
    plan = {
        "schema": 1,
        "version": "0.1.0",
        "study": "demo",
        "name": "demo-000000",
        "site": "local",
        "scheduler": "local",
        "time": "2026-11-21T06:29:58Z",
        "baseline": {"scheme": "baseline"},
        "criteria": {"speed_margin": 0.01, "loss_margin": 0.01},
        "steps": steps,
        "repeats": len(jobs),
        "bundles": [],
        "jobs": [{"id": job, "runs": own, "walltime": None, "stop_ahead": 1} for job, own in jobs.items()],
        "runs": [
            {
                "id": run.id,
                "job": f"j{run.repeat:04}-r{run.repeat}",
                "repeat": run.repeat,
                "pairing": f"r{run.repeat}",
                "cell": run.cell,
                "scheme": run.scheme,
                "path": f"runs/{run.id}",
            }
            for run in runs
        ],
    }
    (root / "submission.json").write_text(json.dumps(plan, indent=1))
    return root


def write_marker(directory: Path, job: str, status: int) -> None:
    """The exit marker of a run that ended."""
    marker = {"state": "ended", "exit": status, "start": "2026-11-21T06:30:00Z", "end": "2026-11-21T06:31:00Z"}
    (directory / "status.json").write_text(json.dumps({**marker, "host": "n1", "job": job}))


def _event(name: str, **fields: Any) -> str:
    return json.dumps({"event": name, **fields})
