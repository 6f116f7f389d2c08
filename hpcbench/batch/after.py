"""Dependency of a study's jobs on an earlier submission."""

from dataclasses import dataclass
from pathlib import Path

from hpcbench.batch.find_submission import find_root
from hpcbench.batch.tracking.ledger import Ledger
from hpcbench.batch.tracking.track import track
from hpcbench.contract.state import State
from hpcbench.errors import UserError
from hpcbench.files import exists


@dataclass(frozen=True)
class After:
    """An earlier submission that must end before the jobs start."""

    root: Path
    ids: list[str]
    """Scheduler ids of the unfinished jobs."""
    any_end: bool
    """Whether the submission's jobs may end in any state, including failure. By default, all of them must complete."""


def find_named(after: str, results: Path) -> Path:
    """Return the directory of the submission that `after` names, as in `find_after`."""
    path = Path(after)
    return find_root(path if exists(path) else results / after).absolute()


def find_after(after: str, *, site: str, results: Path, where: str, any_end: bool) -> After:
    """Return the submission that `after` names.

    Parameters
    ----------
    after
        Directory of a submission, or name of a study. The name of a study selects its newest submission below
        `results`.
    site
        Site of the waiting jobs.
    where
        Option or file that specifies the submission, for error messages.
    any_end
        Whether the submission's jobs may end in any state, including failure. By default, all of them must complete.

    Raises
    ------
    UserError
        The submission does not exist, is on another machine, was not submitted, or has already failed.
    """
    root = find_named(after, results)
    tracked = track(root)
    if tracked.submission.site != site:
        raise UserError(
            f"{where}: the jobs of {root} are on {tracked.submission.site}, and jobs on {site} cannot wait for them: "
            f"give a submission on {site}"
        )
    waiting = [job for job in tracked.jobs if job not in tracked.ids and tracked.jobs[job].state.alive]
    if waiting:
        raise UserError(f"{where}: job {waiting[0]} of {root} was not submitted: submit that study first")
    unknown = [job for job, status in tracked.jobs.items() if status.state is State.UNKNOWN]
    if unknown:
        raise UserError(f"{where}: job {unknown[0]} of {root}: {tracked.jobs[unknown[0]].reason}")
    bad = [
        job for job, status in tracked.jobs.items() if not status.state.alive and status.state is not State.COMPLETED
    ]
    if bad and not any_end:
        state = tracked.jobs[bad[0]].state.value
        raise UserError(
            f"{where}: job {bad[0]} of {root} has the state {state}: repeat this job with `hpcbench retry` first, or "
            "use --after-any"
        )
    ledger = Ledger(root)
    left = [ledger.of(job) for job, status in tracked.jobs.items() if status.state.alive]
    return After(root, list(dict.fromkeys(job.id for job in left if job is not None and job.id)), any_end)
