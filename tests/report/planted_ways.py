"""Synthetic submissions in memory, whose runs use different synchronization methods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcbench.collect.run_log import RunLog
from hpcbench.collect.submission import RunResult, Submission
from hpcbench.contract.events import Evaluation, PhaseTimes, StageTimes, Staleness, StalenessOf
from hpcbench.contract.settings import LoggedSettings
from hpcbench.contract.state import ResolvedState, State
from hpcbench.contract.step_line import Step
from hpcbench.contract.submission import RunPlan
from hpcbench.report.compare import Cell, compare
from hpcbench.report.measures import measure


@dataclass
class Run:
    """A run, and the numbers in its log."""

    cell: dict[str, Any]
    """Settings such as ``{"train.schedule": "pipedream", "layout.pp": 4}``."""
    repeat: int = 1
    scheme: str = "baseline"
    seconds: float = 1.0
    """Time of each step in seconds."""
    losses: Sequence[float] = (5.0, 4.0, 3.0, 2.0)
    """Training losses of the run's steps."""
    valid: Mapping[int, float] = field(default_factory=dict)
    """Validation losses by step."""
    state: str = "completed"
    stages: Sequence[tuple[float, float]] = ()
    """For each stage, the time of both passes and the time spent waiting for messages within them, in seconds."""
    ages: Sequence[Mapping[str, int]] = ()
    """For each stage or shard, the number of gradients by staleness."""


def _log(run: Run) -> RunLog:
    run_log = RunLog(Path(f"/runs/{run.repeat}/log.txt"))
    for k, loss in enumerate(run.losses, 1):
        run_log.steps.add(Step(k, len(run.losses), line=k, loss=loss, seconds=run.seconds))
    run_log.events += [
        Evaluation(step=step, split="valid", loss=loss, tokens=1, line=90) for step, loss in run.valid.items()
    ]
    if run.stages:
        remainder = {"reduction_s": 0.125, "optimizer_s": 0.0625, "other_s": 0.0625}
        stages = tuple(
            StageTimes(
                stage=k, forward_s=busy / 2, backward_s=busy / 2, bubble_s=idle, step_s=busy + idle + 0.25, **remainder
            )
            for k, (busy, idle) in enumerate(run.stages)
        )
        run_log.events.append(PhaseTimes(from_step=1, to_step=len(run.losses), stages=stages, line=91))
    if run.ages:
        places = tuple(StalenessOf(place=k, counts=dict(counts)) for k, counts in enumerate(run.ages))
        run_log.events.append(Staleness(of="stage", places=places, line=92))
    return run_log


def _result(run: Run) -> RunResult:
    train = {"schedule": "1f1b", "sync": "all-reduce", "vertical_sync": False, "staleness": 0, "seed": 7 + run.repeat}
    layout = {"pp": 1, "dp": 1, "tp": 1, "chunks": 1, "stages": []}
    settings: dict[str, Any] = {"train": train | {"steps": len(run.losses), "warmup_steps": 0}, "layout": layout}
    for key, value in run.cell.items():
        section, _, name = key.partition(".")
        settings[section][name] = value
    return RunResult(
        id=f"r{run.repeat}-{run.scheme}",
        study="ways",
        site="local",
        scheme=run.scheme,
        repeat=run.repeat,
        pairing=f"r{run.repeat}",
        cell=run.cell,
        verdict=ResolvedState(State(run.state)),
        log=_log(run),
        settings=LoggedSettings.read(settings),
    )


def planted(runs: Sequence[Run], *, margin: float = 0.0) -> tuple[Submission, list[Cell]]:
    """Return the comparison for a submission that consists of these runs."""
    plan = RunPlan(study="ways", site="local", baseline={"scheme": "baseline"}, jobs=[], runs=[])
    plan = plan.model_copy(update={"criteria": plan.criteria.model_copy(update={"loss_margin": margin})})
    results = list(map(_result, runs))
    return Submission(None, plan, results), compare([measure(run) for run in results], "baseline", plan.criteria)
