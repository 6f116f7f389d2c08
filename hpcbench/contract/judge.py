"""The judge of runs. Marks and logs come from machines that fail: anything may be missing, cut or contradictory.

A run is ``completed`` only if the end event of its own log says so. `hpcbench status` and `hpcbench report` both ask
here, so that they give the same state for the same run.
"""

import math
from pathlib import Path

from hpcbench.contract.claim import DIRECTORY, held_by_two
from hpcbench.contract.ending import Ending, read_ending, tail
from hpcbench.contract.mark import Mark
from hpcbench.contract.reason import Diagnosis, diagnose
from hpcbench.contract.state import (
    DONE_TO_IT,
    ENDED_BY_SIGNAL,
    NO_ROOM_EXIT,
    OPEN,
    OVERTIME_EXIT,
    STOPPED_EXIT,
    Job,
    State,
    Verdict,
)
from hpcbench.contract.text import printable

_OVER = (State.COMPLETED, State.FAILED)
"""States of a job whose script ended by itself."""


def look(directory: Path, jobs: Path, mark: Mark | None, job: Job, log: Ending | None) -> Verdict:
    """Judge a run, and read the reason of a failure from its files.

    Parameters
    ----------
    directory
        Directory of the run, with ``err.txt`` and ``log.txt``.
    jobs
        Directory of all jobs.
    mark, job, log
        The same as for `judge`.
    """
    found, said = None, ""
    if mark is not None and mark.state == "ended" and mark.exit:
        found = diagnose(mark.exit, directory / "err.txt", directory / "log.txt")
    if mark is None and not (log and log.lines) and job.state not in OPEN:
        # A module, a setup line: what kept the job from its runs.
        lines = [line for line in tail(jobs / job.id / "out.log") if line.strip()]
        said = printable(lines[-1], 160) if lines else ""
    verdict = judge(directory, mark, job, log, found, said)
    if mark is not None and verdict.state is State.COMPLETED:
        two = held_by_two(jobs / job.id, mark.start, mark.end)
        if two is not None:
            holders = " and ".join(printable(claim.holder, 40) for claim in two)
            words = f"its job ran twice at once, as {holders}: what it measured is not compared"
            return Verdict(State.UNKNOWN, words, f"{jobs / job.id / DIRECTORY / str(two[0].number)}.end:1")
    return verdict


def look_up(directory: Path, jobs: Path, mark: Mark | None, job: Job) -> Verdict:
    """Judge a run whose log has not been read. Only the end of a long log is read."""
    numbered = job.state not in OPEN or (mark is not None and mark.state == "ended")
    return look(directory, jobs, mark, job, read_ending(directory / "log.txt", numbered=numbered))


def judge(
    directory: Path, mark: Mark | None, job: Job, log: Ending | None, found: Diagnosis | None = None, said: str = ""
) -> Verdict:
    """State of a run of a submission, from what is known of it. No file is read.

    Parameters
    ----------
    directory
        Directory of the run, for the names of its files.
    mark
        The run's own mark: None if there is no file, a mark without a state if the file cannot be read.
    job
        Its job.
    log
        How far its log comes; None where there is none.
    found
        Why the run failed, if its mark says that it failed.
    said
        The last error message of a job that left no file of the run.
    """
    began = (mark is not None and mark.state == "running") or (log is not None and log.lines > 0)
    if mark is not None and mark.state not in ("running", "ended") and job.state not in OPEN:
        return Verdict(State.UNKNOWN, "its exit marker cannot be read", _marker(directory))
    if mark is not None and mark.exit != 0 and job.state in OPEN and mark.attempt < job.attempt:
        return Verdict(State.PENDING, f"continues in attempt {job.attempt}")
    if mark is not None and mark.state == "ended":
        return _ended(directory, mark, job, log, found)
    if job.state in OPEN:
        if not began:
            return Verdict(State.PENDING, job.reason if job.state != State.RUNNING else "")
        # A scheduler's word may be older than the run's marks.
        return Verdict(State.SUSPENDED if job.state == State.SUSPENDED else State.RUNNING)
    if log is not None and log.end_line is not None:
        return _by_end_event(log)
    progress = f" {_progress(log)}" if began else ""
    why = f": {printable(job.reason, 200)}" if job.reason else ""
    if job.state in DONE_TO_IT:
        return Verdict(job.state, f"{_fate(job)}{progress}")
    if job.state == State.STOPPED:
        return Verdict(State.STOPPED, f"job {job.id}: stopped{progress}{why}")
    if job.state in _OVER:
        status = f"exit status {job.exit}" if job.exit is not None else printable(job.reason, 120)
        if job.exit == NO_ROOM_EXIT:
            status = printable(job.reason, 200)
        status = f" ({status})" if status else ""
        if began:
            return Verdict(
                State.LOST, f"job {job.id} ended{status} without an exit marker of this run{progress}", _at(log)
            )
        said = f": {said}" if said else ""
        return Verdict(State.LOST, f"job {job.id} ended{status} before this run began{said}")
    if job.state == State.LOST:
        gone = f"the processes of job {job.id} are gone and left no exit marker"
        return Verdict(State.LOST, f"{gone}{progress}{why}{f': {said}' if said else ''}", _at(log))
    if log is not None and log.lines:
        alone = judge_log(log)
        return Verdict(alone.state, f"{alone.reason}; job {job.id}{why}" if why else alone.reason, alone.where)
    return Verdict(State.UNKNOWN, f"the state of job {job.id} is unknown{progress}{why}")


def judge_log(log: Ending) -> Verdict:
    """State of a run of which only the log is there."""
    if log.end_line is not None:
        return _by_end_event(log)
    if diverged := _diverged(log):
        return diverged
    if not log.begun:
        return Verdict(State.UNKNOWN, "no line of a run in it", str(log.path))
    missing = "has no end event" if log.own else "does not say how the run ended"
    return Verdict(State.INCOMPLETE, f"the log {missing}: {_progress(log)}", _at(log))


def _ended(directory: Path, mark: Mark, job: Job, log: Ending | None, found: Diagnosis | None) -> Verdict:
    status, end = mark.exit, log if log is not None and log.end_line is not None else None
    if end is not None and end.state == "stopped" and job.state in OPEN:
        # the job goes on with it when it comes out of the queue again
        return Verdict(State.PENDING, _with_limit(mark, _by_end_event(end).reason) if mark.limit else "")
    if status is None:
        return Verdict(State.UNKNOWN, "its exit marker lacks the exit status", _marker(directory))
    if job.state in OPEN and job.exit is not None and status in (*ENDED_BY_SIGNAL, STOPPED_EXIT):
        return Verdict(State.RUNNING, job.reason)  # its scheduler is about to say why
    if status == 0:
        if end is not None:
            return _by_end_event(end)
        if log is not None and (diverged := _diverged(log)):
            return diverged
        missing = "there is no log" if log is None else "its log has no end event"
        return Verdict(State.UNKNOWN, f"exit status 0, but {missing}: how it ended is not known", _at(log))
    if end is not None and end.state == "completed" and mark.why:
        return _by_end_event(end)  # what could not be written is only what comes after
    if end is not None and end.state != "completed":
        verdict = _by_end_event(end)
        done = f"; {_fate(job)}" if verdict.state is State.STOPPED and job.state in DONE_TO_IT else ""
        reason = _with_limit(mark, verdict.reason) if verdict.state is State.STOPPED else verdict.reason
        return Verdict(verdict.state, f"{reason}{done}", verdict.where)
    if job.state in DONE_TO_IT and status in (*ENDED_BY_SIGNAL, STOPPED_EXIT):
        return Verdict(job.state, f"{_fate(job)} {_progress(log)}", _at(log))
    if status == OVERTIME_EXIT:
        words = f"reached {_limit(mark)} {_progress(log)}"
        if found and found.where and not (log and log.begun):
            return Verdict(State.TIMED_OUT, f"{words}: {found.reason}", found.where)
        return Verdict(State.TIMED_OUT, words, _at(log))
    if status == STOPPED_EXIT and end is None:
        words = f"told to stop, by its exit status {status}, {_progress(log)}"
        return Verdict(State.STOPPED, _with_limit(mark, words), _at(log))
    reason, where = (found.reason, found.where) if found else (f"exit status {status}", None)
    if mark.why:
        return Verdict(State.FAILED, f"{printable(mark.why, 200)}, {_progress(log)}", _at(log))
    if end is not None:
        return Verdict(State.FAILED, f"all steps were taken, then: {reason}", where or _at(log))
    if log is not None and (diverged := _diverged(log)):
        return diverged
    return Verdict(State.FAILED, f"{reason}, {_progress(log)}", where or _at(log))


def _limit(mark: Mark) -> str:
    """Return the name of the limit that a run reached."""
    if not mark.limit:
        return "its own time limit"
    return "run_limit" if mark.limit == "run_limit" else "its part of the job's walltime"


def _with_limit(mark: Mark, reason: str) -> str:
    """Return the reason of a run that stopped on request, with its own limit if it reached that."""
    return f"reached {_limit(mark)}: {reason}" if mark.limit else reason


def _by_end_event(log: Ending) -> Verdict:
    reason, where = printable(log.reason), log.where(log.end_line)
    if log.state == State.COMPLETED:
        return Verdict(State.COMPLETED)
    if log.state == State.NAN:
        step = "" if log.diverged is None else f" at step {log.diverged}"
        return Verdict(State.NAN, reason or f"the loss is not finite{step}", where)
    if log.state == State.FAILED:
        return Verdict(State.FAILED, reason or "the worker gives no reason", where)
    if log.state == State.STOPPED:
        return Verdict(State.STOPPED, reason or f"told to stop {_progress(log)}", where)
    return Verdict(State.UNKNOWN, f"the end event has the state '{printable(str(log.state), 40)}'", where)


def _diverged(log: Ending) -> Verdict | None:
    if log.loss is None or math.isfinite(log.loss):
        return None
    reason = f"loss is {log.loss} at step {log.step}, and the log ends there"
    return Verdict(State.NAN, reason, log.where(log.step_line))


def _fate(job: Job) -> str:
    said = f" ({printable(job.reason)})" if job.reason else ""
    if job.state == State.CANCELLED:
        return f"job {job.id} was cancelled{said}"
    return f"job {job.id}: {job.state}{said}"


def _progress(log: Ending | None) -> str:
    if log is not None and log.program:
        return f"at line {log.lines} of its log"
    if log is None or log.step is None:
        return "before its first step"
    planned = "" if log.steps is None else f" of {log.steps}"
    return f"after step {log.step}{planned}" + (", its last line cut" if log.cut else "")


def _at(log: Ending | None) -> str | None:
    return log.where() if log is not None and log.lines else None


def _marker(directory: Path) -> str:
    return f"{directory / 'status.json'}:1"
