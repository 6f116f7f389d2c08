"""Resubmission of jobs that failed for external reasons."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.rewrite_jobs import changed_fields, check_sets, rewrite_jobs
from hpcbench.batch.schedulers.open_scheduler import open_scheduler
from hpcbench.batch.submit_jobs import settle, submit_jobs
from hpcbench.batch.tracking.ledger import Ledger
from hpcbench.batch.tracking.lock import locked
from hpcbench.batch.tracking.marks import read_mark
from hpcbench.batch.tracking.track import Tracked, track
from hpcbench.contract.job_state import Status
from hpcbench.contract.state import State
from hpcbench.contract.submission import check_place
from hpcbench.errors import UserError
from hpcbench.files import shown_path

_EXTERNAL_ENDS = (State.STOPPED, State.NODE_FAILED, State.PREEMPTED, State.TIMED_OUT, State.LOST)
"""End states whose cause lies outside the run."""


@dataclass(frozen=True)
class Retried:
    """Result of `retry`: the resubmitted jobs."""

    jobs: list[str]
    runs: list[str]
    left: dict[str, str]
    """Reason why a run was not resubmitted, keyed by run id."""
    note: str
    changes: str = ""
    """Note about changes to the site file and whether they were applied. It is empty if nothing changed."""


def retry(
    root: Path, *, all: bool = False, whole_jobs: bool = False, sets: Sequence[str] = (), update: bool = False
) -> Retried:
    """Resubmit the jobs with incomplete runs. Completed runs of these jobs are kept.

    A run with a checkpoint resumes from the checkpoint.

    Parameters
    ----------
    all
        Whether to include runs that failed through their own fault, ran out of memory, or were cancelled.
    whole_jobs
        Whether to rerun all runs of the retried jobs from the start, so that paired runs share an allocation again.
    sets
        New job limits, such as ``walltime=4h``. If a walltime is given, runs that timed out are included.
    update
        Whether to regenerate the job scripts from the current site file.

    Raises
    ------
    UserError
        The submission was a dry run, the scheduler does not respond or refuses a job, or another command holds the
        lock.
    """
    check_sets(sets)
    root = root.absolute()  # scheduler commands run in another directory
    with locked(root.parent):
        ledger, scheduler = Ledger(root), open_scheduler(root)
        settle(scheduler, ledger)
        tracked = track(root)
        if tracked.submission.dry_run:
            raise UserError(f"{root}: is a dry run, so there is nothing to retry: submit the study without --dry-run")
        check_place(root, tracked.submission)
        if tracked.silent:
            raise UserError(
                f"{root}: {tracked.silent}: try again later, because a running job must not be submitted twice"
            )
        longer = any(text.startswith("walltime=") for text in sets)
        again, left = _choose(root, tracked, all=all, whole_jobs=whole_jobs, longer=longer)
        changes = _changes(root, tracked, update=update)
        if again and (sets or update):
            rewrite_jobs(root, tracked.submission, again, sets, updates_site=update)
            scheduler = open_scheduler(root)
        jobs = [BatchJob(job, f"jobs/{job}/job.sh", [job]) for job in again]
        with _put_aside(root, tracked, again, ledger, whole_jobs=whole_jobs):
            note = submit_jobs(scheduler, ledger, jobs, name=tracked.submission.name) if jobs else ""
    return Retried(list(again), [run for runs in again.values() for run in runs], left, note, changes)


def _changes(root: Path, tracked: Tracked, *, update: bool) -> str:
    """Return a note for the user about site file changes since the submission."""
    name = tracked.submission.site_file
    try:
        changed = changed_fields(root, tracked.submission)
    except UserError as error:
        if update:
            raise
        return f"the scripts were not changed, because the site file is now invalid: {error}"
    if not changed or name is None:
        return ""
    fields = "; ".join(f"{field}: {change}" for field, change in changed.items())
    unused = "the scripts do not use these changes: rewrite the scripts with `hpcbench retry --update`"
    what = "the scripts now use these changes" if update else unused
    return f"{shown_path(name)} has changed since the submission ({fields}): {what}"


def _choose(
    root: Path, tracked: Tracked, *, all: bool, whole_jobs: bool, longer: bool
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the runs to retry, grouped by job, and why each other incomplete run is not retried."""
    left: dict[str, str] = {}
    again: dict[str, list[str]] = {}
    for run in tracked.submission.runs:
        status = tracked.runs[run.id]
        reason = _why_not(status, tracked.jobs[run.job], root / run.path, all=all, longer=longer)
        if reason is None:
            again.setdefault(run.job, []).append(run.id)
        elif status.state is not State.COMPLETED:
            left[run.id] = reason
    if whole_jobs:
        again = {job.id: list(job.runs) for job in tracked.submission.jobs if job.id in again}
    return again, left


def _why_not(status: Status, job: Status, directory: Path, *, all: bool, longer: bool) -> str | None:
    """Return why a run is not retried, or None if it is retried."""
    if status.state is State.COMPLETED:
        return "completed"
    if job.state.alive:
        return f"its job is {job.state.value}"
    if status.state in (State.UNKNOWN, State.INCOMPLETE):
        return None if all else f"{status.state.value} ({status.reason}): use --all to retry it"
    if status.state is State.STOPPED and job.state is State.CANCELLED and not all:
        return "its job was cancelled: use --all to retry it"
    if status.state is State.PENDING:
        return "was not submitted: run `hpcbench submit` again"
    if status.state is State.TIMED_OUT and not (all or longer) and not any((directory / "checkpoint").glob("step-*")):
        return (
            "timed out without a checkpoint and would time out again: use --set walltime=TIME with more time, or --all"
        )
    if status.state in _EXTERNAL_ENDS or all:
        return None
    return f"{status.state.value}{f' ({status.reason})' if status.reason else ''}: use --all to retry it"


@contextlib.contextmanager
def _put_aside(
    root: Path, tracked: Tracked, again: Mapping[str, Sequence[str]], ledger: Ledger, *, whole_jobs: bool
) -> Iterator[None]:
    """Rename the files of completed runs, so that the job script does not skip these runs.

    If the `with` block raises an error, the files of jobs that were not resubmitted are renamed back.
    """
    times = {job: ledger.count_submissions(job) for job in again}
    moved: dict[str, list[tuple[Path, Path]]] = {job: [] for job in again}
    names = ["status.json", "log.txt", "err.txt", *(["checkpoint"] if whole_jobs else [])]
    wanted = [run for run in tracked.submission.runs if run.id in again.get(run.job, ())]
    try:
        for run in wanted:
            mark = read_mark(root / run.path)
            if mark is None or not (whole_jobs or mark.exit == 0):
                continue
            for path in (root / run.path / name for name in names):
                if path.exists():
                    aside = path.with_name(f"{path.stem}.{mark.attempt}{path.suffix}")
                    path.rename(aside)
                    moved[run.job].append((aside, path))
        yield
    except BaseException:
        for job, pairs in moved.items():
            if ledger.count_submissions(job) == times[job]:
                for aside, path in pairs:
                    aside.rename(path)
        raise
