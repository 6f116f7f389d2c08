"""What became of a run: judged from its exit marker, its job and its log.

Nothing is taken for success that does not say so itself: a run is ``completed`` only by the end event of its own log.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from hpcbench.collect.diagnosis import Diagnosis, diagnose
from hpcbench.collect.lines import integer, printable, text
from hpcbench.collect.run_log import RunLog

State = Literal[
    "completed",
    "nan",
    "failed",
    "running",
    "suspended",
    "pending",
    "stopped",
    "timed out",
    "out of memory",
    "node failure",
    "preempted",
    "cancelled",
    "lost",
    "unknown",
    "incomplete",
]
"""``nan``: the loss stopped being a number. ``stopped``: it was told to, and would go on from a checkpoint. ``lost``:
what ran it is gone and left no exit marker. ``incomplete``: a log without its end, and nobody to ask. ``unknown``: what
there is does not say."""

JobState = Literal[
    "pending",
    "running",
    "suspended",
    "ended",
    "timed out",
    "out of memory",
    "node failure",
    "preempted",
    "cancelled",
    "lost",
    "unknown",
]

OPEN: frozenset[State] = frozenset({"running", "suspended", "pending"})
BAD: frozenset[State] = frozenset(get_args(State)) - OPEN - {"completed"}
"""States that make `report` exit with 1: the run is over, and is no measurement."""
_DONE_TO_IT: frozenset[JobState] = frozenset({"timed out", "out of memory", "node failure", "preempted", "cancelled"})
"""What a scheduler does to a job; its runs then end with whatever status."""
_ASKED_TO_END = (129, 130, 137, 140, 143)
"""What a shell says of SIGHUP, SIGINT, SIGKILL, SIGUSR2 (LSF's at the run limit) and SIGTERM."""
_OVERTIME = 124


@dataclass(frozen=True)
class Job:
    """The job that a run belongs to."""

    id: str
    state: JobState
    exit: int | None = None
    reason: str = ""
    """In its scheduler's words."""
    attempt: int = 1
    """The attempt that is under way, or was the last."""


@dataclass(frozen=True)
class Verdict:
    """A run's state; the reason is empty where the state says it all."""

    state: State
    reason: str = ""
    where: str | None = None
    """``file:line`` that the reason was read from."""

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.state}{reason}" + (f" ({self.where})" if self.where else "")


def judge(marker: Any, job: Job, log: RunLog | None, directory: Path) -> Verdict:
    """State of a run of a submission.

    Parameters
    ----------
    marker
        The run's ``status.json``, as it was written; None where there is none.
    job
        Its job.
    log
        Its log; None where there is none.
    directory
        Of the run, where ``err.txt`` and ``log.txt`` lie.
    """
    if marker is not None and text(marker, "state") not in ("running", "ended") and job.state != "running":
        return Verdict("unknown", "its exit marker cannot be read", f"{directory / 'status.json'}:1")
    status, attempt = integer(marker, "exit"), integer(marker, "attempt") or 1
    if marker is not None and status != 0 and job.state in OPEN and attempt < job.attempt:
        return Verdict("pending", f"to go on in attempt {job.attempt}")
    if text(marker, "state") == "ended":
        return _ended(status, job, log, directory)
    began = marker is not None or (log is not None and log.lines > 0)
    progress = f" {_progress(log)}" if began else ""
    if job.state in OPEN:
        # A scheduler's word may be older than the run's marks.
        begun: State = "suspended" if job.state == "suspended" else "running"
        return Verdict(begun if began else "pending", job.reason if not began else "")
    if log is not None and log.event("end"):
        return _by_end_event(log)
    if job.state in _DONE_TO_IT:
        return Verdict(cast(State, job.state), f"{_fate(job)}{progress}")
    if job.state == "ended":
        said = "" if job.exit is None else f" (exit status {job.exit})"
        if began:
            return Verdict("lost", f"job {job.id} ended{said} and left no word of this run{progress}", _last(log))
        return Verdict("lost", f"job {job.id} ended{said} before this run began")
    if job.state == "lost":
        return Verdict("lost", f"what ran job {job.id} is gone and left no exit marker{progress}", _last(log))
    if log is not None and log.lines:
        return judge_log(log)
    said = f": {printable(job.reason, 200)}" if job.reason else ""
    return Verdict("unknown", f"nothing says what became of job {job.id}{progress}{said}")


def judge_log(log: RunLog) -> Verdict:
    """State of a run of which there is but the log."""
    if log.event("end"):
        return _by_end_event(log)
    if diverged := _diverged(log):
        return diverged
    if log.event("start") is None and not log.steps:
        return Verdict("unknown", "no line of a run in it", str(log.path))
    missing = "has no end event" if log.dialect == "hpcbench" else "does not say how the run ended"
    return Verdict("incomplete", f"the log {missing}: {_progress(log)}", _last(log))


def diverged_at(log: RunLog | None) -> int | None:
    """The first step whose loss is no finite number."""
    if log is None or all(map(math.isfinite, log.steps.column("loss"))):
        return None
    return next(int(step) for step, loss in log.steps.columns("step", "loss") if not math.isfinite(loss))


def _ended(status: int | None, job: Job, log: RunLog | None, directory: Path) -> Verdict:
    end = log.event("end") if log else None
    if end is not None and text(end.data, "state") == "stopped" and job.state in OPEN:
        return Verdict("pending")  # the job goes on with it when it comes out of the queue again
    if job.state in OPEN and job.exit is not None and status in _ASKED_TO_END:
        return Verdict("running", job.reason)  # its scheduler is about to say why
    if status is None:
        return Verdict("unknown", "its exit marker lacks the exit status", f"{directory / 'status.json'}:1")
    if status == 0:
        if log is not None and end is None and (diverged := _diverged(log)):
            return diverged
        if log is None or end is None:
            missing = "there is no log" if log is None else "its log has no end event"
            return Verdict("unknown", f"exit status 0, but {missing}: how it ended is not known", _last(log))
        return _by_end_event(log)
    if log is not None and end is not None and text(end.data, "state") != "completed":
        return _by_end_event(log)
    if job.state in _DONE_TO_IT and status in _ASKED_TO_END:
        return Verdict(cast(State, job.state), f"{_fate(job)} {_progress(log)}", _last(log))
    if status == _OVERTIME:
        return Verdict("timed out", f"met its own time limit {_progress(log)}", _last(log))
    found = _diagnose(status, log, directory)
    if end is not None:
        return Verdict("failed", f"all steps were taken, then: {found.reason}", found.where or _last(log))
    if log is not None and (diverged := _diverged(log)):
        return diverged
    return Verdict("failed", f"{found.reason}, {_progress(log)}", found.where or _last(log))


def _by_end_event(log: RunLog) -> Verdict:
    end = log.event("end")
    assert end is not None
    state, reason = text(end.data, "state"), printable(text(end.data, "reason") or "")
    where = log.where(end.line)
    if state == "completed":
        return Verdict("completed")
    if state == "nan":
        step = diverged_at(log)
        return Verdict("nan", reason or f"the loss is not finite at step {step}", where)
    if state == "failed":
        return Verdict("failed", reason or "the worker gives no reason", where)
    if state == "stopped":
        return Verdict("stopped", reason or f"told to stop {_progress(log)}", where)
    return Verdict("unknown", f"the end event has the state '{printable(str(state), 40)}'", where)


def _diverged(log: RunLog) -> Verdict | None:
    last = log.last_step
    if last is None or last.loss is None or math.isfinite(last.loss):
        return None
    return Verdict("nan", f"loss is {last.loss} at step {last.step}, and the log ends there", log.where(last.line))


def _diagnose(status: int, log: RunLog | None, directory: Path) -> Diagnosis:
    return diagnose(status, [directory / "err.txt", directory / "log.txt"], log.ranks if log else ())


def _fate(job: Job) -> str:
    said = f" ({printable(job.reason, 120)})" if job.reason else ""
    return f"job {job.id} was cancelled{said}" if job.state == "cancelled" else f"job {job.id}: {job.state}{said}"


def _progress(log: RunLog | None) -> str:
    last = log.last_step if log else None
    if last is None:
        return "before its first step"
    planned = "" if last.steps is None else f" of {last.steps}"
    return f"after step {last.step}{planned}" + (", its last line cut" if log is not None and log.cut else "")


def _last(log: RunLog | None) -> str | None:
    return log.where() if log is not None and log.lines else None
