"""Resumption of interrupted submissions."""

from pathlib import Path

from hpcbench.batch.after import After
from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.find_submission import find_same
from hpcbench.batch.record_provenance import keep
from hpcbench.batch.schedulers.open_scheduler import open_scheduler
from hpcbench.batch.submit_jobs import Progress, settle, submit_jobs
from hpcbench.batch.tracking.ledger import Ledger
from hpcbench.batch.tracking.track import track
from hpcbench.contract.submission import SubmissionFile, read_submission
from hpcbench.contract.text import count_noun


def find_unfinished(base: Path, digest: str) -> Path | None:
    """Return the newest submission in `base` that has this digest, if any of its jobs are unsubmitted or unfinished."""
    for root, submission in find_same(base, digest):
        ledger = Ledger(root)
        if any(job.id is None for job in ledger.submitted) or left(submission, ledger):
            return root
        return None if track(root).over else root
    return None


def resume(root: Path, study: Path, after: After | None, progress: Progress) -> str:
    """Submit the remaining jobs of a submission. Return one line for the user."""
    submission, scheduler, ledger = read_submission(root), open_scheduler(root), Ledger(root)
    taken = settle(scheduler, ledger)
    jobs = left(submission, ledger)
    if jobs:
        keep(root, study)
        note = submit_jobs(scheduler, ledger, jobs, name=submission.name, after=after, progress=progress)
        count = count_noun(len(jobs), "more job")
        return f"continued an interrupted submission: submitted {count}. {note}".rstrip()
    lost = f"; found {count_noun(taken, 'job')} in the queue for which the scheduler's response had been lost"
    recovered = lost if taken else ""
    over = " and over" if taken and track(root).over else " and not over"
    return f"already submitted{over}{recovered}: nothing was submitted (use --again to submit the study again)"


def left(submission: SubmissionFile, ledger: Ledger) -> list[BatchJob]:
    """Return the planned jobs that were never submitted."""
    jobs = [BatchJob(bundle.label, bundle.script, bundle.jobs, bundle.array) for bundle in submission.bundles]
    return [job for job in jobs if ledger.of(job.jobs[0]) is None]
