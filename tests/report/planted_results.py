"""Synthetic submissions on disk, whose numbers a report must reproduce."""

import json
import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hpcbench.contract import step_line
from hpcbench.contract.mark import FILE, Mark, format_mark
from hpcbench.contract.stamp import format_stamp
from hpcbench.contract.step_line import Step

FLOPS_PER_SAMPLE = 6.4e8
"""Operations per sample for the sizes in `settings`, rounded to a simple number."""
PARAMETERS = 820_000
RULES: dict[str, tuple[str, str, list[dict[str, Any]]]] = {
    "baseline": ("native", "none", []),
    "identity": ("two-shot", "none", []),
    "naive-bf16": ("two-shot", "bf16", []),
    "naive-zfp8": ("two-shot", "zfp:8", []),
    "naive-mpc": ("two-shot", "mpc", []),
    "mzhybrid": ("two-shot", "mpc", [{"dimension": "DP", "phase": None, "kind": None, "codec": "zfp:8"}]),
    "zhybrid-16-8": ("two-shot", "zfp:16", [{"dimension": "DP", "phase": None, "kind": None, "codec": "zfp:8"}]),
}


@dataclass
class Planted:
    """A run with given numbers in its log."""

    scheme: str
    repeat: int
    seconds: float
    """Time of each step after warm-up in seconds. Warm-up steps take ten times as long."""
    noise: float = field(default=0.0, kw_only=True)
    """Relative scatter of the step times."""
    loss: float
    """Validation loss at the end."""
    coded: float | None = field(default=None, kw_only=True)
    """Fraction of the bytes that the scheme's codec processed, or None if the log does not contain this fraction."""
    wire: float = 1.0
    """Wire bytes per message byte, if a codec or the MPI library can reduce them."""
    cell: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    """Variables of the scheme, which then uses the MPI library's own collectives."""
    exposed: float = 0.2
    """Fraction of each step that ranks spend waiting for messages.

    Hidden message time is half as long as this waiting time. Encoding and decoding each take a tenth of the waiting
    time.
    """
    hosts: dict[str, float] = field(default_factory=dict)
    """Factor for the computing time on each host. The ranks are divided evenly among the hosts.

    Without hosts, the ranks are on n1, and the log contains no computing times.
    """

    @property
    def wire_bytes(self) -> int:
        """Wire bytes of a step with a million message bytes."""
        may = self.environment or _codec(settings(self)) != "none"
        return round(1_000_000 * self.wire) if may else 1_000_000

    @property
    def id(self) -> str:
        """The run's id, in the format of `submit`."""
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
        "model": {"name": "gpt-tiny", "layers": 4, "hidden": 120, "heads": 4, "vocab": 160},
        "data": {"source": "stdlib", "path": None, "valid_fraction": 0.1},
        "train": {"steps": steps, "warmup_steps": warmup, "global_batch": 8, "seq_len": 128, "seed": 1000 + run.repeat},
        "layout": {"dp": 2, "tp": 2, "pp": 2, "chunks": 1, "stages": []},
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


def make_step(
    step: int, steps: int, loss: float, seconds: float, wire_bytes: int, *, batch: int = 8, ranks: int = 8
) -> Step:
    """Return a step with a million message bytes."""
    rate = batch / seconds
    flops = FLOPS_PER_SAMPLE * rate / ranks
    return Step(
        step=step,
        steps=steps,
        loss=loss,
        seconds=seconds,
        samples_per_s=rate,
        model_flops_per_rank=flops,
        hardware_flops_per_rank=flops,
        lr=1e-3,
        gradient_norm=1.25,
        message_bytes=1_000_000,
        wire_bytes=wire_bytes,
        skipped=0,
    )


def log_lines(run: Planted, *, steps: int = 12, warmup: int = 2, device: str = "cpu") -> list[str]:
    """Return the log lines of a completed run."""
    asked = settings(run, steps=steps, warmup=warmup, device=device)
    identity = {key: asked[key] for key in ("study", "run", "site", "repeat", "pairing", "cell")}
    hosts = [host for host in run.hosts for _ in range(8 // len(run.hosts))] or ["n1"] * 8
    world = [
        {"rank": rank, "host": hosts[rank], "pid": 4000 + rank, "cores": [0, 1], "threads": 1} for rank in range(8)
    ]
    facts = {"parameters": PARAMETERS, "model_flops_per_sample": FLOPS_PER_SAMPLE}
    scale = {"valid_loss_uniform": 5.545177, "valid_loss_unigram": 3.31}
    lines = [
        _event("start", time="2026-11-21T06:30:00.123Z", schema=1, version="0.1.0", scheme=run.scheme, **identity),
        _event("environment", mpi="MPICH 5.0.2", python="3.11.7", world=world),
        _event("configuration", run=asked, **facts, **scale),
    ]
    draw = random.Random(run.id)
    for k in range(1, steps + 1):
        seconds = run.seconds * (10 if k <= warmup else 1) * draw.lognormvariate(0, run.noise)
        loss = 5.5 - (5.5 - run.loss) * k / steps
        lines.append(step_line.format_step(make_step(k, steps, loss, seconds, run.wire_bytes)))
    measured = {"from_step": warmup + 1, "to_step": steps}
    lines.append(_event("traffic", **measured, channels=[_channel(run, asked, steps - warmup)]))
    compute = run.seconds * (1 - run.exposed)
    times = [
        {"host": host, "ranks": hosts.count(host), "compute_s": compute * slow, "over_peers": slow}
        for host, slow in run.hosts.items()
    ]
    if times:
        lines.append(_event("hosts", **measured, hosts=times))
    lines.append(_event("memory", host_rank_bytes=300_000_000, host_bytes=2_300_000_000))
    lines.append(_event("evaluation", step=steps, split="valid", loss=run.loss, tokens=4096))
    total_seconds = max(37.4, run.seconds * (10 * warmup + steps - warmup) + 1)
    ended = datetime(2026, 11, 21, 6, 30) + timedelta(seconds=max(60.0, total_seconds + 1))
    time = f"{ended.isoformat(timespec='milliseconds')}Z"
    lines.append(_event("end", time=time, state="completed", steps=steps, seconds=total_seconds, reason=""))
    return lines


def change(log: Path, event: str, data: dict[str, Any]) -> None:
    """Extend an event, or insert it before the end of the log."""
    lines = log.read_text().splitlines()
    place = next((i for i, line in enumerate(lines) if line.startswith(f'{{"event": "{event}"')), None)
    if place is None:
        place = len(lines) - 2
        lines.insert(place, json.dumps({"event": event}))
    lines[place] = json.dumps({**json.loads(lines[place]), **data})
    log.write_text("".join(line + "\n" for line in lines))


def change_settings(root: Path, run: Planted, *changes: tuple[str, str]) -> None:
    """Replace parts of a run's settings in its log and its run.json."""
    for path in (root / "runs" / run.id / "log.txt", root / "runs" / run.id / "run.json"):
        text = path.read_text()
        for old, new in changes:
            assert text.count(old) == 1
            text = text.replace(old, new)
        path.write_text(text)


def write_log(path: Path, run: Planted, **events: dict[str, Any]) -> Path:
    """Write the log of a completed run, in which these events are extended or inserted."""
    path.write_text("".join(f"{line}\n" for line in log_lines(run)))
    for event, data in events.items():
        change(path, event, data)
    return path


def _codec(asked: dict[str, Any]) -> str:
    return str(next((rule["codec"] for rule in asked["scheme"]["rules"]), asked["scheme"]["default"]))


def _channel(run: Planted, asked: dict[str, Any], steps: int) -> dict[str, Any]:
    """Return all traffic of the run in one channel."""
    codec = _codec(asked)
    exposed = run.exposed * run.seconds * steps * 8
    coding = 0.0 if codec == "none" else 0.1 * exposed
    return {
        "dimension": "DP",
        "phase": "BACKWARD",
        "kind": "GRAD",
        "codec": codec,
        "algorithm": asked["scheme"]["algorithm"],
        "calls": steps * 8,
        "plain_calls": 0,
        "message_bytes": 1_000_000 * steps,
        **({} if run.coded is None else {"coded_bytes": round(1_000_000 * steps * run.coded) * (codec != "none")}),
        "wire_bytes": run.wire_bytes * steps,
        "network_bytes": 0,
        "encode_s": coding,
        "decode_s": coding,
        "transfer_s": 1.5 * exposed - 2 * coding,
        "exposed_s": exposed,
        "hidden_s": 0.5 * exposed,
        "sampled_error": None if codec == "none" else 0.054,
    }


def write(root: Path, runs: list[Planted], *, steps: int = 12, warmup: int = 2, device: str = "cpu") -> Path:
    """Write a submission of completed runs, with a job for each repeat.

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
        start, end = "2026-11-21T06:29:59Z", "2026-11-21T06:40:00Z"
        mark = Mark("ended", exit=0, start=start, end=end, host="n1")
        (root / "jobs" / job / FILE).write_text(format_mark(mark))
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
        "jobs": [{"id": job, "runs": job_runs, "walltime": None, "stop_ahead": 1} for job, job_runs in jobs.items()],
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


def titan_lines(tps: int) -> list[str]:
    """Return the lines of torchtitan for 12 steps. They contain the tokens per second of each rank."""
    ending = "grad_norm:  3.1  memory: 18.50GiB(23.41%)  tps: {}  tflops: 90.12  mfu: 28.89%"
    return [f"step: {step}  loss:  2.5  {ending.format(tps)}" for step in range(1, 13)]


def write_program(root: Path, form: Any, lines: dict[str, list[list[str]]]) -> Path:
    """Write a submission of a program. `lines` contains what each repeat of a scheme printed, one line per second."""
    write(root, runs := [Planted(scheme, k + 1, 0.1, 2.0) for scheme in lines for k in range(len(lines[scheme]))])
    plan = json.loads((root / "submission.json").read_text())
    (root / "submission.json").write_text(json.dumps(plan | {"program_log": form}))
    for run in runs:
        directory = root / "runs" / run.id
        asked = {
            name: value for name, value in settings(run).items() if name not in ("model", "data", "train", "layout")
        }
        asked |= {"program": {"command": "python train.py", "log": form, "steps": 12, "warmup_steps": 2}}
        (directory / "run.json").write_text(json.dumps(asked))
        start, *_, end = log_lines(run)
        stamped = [
            format_stamp(second).decode() + line for second, line in enumerate(lines[run.scheme][run.repeat - 1])
        ]
        (directory / "log.txt").write_text("\n".join([start, *stamped, end, ""]))
    return root


def write_marker(directory: Path, job: str, status: int) -> None:
    """Write the status file of a run that ended. Each job runs in a different hour."""
    start = datetime(2026, 11, 21, 6, 30) + timedelta(hours=int(job[1:5]) - 1)
    end = start + timedelta(minutes=1)
    span = f"{start.isoformat()}Z", f"{end.isoformat()}Z"
    mark = Mark("ended", exit=status, start=span[0], end=span[1], host="n1", job=job)
    (directory / FILE).write_text(format_mark(mark))


def _event(name: str, **fields: Any) -> str:
    return json.dumps({"event": name, **fields})
