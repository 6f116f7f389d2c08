"""What a scheduler can do, and the register of them."""

import importlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.batch.sites.site import Site
from hpcbench.contract.state import State
from hpcbench.errors import UserError


@dataclass(frozen=True)
class Receipt:
    """What the scheduler answered."""

    id: str
    """Id of the job or of the whole array."""
    elements: Sequence[str]
    """The id of each of its jobs, by which `poll` and `cancel` know it: ``123``, ``123_4``, ``123[4]``."""
    argv: Sequence[str] = ()
    said: str = ""
    """Standard output and error of the submission."""


class UnclearError(UserError):
    """The scheduler's answer does not say whether it took the job: look it up by name before another try."""


class Scheduler(ABC):
    """Takes the jobs of a submission that lies on disk, and tells how they stand.

    Parameters
    ----------
    root
        Absolute path of the submission's directory.
    site
        The machine.
    """

    kind: str = "local"
    """By which site files know it."""
    interval: float = 30.0
    """Seconds between two polls of a watcher, at least."""
    programs: tuple[str, ...] = ()
    """What it is asked by, of which each must be on PATH."""
    keeps_accounts: bool = True
    """Whether it can tell of a job that has ended how long it waited and what it took."""
    most_after: int = 500
    """Ids in one list of what a job waits for; more of them are waited for by way of relays."""
    slowest: float = 30.0
    """Seconds after which `find` shows what was taken: a busy controller answers late, and lists later still."""

    def __init__(self, root: Path, site: Site) -> None:
        self.root = root
        self.site = site

    @classmethod
    def check(cls, site: Site) -> None:
        """Find out what would keep jobs from being taken, before anything is written.

        Raises
        ------
        UserError
            Something would: the scheduler's programs are missing, say.
        """
        missing = [program for program in cls.programs if shutil.which(program) is None]
        if missing:
            raise UserError(
                f"{site.site}: {', '.join(missing)}: not on PATH: be on the machine's login node, or use --dry-run"
            )

    def preflight(self, jobs: Sequence[BatchJob], account: str | None) -> Iterable[str]:
        """Ask what can be told before anything is handed in; gives lines for the user, none where nothing can.

        Parameters
        ----------
        jobs
            That lie on disk.
        account
            That the study names.

        Raises
        ------
        UserError
            The scheduler would refuse one of them.
        """
        return ()

    @abstractmethod
    def submit(self, job: BatchJob) -> Receipt:
        """Hand in one job, or one array of jobs.

        Raises
        ------
        UnclearError
            It may or may not have been taken: a time-out, no id in the answer.
        UserError
            The scheduler refused it; its own words and the remedy.
        """

    def begin(self) -> str:
        """Called once when all jobs are handed in; returns one line for the user, or nothing."""
        return ""

    @abstractmethod
    def find(self, name: str, jobs: int) -> Receipt | None:
        """Look up what was handed in under a name; None if the scheduler knows of nothing.

        Parameters
        ----------
        jobs
            How many elements it has; 1 for a job that is no array.

        Raises
        ------
        UserError
            The scheduler cannot be asked.
        """

    def copies(self, names: Sequence[str]) -> list[str]:
        """Return the ids, as `cancel` takes them, of all live jobs that have one of these names.

        Several have one name where a call was sent more than once, by LSF's own program or by a site's wrapper of it:
        one of them runs the job, the others leave at once.

        Raises
        ------
        UserError
            The scheduler cannot be asked.
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
        """What the scheduler says of these ids, in one call for all (and one more for those that it no longer lists).

        An id that it does not know is left out: no news.

        Raises
        ------
        UserError
            The scheduler cannot be asked: its programs are missing or fail.
        """

    @abstractmethod
    def cancel(self, ids: Sequence[str]) -> Mapping[str, str]:
        """End what runs and drop what waits; what was said of each: ``ended``, ``already over``, or why not."""


def the_one(words: Mapping[str, JobStatus], job_of: Callable[[str], str]) -> str | None:
    """Which of several jobs of one name counts; None where there is none.

    A call that nobody answered may have been sent more than once. Of the jobs that were taken, the one that runs
    counts, else the first that waits; what is over counts where nothing else is left.

    Parameters
    ----------
    words
        How each stands, by its id, of elements of an array too.
    job_of
        The job to which an id belongs.
    """

    def rank(id: str) -> tuple[int, int]:
        state = words[id].state
        return (0 if state in (State.RUNNING, State.SUSPENDED) else 1 if state.alive else 2), int(job_of(id))

    return job_of(min(words, key=rank)) if words else None


_MODULES = {
    "local": "hpcbench.batch.schedulers.local",
    "slurm": "hpcbench.batch.schedulers.slurm",
    "lsf": "hpcbench.batch.schedulers.lsf",
    "flux": "hpcbench.batch.schedulers.flux",
}
_REGISTRY: dict[str, type[Scheduler]] = {}


def register_scheduler(kind: str) -> Callable[[type[Scheduler]], type[Scheduler]]:
    """Register a scheduler under the `kind` that site files use."""

    def register(scheduler: type[Scheduler]) -> type[Scheduler]:
        _REGISTRY[kind], scheduler.kind = scheduler, kind
        return scheduler

    return register


def scheduler_class(kind: str) -> type[Scheduler]:
    """The class of schedulers of this kind."""
    importlib.import_module(_MODULES[kind])
    return _REGISTRY[kind]
