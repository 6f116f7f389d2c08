"""How a submission stands: its marks, and one question to its scheduler for all jobs whose marks do not say it all."""

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
"""Seconds after which accounting has heard of a job's end, if there is any."""


@dataclass(frozen=True)
class Tracked:
    """A submission with the state of all it holds."""

    root: Path
    submission: SubmissionFile
    jobs: dict[str, Status]
    runs: dict[str, Status]
    ids: dict[str, str]
    """By which the scheduler knows the jobs that it has."""
    silent: str | None = None
    """Why the scheduler could not be asked; None where it answered, or there was nothing to ask."""

    @property
    def failed(self) -> bool:
        """Whether a run ended otherwise than it should, or nobody knows how."""
        return any(not (status.state.alive or status.state is State.COMPLETED) for status in self.runs.values())

    @property
    def over(self) -> bool:
        """Whether nothing waits or runs any more; not as long as nobody can say."""
        return self.silent is None and not any(
            status.state.alive for status in (*self.jobs.values(), *self.runs.values())
        )


def track(root: Path, *, ask: bool = True) -> Tracked:
    """State of every job and run of the submission at `root`.

    Parameters
    ----------
    ask
        Whether to ask the scheduler; else what it said last counts.

    Raises
    ------
    UserError
        A file of it is missing or damaged.
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
            jobs[job.id] = replace(jobs[job.id], state=State.COMPLETED, reason="by the last events of its runs alone")
    return Tracked(root, submission, jobs, runs, ids, silent)


def _id(job: str, mark: Mark | None, ledger: Ledger, kind: SchedulerKind) -> str | None:
    """By which id the scheduler knows the job; where it took the job more than once, the one that holds it."""
    handed = ledger.of(job)
    if handed is None or mark is None or mark.attempt <= handed.begun[job]:
        return ledger.element(job)
    return scheduler_id(kind, mark) or ledger.element(job)


def _ask(
    root: Path, ids: Mapping[str, str], marks: Mapping[str, Mark | None], ledger: Ledger
) -> tuple[dict[str, Seen], str | None]:
    """What is known of the jobs after a question to the scheduler, if one is left to be asked."""
    seen, clock = load(root), time.time()
    left = {job: _left(job, marks[job], seen.get(job), ledger, clock) for job in ids}
    try:
        scheduler = open_scheduler(root) if any(left.values()) else None
        asked = {job: ids[job] for job in ids if left[job] == "its end" or (left[job] and scheduler.keeps_accounts)}  # type: ignore[union-attr]
        if scheduler is None or not asked:
            return seen, None
        words = scheduler.poll(list(asked.values()))
    except UserError as error:
        return seen, str(error) if "its end" in left.values() else None
    clock = time.time()
    found = {
        job: advance(seen.get(job), _parcel(job, ledger), words.get(id), clock, _ended(marks[job]))
        for job, id in asked.items()
    }
    new = {**seen, **{job: one for job, one in found.items() if one is not None}}
    if new != seen:
        save(root, new)
    return new, None


def _parcel(job: str, ledger: Ledger) -> str:
    handed = ledger.of(job)
    return handed.name if handed else ""


def _left(job: str, mark: Mark | None, seen: Seen | None, ledger: Ledger, clock: float) -> str:
    """What is left to ask the scheduler of a job: ``its end``, or only what it ``cost``, or nothing."""
    handed = ledger.of(job)
    if handed is None:
        return ""
    known = seen if seen is not None and seen.parcel == handed.name else None
    over = known is not None and not known.word.state.alive
    age = clock - known.since if known else 0.0
    if mark is None or mark.attempt <= handed.begun[job] or mark.state != "ended":
        # Some ends are taken back, but not for ever.
        return "" if over and age > 2 * GRACE else "its end"
    heard = over and known is not None and known.ended == mark.attempt
    if mark.exit != 0 and not (heard and known and (known.word.state is not State.PREEMPTED or age > 2 * GRACE)):
        return "its end"
    hopeless = known is not None and (known.absent is not None or (over and age > _LAG))
    return "" if hopeless or (known and over and known.word.accounting) else "cost"


def _ended(mark: Mark | None) -> int:
    return mark.attempt if mark is not None and mark.state == "ended" else 0


def _job(
    job: str, mark: Mark | None, ledger: Ledger, seen: Seen | None, silent: str | None, submission: SubmissionFile
) -> Status:
    handed = ledger.of(job)
    if handed is None and mark is None:
        why = "a dry run: not submitted" if submission.dry_run else "not handed in: `hpcbench submit` again"
        return Status(State.PENDING, why)
    if seen is not None and seen.parcel != _parcel(job, ledger):
        seen = None
    given, told = handed.handed_in(job) if handed else None, seen.told if seen else None
    return resolve_job_state(mark, given, told, requeue=submission.requeue > 0, silent=silent, clock=time.time())


def _run(root: Path, run: PlannedRun, job: Status) -> Status:
    # The mark first: what it says of the end is then already in the log.
    mark = run_mark.read_mark(root / run.path)
    return make_run_status(resolve_unread_run(root / run.path, root / "jobs", mark, job.job(run.job)), mark, job)
