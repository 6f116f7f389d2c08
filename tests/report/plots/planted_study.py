"""Synthetic submissions in memory, parsed from logs like those on disk."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planted_results import FLOPS_PER_SAMPLE, make_step

from hpcbench.collect.run_log import LogReader
from hpcbench.collect.submission import RunResult, Submission
from hpcbench.contract import step_line
from hpcbench.contract.settings import LoggedSettings
from hpcbench.contract.state import ResolvedState
from hpcbench.contract.submission import RunPlan
from hpcbench.report.compare import Cell, compare
from hpcbench.report.measures import measure


def _falling(step: int) -> float:
    return 2.0 + 3.0 / step


@dataclass
class Run:
    """A run, and the content of its log."""

    scheme: str
    repeat: int = 1
    seconds: float = 0.5
    loss: Callable[[int], float] = _falling
    """Training loss of a step."""
    valid: dict[int, float] = field(default_factory=dict)
    """Validation loss after a step, by default after the last one."""
    wire: float = 1.0
    cell: dict[str, Any] = field(default_factory=dict)
    ranks: int = 8
    batch: int = 8
    state: str = "completed"
    taken: int | None = None
    """Steps that the log contains (default: all)."""
    channels: list[dict[str, Any]] = field(default_factory=list)
    resumed_from: int = 0
    every: int = 1
    """Number of steps per line of the log."""


def channel(dimension: str = "DP", *, phase: str = "BACKWARD", codec: str = "zfp:8", **values: Any) -> dict[str, Any]:
    """Return an entry of a ``traffic`` event. Numbers that are not given are 0."""
    zero = dict.fromkeys(("message_bytes", "wire_bytes"), 0)
    seconds = dict.fromkeys(("encode_s", "decode_s", "transfer_s", "exposed_s", "hidden_s"), 0.0)
    text = {"dimension": dimension, "phase": phase, "kind": "GRAD", "codec": codec, "calls": 1, "sampled_error": None}
    return {**zero, **seconds, **text, **values}


def result(run: Run, *, steps: int, warmup: int = 2) -> RunResult:
    """Return the result that `hpcbench.collect` reads from such a run."""
    settings = {
        "train": {"steps": steps, "warmup_steps": warmup, "global_batch": run.batch, "seq_len": 128},
        "ranks": run.ranks,
        "device": "cpu",
        "scheme": {"name": run.scheme, "default": "none", "rules": [], "environment": {}},
    }
    start = {"event": "start", "scheme": run.scheme, "resumed_from": run.resumed_from or None}
    lines = [json.dumps(start), _event("configuration", run=settings, model_flops_per_sample=FLOPS_PER_SAMPLE)]
    taken = steps if run.taken is None else run.taken
    for k in range(run.resumed_from + run.every, taken + 1, run.every):
        wire = round(1_000_000 * run.wire)
        step = make_step(k, steps, run.loss(k), run.seconds, wire, batch=run.batch, ranks=run.ranks)
        lines.append(step_line.format_step(step))
        if k in run.valid:
            lines.append(_event("evaluation", step=k, split="valid", loss=run.valid[k]))
    if run.channels:
        lines.append(_event("traffic", from_step=warmup + 1, to_step=taken, channels=run.channels))
    if not run.valid and taken == steps:
        lines.append(_event("evaluation", step=steps, split="valid", loss=run.loss(steps)))
    reader = LogReader(Path(f"{run.scheme}.log"))
    reader.feed("".join(f"{line}\n" for line in lines).encode())
    return RunResult(
        id=f"r{run.repeat}-{run.scheme}",
        study="planted",
        site="local",
        scheme=run.scheme,
        repeat=run.repeat,
        pairing=f"r{run.repeat}",
        cell=run.cell,
        verdict=ResolvedState(run.state),  # type: ignore[arg-type]
        log=reader.close(),
        settings=LoggedSettings.read(settings),
    )


def planted(runs: list[Run], *, steps: int = 20) -> tuple[Submission, list[Cell]]:
    """Return a submission of these runs, and its comparison with the scheme ``baseline``."""
    plan = RunPlan(study="planted", site="local", jobs=[], runs=[])
    submission = Submission(None, plan, [result(run, steps=steps) for run in runs])
    return submission, compare([measure(run) for run in submission.runs], "baseline", plan.criteria)


def _event(name: str, **fields: Any) -> str:
    return json.dumps({"event": name, **fields})
