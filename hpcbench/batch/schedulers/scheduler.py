"""Scheduler interface and registry."""

import importlib
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.schedulers.job_status import JobStatus, job_of
from hpcbench.batch.sites.site import Site
from hpcbench.contract.state import State
from hpcbench.errors import UserError


@dataclass(frozen=True)
class Receipt:
    """Scheduler's response to a submission."""

    id: str
    """Id of the job or the whole array."""
    elements: Sequence[str]
    """Id of each job in the format of `poll` and `cancel`: ``123``, ``123_4``, ``123[4]``."""
    argv: Sequence[str] = ()
    output: str = ""
    """Standard output and error of the submission command."""


class UnclearError(UserError):
    """It is unclear whether the scheduler accepted the job. Look up the job by name before retrying."""


class JobScheduler(ABC):
    """A scheduler that runs the jobs of a submission on disk and reports their status.

    Parameters
    ----------
    root
        Absolute path of the submission directory.
    site
        Site of the submission.
    """

    kind: str
    """Name of the scheduler in site files."""
    interval: float = 30.0
    """Minimum number of seconds between two polls by a watcher."""
    programs: tuple[str, ...] = ()
    """Scheduler commands. All commands must be on PATH."""
    keeps_accounts: bool = True
    """Whether the scheduler reports waiting time and resource usage of ended jobs."""
    element: str = "{}_{}"
    """Format of array element ids, with the array id and a 1-based index."""
    most_after: int = 500
    """Maximum number of ids in a dependency. Longer lists are split among relay jobs."""
    slowest: float = 30.0
    """Seconds after which `find` is sure to list an accepted job. A busy controller lists jobs late."""

    def __init__(self, root: Path, site: Site) -> None:
        self.root = root
        self.site = site

    @classmethod
    def check(cls, site: Site) -> None:
        """Check that the scheduler can accept jobs, before anything is written.

        Raises
        ------
        UserError
            The scheduler is not usable, for example because its commands are missing.
        """
        missing = [program for program in cls.programs if shutil.which(program) is None]
        if missing:
            raise UserError(
                f"{site.site}: {', '.join(missing)}: not on PATH: run this on the machine's login "
                "node, or use --dry-run"
            )

    def preflight(self, jobs: Sequence[BatchJob], account: str | None) -> Iterable[str]:
        """Check the jobs before the first is submitted. Return lines for the user.

        Raises
        ------
        UserError
            The scheduler would refuse a job.
        """
        return ()

    @abstractmethod
    def submit(self, job: BatchJob) -> Receipt:
        """Submit a job or a job array.

        Raises
        ------
        UnclearError
            The scheduler may have accepted the job, for example if the call timed out or the response contains no id.
        UserError
            The scheduler refused the job. The message contains the scheduler's message and the remedy.
        """

    def begin(self) -> str:
        """Start the submitted jobs.

        The method is called once, after all jobs have been submitted. Return one line for the user, or an empty string.
        """
        return ""

    def list_elements(self, job: str, number: int) -> list[str]:
        """Return the ids of all array elements, whose indices start at 1."""
        return [self.element.format(job, k + 1) for k in range(number)]

    def choose(self, statuses: Mapping[str, JobStatus], jobs: int) -> Receipt | None:
        """Choose one of several jobs with the same name and return its receipt, or None if there are no jobs.

        Several jobs can have the same name if a submission got no response and was sent again. Of the accepted jobs,
        the running job is chosen, else the first pending job, else the first ended job.

        Parameters
        ----------
        statuses
            Status of each job and array element, keyed by id.
        jobs
            Number of array elements, or 1 for a single job.
        """

        def rank(id: str) -> tuple[int, int]:
            state = statuses[id].state
            return (0 if state in (State.RUNNING, State.SUSPENDED) else 1 if state.alive else 2), int(job_of(id))

        if not statuses:
            return None
        job = job_of(min(statuses, key=rank))
        array = jobs > 1 or any(re.search(r"[_\[]", id) for id in statuses if job_of(id) == job)
        return Receipt(job, self.list_elements(job, jobs) if array else [job])

    @abstractmethod
    def find(self, name: str, jobs: int) -> Receipt | None:
        """Look up a job by name. Return None if the scheduler does not list the job.

        Raises
        ------
        UserError
            The scheduler cannot be queried.
        """

    def copies(self, names: Sequence[str]) -> list[str]:
        """Return the ids of all live jobs with these names, in the format of `cancel`.

        Several jobs have the same name if LSF's bsub or a site wrapper submitted a job more than once. One of these
        jobs does the work, and the others exit immediately.

        Raises
        ------
        UserError
            The scheduler cannot be queried.
        """
        return []

    def queue_name(self, submission: str, job: str, before: int = 0) -> str:
        """Return the name of a job in the queue. The ledger, submissions and searches all use this name.

        Parameters
        ----------
        submission
            Name of the submission, unique among all submissions of this user.
        job
            Id of the job within the submission.
        before
            Number of earlier submissions of the job.
        """
        return f"{submission}-{job}" + (f".{before + 1}" if before else "")

    @abstractmethod
    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        """Return the statuses of these ids.

        One call queries all ids, and a second call queries the ids that were not listed.

        Ids unknown to the scheduler are omitted.

        Raises
        ------
        UserError
            The scheduler cannot be queried because its commands are missing or fail.
        """

    @abstractmethod
    def cancel(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Cancel running and pending jobs.

        For each job, return ``ended``, ``already over``, or the reason why it could not be cancelled.
        """


_CLASSES = {
    "local": "local:Local",
    "slurm": "slurm:Slurm",
    "lsf": "lsf:Lsf",
    "flux": "flux:Flux",
}
"""Module in this package and class of each scheduler, keyed by its name in site files."""


def scheduler_class(kind: str) -> type[JobScheduler]:
    """Return the scheduler class of this kind. Only the module of this scheduler is imported."""
    module, _, name = _CLASSES[kind].partition(":")
    scheduler: type[JobScheduler] = getattr(importlib.import_module(f"hpcbench.batch.schedulers.{module}"), name)
    return scheduler
