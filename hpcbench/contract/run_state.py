"""Resolution of run states. Status files and logs may be missing, truncated or wrong if a machine fails.

A run is ``completed`` only if its log contains an end event with this state. Both `hpcbench status` and `hpcbench
report` use this module, so they show the same state.
"""

import math
from pathlib import Path

from hpcbench.contract.claim import DIRECTORY, find_double_claim
from hpcbench.contract.ending import Ending, read_ending, read_tail
from hpcbench.contract.mark import Mark
from hpcbench.contract.reason import FailureReason, diagnose
from hpcbench.contract.state import (
    DONE_TO_IT,
    ENDED_BY_SIGNAL,
    NO_ROOM_EXIT,
    OPEN,
    OVERTIME_EXIT,
    STOPPED_EXIT,
    JobSummary,
    ResolvedState,
    State,
)
from hpcbench.contract.text import make_printable

_OVER = (State.COMPLETED, State.FAILED)
"""States of jobs whose script exited on its own."""


def resolve_run(directory: Path, jobs: Path, mark: Mark | None, job: JobSummary, log: Ending | None) -> ResolvedState:
    """Resolve the state of a run. If the run failed, find the reason in its files.

    Parameters
    ----------
    directory
        Directory of the run, with ``err.txt`` and ``log.txt``.
    """
    failure, last_line = None, ""
    if mark is not None and mark.state == "ended" and mark.exit:
        failure = diagnose(mark.exit, directory / "err.txt", directory / "log.txt")
    if mark is None and not (log and log.lines) and job.state not in OPEN:
        # The job failed before its first run, for example in a setup line: quote its last output.
        lines = [line for line in read_tail(jobs / job.id / "out.log") if line.strip()]
        last_line = make_printable(lines[-1], 160) if lines else ""
    verdict = resolve_run_state(directory, mark, job, log, failure, last_line)
    if mark is not None and verdict.state is State.COMPLETED:
        two = find_double_claim(jobs / job.id, mark.start, mark.end)
        if two is not None:
            holders = " and ".join(make_printable(claim.holder, 40) for claim in two)
            reason = f"its job ran twice at once, as {holders}, so its measurements are not compared"
            return ResolvedState(State.UNKNOWN, reason, f"{jobs / job.id / DIRECTORY / str(two[0].number)}.end:1")
    return verdict


def resolve_unread_run(directory: Path, jobs: Path, mark: Mark | None, job: JobSummary) -> ResolvedState:
    """Resolve the state of a run whose log has not been read. Only the end of a long log is read."""
    numbered = job.state not in OPEN or (mark is not None and mark.state == "ended")
    return resolve_run(directory, jobs, mark, job, read_ending(directory / "log.txt", numbered=numbered))


def resolve_run_state(
    directory: Path,
    mark: Mark | None,
    job: JobSummary,
    log: Ending | None,
    failure: FailureReason | None = None,
    last_line: str = "",
) -> ResolvedState:
    """Resolve the state of a run of a submission, without reading files.

    Parameters
    ----------
    directory
        Directory of the run, for file names in messages.
    mark
        Status file of the run, or None if it does not exist. If the file cannot be read, its state is empty.
    job
        Job of the run.
    log
        End of the log, or None if the log is missing.
    failure
        Why the run failed, if its status file shows a failure.
    last_line
        Last line that the job printed, if the run has neither a status file nor a log.
    """
    began = (mark is not None and mark.state == "running") or (log is not None and log.lines > 0)
    if mark is not None and mark.state not in ("running", "ended") and job.state not in OPEN:
        return ResolvedState(State.UNKNOWN, "its status file cannot be read", _marker(directory))
    if mark is not None and mark.exit != 0 and job.state in OPEN and mark.attempt < job.attempt:
        return ResolvedState(State.PENDING, f"continues in attempt {job.attempt}")
    if mark is not None and mark.state == "ended":
        return _ended(directory, mark, job, log, failure)
    if job.state in OPEN:
        if not began:
            return ResolvedState(State.PENDING, job.reason if job.state != State.RUNNING else "")
        # The scheduler answer may be older than the run's status file.
        return ResolvedState(State.SUSPENDED if job.state == State.SUSPENDED else State.RUNNING)
    if log is not None and log.end_line is not None:
        return _by_end_event(log)
    progress = f" {_progress(log)}" if began else ""
    why = f": {make_printable(job.reason, 200)}" if job.reason else ""
    if job.state in DONE_TO_IT:
        return ResolvedState(job.state, f"{_fate(job)}{progress}")
    if job.state == State.STOPPED:
        return ResolvedState(State.STOPPED, f"job {job.id}: stopped{progress}{why}")
    if job.state in _OVER:
        status = f"exit status {job.exit}" if job.exit is not None else make_printable(job.reason, 120)
        if job.exit == NO_ROOM_EXIT:
            status = make_printable(job.reason, 200)
        status = f" ({status})" if status else ""
        if began:
            return ResolvedState(
                State.LOST, f"job {job.id} ended{status} without a status file of this run{progress}", _at(log)
            )
        last_line = f": {last_line}" if last_line else ""
        return ResolvedState(State.LOST, f"job {job.id} ended{status} before this run began{last_line}")
    if job.state == State.LOST:
        gone = f"the processes of job {job.id} are gone and left no status file"
        return ResolvedState(State.LOST, f"{gone}{progress}{why}{f': {last_line}' if last_line else ''}", _at(log))
    if log is not None and log.lines:
        alone = resolve_log_state(log)
        return ResolvedState(alone.state, f"{alone.reason}; job {job.id}{why}" if why else alone.reason, alone.where)
    return ResolvedState(State.UNKNOWN, f"the state of job {job.id} is unknown{progress}{why}")


def resolve_log_state(log: Ending) -> ResolvedState:
    """Resolve the state of a run from its log only."""
    if log.end_line is not None:
        return _by_end_event(log)
    if diverged := _diverged(log):
        return diverged
    if not log.begun:
        return ResolvedState(State.UNKNOWN, "the file contains no log lines of a run", str(log.path))
    missing = "has no end event" if log.from_hpcbench else "does not show how the run ended"
    return ResolvedState(State.INCOMPLETE, f"the log {missing}: {_progress(log)}", _at(log))


def _ended(
    directory: Path, mark: Mark, job: JobSummary, log: Ending | None, failure: FailureReason | None
) -> ResolvedState:
    status, end = mark.exit, log if log is not None and log.end_line is not None else None
    if end is not None and end.state == "stopped" and job.state in OPEN:
        # the job continues the run when it leaves the queue again
        return ResolvedState(State.PENDING, _with_limit(mark, _by_end_event(end).reason) if mark.limit else "")
    if status is None:
        return ResolvedState(State.UNKNOWN, "its status file contains no exit status", _marker(directory))
    if job.state in OPEN and job.exit is not None and status in (*ENDED_BY_SIGNAL, STOPPED_EXIT):
        return ResolvedState(State.RUNNING, job.reason)  # its scheduler is about to report the reason
    if status == 0:
        if end is not None:
            return _by_end_event(end)
        if log is not None and (diverged := _diverged(log)):
            return diverged
        missing = "its log is missing" if log is None else "its log has no end event"
        return ResolvedState(State.UNKNOWN, f"exit status 0, but {missing}, so the end of the run is unknown", _at(log))
    if end is not None and end.state == "completed" and mark.why:
        return _by_end_event(end)  # the write error came after the end event
    if end is not None and end.state != "completed":
        verdict = _by_end_event(end)
        done = f"; {_fate(job)}" if verdict.state is State.STOPPED and job.state in DONE_TO_IT else ""
        reason = _with_limit(mark, verdict.reason) if verdict.state is State.STOPPED else verdict.reason
        return ResolvedState(verdict.state, f"{reason}{done}", verdict.where)
    if job.state in DONE_TO_IT and status in (*ENDED_BY_SIGNAL, STOPPED_EXIT):
        return ResolvedState(job.state, f"{_fate(job)} {_progress(log)}", _at(log))
    if status == OVERTIME_EXIT:
        message = f"reached {_limit(mark)} {_progress(log)}"
        if failure and failure.where and not (log and log.begun):
            return ResolvedState(State.TIMED_OUT, f"{message}: {failure.reason}", failure.where)
        return ResolvedState(State.TIMED_OUT, message, _at(log))
    if status == STOPPED_EXIT and end is None:
        message = f"stopped on request (exit status {status}) {_progress(log)}"
        return ResolvedState(State.STOPPED, _with_limit(mark, message), _at(log))
    reason, where = (failure.reason, failure.where) if failure else (f"exit status {status}", None)
    if mark.why:
        return ResolvedState(State.FAILED, f"{make_printable(mark.why, 200)}, {_progress(log)}", _at(log))
    if end is not None:
        return ResolvedState(
            State.FAILED, f"all steps were completed, but then the run failed: {reason}", where or _at(log)
        )
    if log is not None and (diverged := _diverged(log)):
        return diverged
    return ResolvedState(State.FAILED, f"{reason}, {_progress(log)}", where or _at(log))


def _limit(mark: Mark) -> str:
    """Describe the limit that a run reached."""
    if not mark.limit:
        return "its own time limit"
    return "run_limit" if mark.limit == "run_limit" else "its part of the job's walltime"


def _with_limit(mark: Mark, reason: str) -> str:
    """Return why a run stopped on request, including the limit that it reached."""
    return f"reached {_limit(mark)}: {reason}" if mark.limit else reason


def _by_end_event(log: Ending) -> ResolvedState:
    reason, where = make_printable(log.reason), log.where(log.end_line)
    if log.state == State.COMPLETED:
        return ResolvedState(State.COMPLETED)
    if log.state == State.NAN:
        step = "" if log.diverged is None else f" at step {log.diverged}"
        return ResolvedState(State.NAN, reason or f"the loss is not finite{step}", where)
    if log.state == State.FAILED:
        return ResolvedState(State.FAILED, reason or "the worker reported no reason", where)
    if log.state == State.STOPPED:
        return ResolvedState(State.STOPPED, reason or f"stopped on request {_progress(log)}", where)
    return ResolvedState(State.UNKNOWN, f"the end event has the state '{make_printable(str(log.state), 40)}'", where)


def _diverged(log: Ending) -> ResolvedState | None:
    if log.loss is None or math.isfinite(log.loss):
        return None
    reason = f"loss is {log.loss} at step {log.step}, the last step in the log"
    return ResolvedState(State.NAN, reason, log.where(log.step_line))


def _fate(job: JobSummary) -> str:
    reason = f" ({make_printable(job.reason)})" if job.reason else ""
    if job.state == State.CANCELLED:
        return f"job {job.id} was cancelled{reason}"
    return f"job {job.id}: {job.state}{reason}"


def _progress(log: Ending | None) -> str:
    if log is not None and log.program:
        return f"at line {log.lines} of its log"
    if log is None or log.step is None:
        return "before its first step"
    planned = "" if log.steps is None else f" of {log.steps}"
    return f"after step {log.step}{planned}" + (", with a truncated last line" if log.cut else "")


def _at(log: Ending | None) -> str | None:
    return log.where() if log is not None and log.lines else None


def _marker(directory: Path) -> str:
    return f"{directory / 'status.json'}:1"
