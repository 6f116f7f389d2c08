"""States of a submission, resolved from status files and at most one scheduler query."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hpcbench.batch.schedulers.open_scheduler import open_scheduler
from hpcbench.batch.tracking.ledger import Ledger
from hpcbench.batch.tracking.marks import read_mark, scheduler_id
from hpcbench.batch.tracking.seen import Seen, advance, load, save
from hpcbench.contract import mark as run_mark
from hpcbench.contract.job_state import GRACE, Status, make_run_status, resolve_job_state
from hpcbench.contract.mark import Mark
from hpcbench.contract.run_state import resolve_unread_run
from hpcbench.contract.state import State
from hpcbench.contract.submission import PlannedRun, SchedulerKind, SubmissionFile, read_submission
from hpcbench.errors import UserError

_LAG = 60.0
"""Seconds after which accounting, if available, has recorded the end of a job."""


@dataclass(frozen=True)
class Tracked:
    """A submission, with the states of its jobs and runs."""

    root: Path
    submission: SubmissionFile
    jobs: dict[str, Status]
    runs: dict[str, Status]
    ids: dict[str, str]
    """Scheduler ids of all jobs that the scheduler lists or has listed."""
    silent: str | None = None
    """Reason why the scheduler did not respond, or None if it responded or was not queried."""

    @property
    def failed(self) -> bool:
        """Whether any run failed or has an unknown outcome."""
        return any(not (status.state.alive or status.state is State.COMPLETED) for status in self.runs.values())

    @property
    def over(self) -> bool:
        """Whether no job is pending or running. The result is False if the scheduler did not respond."""
        return self.silent is None and not any(
            status.state.alive for status in (*self.jobs.values(), *self.runs.values())
        )


def track(root: Path, *, ask: bool = True) -> Tracked:
    """Resolve the states of all jobs and runs of a submission.

    Parameters
    ----------
    ask
        Whether to query the scheduler. If False, the scheduler's last response is used.

    Raises
    ------
    UserError
        A file of the submission is missing or damaged.
    """
    submission = read_submission(root)
    names = [job.id for job in submission.jobs]
    ledger = Ledger(root)
    marks = {job: read_mark(root / "jobs" / job) for job in names}
    ids = {job: id for job in names if (id := _id(job, marks[job], ledger, submission.scheduler))}
    seen, silent = _ask(root, ids, marks, ledger) if ask else (load(root), None)
    jobs = {job: _job(job, marks[job], ledger, seen.get(job), silent, submission) for job in names}
    runs = {run.id: _run(root, run, jobs[run.job]) for run in submission.runs}
    for job in submission.jobs:
        if jobs[job.id].state is State.LOST and all(runs[run].state is State.COMPLETED for run in job.runs):
            jobs[job.id] = replace(
                jobs[job.id], state=State.COMPLETED, reason="according to the last events of its runs"
            )
    return Tracked(root, submission, jobs, runs, ids, silent)


def _id(job: str, mark: Mark | None, ledger: Ledger, kind: SchedulerKind) -> str | None:
    """Return the scheduler id of a job. If the job was accepted twice, return the id of the copy that is running."""
    submitted = ledger.of(job)
    if submitted is None or mark is None or mark.attempt <= submitted.begun[job]:
        return ledger.element(job)
    return scheduler_id(kind, mark) or ledger.element(job)


def _ask(
    root: Path, ids: Mapping[str, str], marks: Mapping[str, Mark | None], ledger: Ledger
) -> tuple[dict[str, Seen], str | None]:
    """Query the scheduler if needed.

    Return the last status of each job, and the reason if the scheduler did not respond.
    """
    seen, clock = load(root), time.time()
    left = {job: _left(job, marks[job], seen.get(job), ledger, clock) for job in ids}
    try:
        scheduler = open_scheduler(root) if any(left.values()) else None
        asked = {job: ids[job] for job in ids if left[job] == "its end" or (left[job] and scheduler.keeps_accounts)}  # type: ignore[union-attr]
        if scheduler is None or not asked:
            return seen, None
        answers = scheduler.poll(list(asked.values()))
    except UserError as error:
        return seen, str(error) if "its end" in left.values() else None
    clock = time.time()
    statuses = {
        job: advance(seen.get(job), _queue_name(job, ledger), answers.get(id), clock, _ended(marks[job]))
        for job, id in asked.items()
    }
    new = {**seen, **{job: status for job, status in statuses.items() if status is not None}}
    if new != seen:
        save(root, new)
    return new, None


def _queue_name(job: str, ledger: Ledger) -> str:
    submitted = ledger.of(job)
    return submitted.name if submitted else ""


def _left(job: str, mark: Mark | None, seen: Seen | None, ledger: Ledger, clock: float) -> str:
    """Return what to query for a job: ``its end``, only its ``cost``, or nothing (an empty string)."""
    submitted = ledger.of(job)
    if submitted is None:
        return ""
    last = seen if seen is not None and seen.parcel == submitted.name else None
    over = last is not None and not last.word.state.alive
    age = clock - last.since if last else 0.0
    if mark is None or mark.attempt <= submitted.begun[job] or mark.state != "ended":
        # Some final states are revoked, but only within this time.
        return "" if over and age > 2 * GRACE else "its end"
    heard = over and last is not None and last.ended == mark.attempt
    if mark.exit != 0 and not (heard and last and (last.word.state is not State.PREEMPTED or age > 2 * GRACE)):
        return "its end"
    hopeless = last is not None and (last.absent is not None or (over and age > _LAG))
    return "" if hopeless or (last and over and last.word.accounting) else "cost"


def _ended(mark: Mark | None) -> int:
    return mark.attempt if mark is not None and mark.state == "ended" else 0


def _job(
    job: str, mark: Mark | None, ledger: Ledger, seen: Seen | None, silent: str | None, submission: SubmissionFile
) -> Status:
    submitted = ledger.of(job)
    if submitted is None and mark is None:
        why = "a dry run: not submitted" if submission.dry_run else "not submitted: run `hpcbench submit` again"
        return Status(State.PENDING, why)
    if seen is not None and seen.parcel != _queue_name(job, ledger):
        seen = None
    record, answer = submitted.make_record(job) if submitted else None, seen.told if seen else None
    return resolve_job_state(mark, record, answer, requeue=submission.requeue > 0, silent=silent, clock=time.time())


def _run(root: Path, run: PlannedRun, job: Status) -> Status:
    # Read the status file first. Once it records the end, the log is complete.
    mark = run_mark.read_mark(root / run.path)
    return make_run_status(resolve_unread_run(root / run.path, root / "jobs", mark, job.job(run.job)), mark, job)
