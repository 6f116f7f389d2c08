"""What must have ended before a study's jobs begin."""

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
    """A submission to wait for."""

    root: Path
    ids: list[str]
    """By which the scheduler knows what is left of it."""
    any_end: bool
    """Whether it may end however it likes; else all of it must complete."""


def find_after(after: str, *, site: str, results: Path, where: str, any_end: bool) -> After:
    """The submission that `after` names.

    Parameters
    ----------
    after
        Its directory, or the name of a study, of which the newest submission below `results` counts.
    site
        The site of the jobs that are to wait.
    where
        Who named it, for messages.
    any_end
        Whether it may end however it likes; else all of it must complete.

    Raises
    ------
    UserError
        There is none, it is another machine's, it was not submitted, or it has failed already.
    """
    path = Path(after)
    root = find_root(path if exists(path) else results / after).absolute()
    tracked = track(root)
    if tracked.submission.site != site:
        raise UserError(f"{where}: {root} is on {tracked.submission.site}: a job of {site} cannot wait for it")
    waiting = [job for job in tracked.jobs if job not in tracked.ids and tracked.jobs[job].state.alive]
    if waiting:
        raise UserError(f"{where}: job {waiting[0]} of {root} was not handed in: submit that study first")
    unknown = [job for job, status in tracked.jobs.items() if status.state is State.UNKNOWN]
    if unknown:
        raise UserError(f"{where}: job {unknown[0]} of {root}: {tracked.jobs[unknown[0]].reason}")
    bad = [
        job for job, status in tracked.jobs.items() if not status.state.alive and status.state is not State.COMPLETED
    ]
    if bad and not any_end:
        words = tracked.jobs[bad[0]].state.value
        raise UserError(f"{where}: job {bad[0]} of {root}: {words}: `hpcbench retry` it first, or use --after-any")
    ledger = Ledger(root)
    left = [ledger.of(job) for job, status in tracked.jobs.items() if status.state.alive]
    return After(root, list(dict.fromkeys(job.id for job in left if job is not None and job.id)), any_end)
