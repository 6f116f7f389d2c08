"""Interface of the schedulers, and their registry."""

import importlib
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.schedulers.job_status import JobStatus, job_of
from hpcbench.batch.sites.site import Site
from hpcbench.contract.state import State
from hpcbench.errors import UserError


@dataclass(frozen=True)
class Receipt:
    """Answer of the scheduler to a submission."""

    id: str
    """Id of the job or of the whole array."""
    elements: Sequence[str]
    """Id of each of its jobs, as `poll` and `cancel` take it: ``123``, ``123_4``, ``123[4]``."""
    argv: Sequence[str] = ()
    output: str = ""
    """Standard output and error of the submission."""


class UnclearError(UserError):
    """The answer does not show whether the scheduler accepted the job. Look it up by name before another attempt."""


class JobScheduler(ABC):
    """A scheduler that runs the jobs of a submission on disk, and reports their status.

    Parameters
    ----------
    root
        Absolute path of the submission's directory.
    site
        The machine.
    """

    kind: str = "local"
    """Name of the scheduler in site files."""
    interval: float = 30.0
    """Seconds between two polls of a watcher, at least."""
    programs: tuple[str, ...] = ()
    """Programs of the scheduler; each must be on PATH."""
    keeps_accounts: bool = True
    """Whether it reports the waiting time and the resources of ended jobs."""
    element: str = "{}_{}"
    """Form of the id of an array's element: the job, and the index from 1."""
    most_after: int = 500
    """Maximum number of ids that a job can wait for. For more ids, relay jobs wait for parts of the list."""
    slowest: float = 30.0
    """Seconds after which `find` lists an accepted job. A busy controller lists jobs late."""

    def __init__(self, root: Path, site: Site) -> None:
        self.root = root
        self.site = site

    @classmethod
    def check(cls, site: Site) -> None:
        """Check that the scheduler can accept jobs, before anything is written.

        Raises
        ------
        UserError
            It cannot, for instance because its programs are missing.
        """
        missing = [program for program in cls.programs if shutil.which(program) is None]
        if missing:
            raise UserError(
                f"{site.site}: {', '.join(missing)}: not on PATH: run this on the machine's login "
                "node, or use --dry-run"
            )

    def preflight(self, jobs: Sequence[BatchJob], account: str | None) -> Iterable[str]:
        """Check the jobs before any is submitted; return lines for the user.

        Parameters
        ----------
        jobs
            Jobs on disk.
        account
            Account of the study.

        Raises
        ------
        UserError
            The scheduler would refuse one of them.
        """
        return ()

    @abstractmethod
    def submit(self, job: BatchJob) -> Receipt:
        """Submit one job, or one array of jobs.

        Raises
        ------
        UnclearError
            The scheduler may have accepted the job, such as after a time-out or without an id in the answer.
        UserError
            The scheduler refused the job. The message has its words and the remedy.
        """

    def begin(self) -> str:
        """Start the submitted jobs, once after all submissions; return one line for the user, or nothing."""
        return ""

    def list_elements(self, job: str, number: int) -> list[str]:
        """Return the ids of an array's elements, which count from 1."""
        return [self.element.format(job, k + 1) for k in range(number)]

    def choose(self, statuses: Mapping[str, JobStatus], jobs: int) -> Receipt | None:
        """Return the receipt of one of several jobs that have the same name; None if there is none.

        A call without an answer may have been sent more than once. Of the jobs that were accepted, the running one
        counts, else the first that waits, else the first that is over.

        Parameters
        ----------
        statuses
            Status of each job by id, elements of arrays included.
        jobs
            Number of elements; 1 for a job that is not an array.
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
        """Look up the job that was submitted under a name; None if the scheduler does not list it.

        Parameters
        ----------
        jobs
            Number of elements; 1 for a job that is not an array.

        Raises
        ------
        UserError
            The scheduler cannot be queried.
        """

    def copies(self, names: Sequence[str]) -> list[str]:
        """Return the ids, as `cancel` takes them, of all live jobs that have one of these names.

        Several jobs have one name if LSF's program or a site's wrapper sent a call more than once. One of them runs
        the job; the others end at once.

        Raises
        ------
        UserError
            The scheduler cannot be queried.
        """
        return []

    def queue_name(self, submission: str, job: str, before: int = 0) -> str:
        """Return the name of a job in the queue; the ledger, the submission and every search use this one.

        Parameters
        ----------
        submission
            Name of the submission, unique among all submissions of this user.
        job
            Id of the job within it.
        before
            Number of times that the job was submitted before.
        """
        return f"{submission}-{job}" + (f".{before + 1}" if before else "")

    @abstractmethod
    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        """Return the statuses of these ids, by one call for all (and one more for ids that are no longer listed).

        An id that the scheduler does not list is left out.

        Raises
        ------
        UserError
            The scheduler cannot be queried: its programs are missing or fail.
        """

    @abstractmethod
    def cancel(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Cancel running and pending jobs; return for each ``ended``, ``already over``, or why not."""


_MODULES = {
    "local": "hpcbench.batch.schedulers.local",
    "slurm": "hpcbench.batch.schedulers.slurm",
    "lsf": "hpcbench.batch.schedulers.lsf",
    "flux": "hpcbench.batch.schedulers.flux",
}
_REGISTRY: dict[str, type[JobScheduler]] = {}


def register_scheduler(kind: str) -> Callable[[type[JobScheduler]], type[JobScheduler]]:
    """Register a scheduler under the `kind` that site files use."""

    def register(scheduler: type[JobScheduler]) -> type[JobScheduler]:
        _REGISTRY[kind], scheduler.kind = scheduler, kind
        return scheduler

    return register


def scheduler_class(kind: str) -> type[JobScheduler]:
    """Return the class of schedulers of this kind."""
    importlib.import_module(_MODULES[kind])
    return _REGISTRY[kind]
