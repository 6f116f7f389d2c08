"""Additional repeats of a submission, with new seeds and the same cells."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hpcbench.batch.batch_job import batch_jobs
from hpcbench.batch.find_submission import find_same
from hpcbench.batch.plan_jobs import choose, plan
from hpcbench.batch.resume import left, resume
from hpcbench.batch.room import check_room
from hpcbench.batch.schedulers.open_scheduler import open_scheduler
from hpcbench.batch.scripts.job import Job
from hpcbench.batch.sites.load_site import offer
from hpcbench.batch.sites.site import Site
from hpcbench.batch.submit_jobs import Progress, submit_jobs
from hpcbench.batch.tracking.ledger import Ledger
from hpcbench.batch.tracking.track import track
from hpcbench.batch.write_submission import extend
from hpcbench.contract.submission import SubmissionFile, read_submission
from hpcbench.errors import UserError
from hpcbench.files import shown_path
from hpcbench.study.expand import ExpandedRun, expand
from hpcbench.study.load import Loaded


def find_submitted(base: Path, digest: str) -> Path:
    """Return the newest submission in `base` whose study, site and version have this digest.

    Raises
    ------
    UserError
        No submission has this digest.
    """
    for root, _ in find_same(base, digest):
        return root
    raise UserError(
        f"--more: {shown_path(base)} has no submission of this study with the same site, options and version of "
        "hpcbench: submit the study without --more first"
    )


def further_runs(
    loaded: Loaded, site: Site, submission: SubmissionFile, more: int, only: str | None
) -> list[ExpandedRun]:
    """Return the runs of the additional repeats. Repeat numbers and seeds continue those of the submission."""
    last = max(run.repeat for run in submission.runs)
    study = loaded.study.model_copy(update={"repeats": last + more})
    runs = expand(replace(loaded, study=study), site.capacity, offer(site))
    further = [run for run in (choose(runs, only) if only is not None else runs) if run.repeat > last]
    if not further:
        raise UserError(
            f"--only {only}: matches no run of repeats {last + 1} to {last + more}: remove the condition on the repeat"
        )
    return further


def add_repeats(
    root: Path,
    loaded: Loaded,
    site: Site,
    more: int,
    *,
    study: Path,
    only: str | None,
    again: bool,
    check: Callable[[list[ExpandedRun], Site, Path], None],
    progress: Progress,
) -> tuple[list[ExpandedRun], list[Job], list[str]]:
    """Add repeats to a submission and submit their jobs.

    If an earlier command was interrupted after it had added jobs, those jobs are submitted and no others are added.
    Unless `again` is set, no repeats are added while the last added repeats are unfinished. Running the same command
    twice is therefore safe.

    Parameters
    ----------
    check
        Function that raises an error if a run is not possible on the site.
    progress
        Callback ``progress(submitted, total)``, called with the number of submitted jobs and of all jobs.

    Returns
    -------
    tuple
        The added runs, their jobs, and notes for the user.
    """
    submission, ledger = read_submission(root), Ledger(root)
    if left(submission, ledger) or any(job.id is None for job in ledger.submitted):
        return [], [], [resume(root, study, None, progress), "no repeats were added: run the same command again"]
    if submission.added and not again:
        tracked = track(root)
        waiting = [job for job in submission.added[-1].jobs if tracked.jobs[job].state.alive]
        if tracked.silent or waiting:
            reason = tracked.silent or f"the most recently added repeats have not ended (job {waiting[0]})"
            return [], [], [f"{reason}: nothing was added (use --again to add more repeats anyway)"]
    runs = further_runs(loaded, site, submission, more, only)
    check(runs, site, study.parent)
    jobs, notes = plan(runs, loaded, site, dry_run=False, first=len(submission.jobs) + 1)
    handed = batch_jobs(jobs, site, arrays=sum(bundle.array for bundle in submission.bundles))
    scheduler = open_scheduler(root)
    with extend(root, runs, jobs, handed, loaded, site, base=study.parent):
        notes += scheduler.preflight(handed, loaded.study.account)
        notes.append(check_room(root, runs=len(runs), steps=loaded.study.steps))
        notes.append(submit_jobs(scheduler, ledger, handed, name=submission.name, progress=progress))
    first, last = runs[0].repeat, runs[-1].repeat
    span = f"repeat {first} was" if first == last else f"repeats {first} to {last} were"
    return runs, jobs, [f"{span} added to {shown_path(root)}", *filter(None, notes)]
