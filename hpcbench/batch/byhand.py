"""What a scheduler can do, and the register of them."""

import importlib
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from hpcbench.errors import UserError

_MODULES = {"local": "hpcbench.batch.local", "slurm": "hpcbench.batch.byhand", "lsf": "hpcbench.batch.byhand"}
_REGISTRY: dict[str, type["Scheduler"]] = {}


class Scheduler(ABC):
    """Takes the jobs of a submission that lies on disk."""

    def check(self) -> None:
        """Find out what would keep jobs from being taken, before anything is written.

        Raises
        ------
        UserError
            Something would.
        """
        return

    @abstractmethod
    def submit(self, root: Path, jobs: list[str]) -> str:
        """Hand in every job of the submission at `root`; returns one line for the user.

        Raises
        ------
        UserError
            The scheduler cannot take them.
        """

    @abstractmethod
    def cancel(self, root: Path) -> str:
        """End what runs and drop what waits; returns one line for the user.

        Raises
        ------
        UserError
            The scheduler cannot be asked from here.
        """


def register_scheduler(kind: str) -> Callable[[type[Scheduler]], type[Scheduler]]:
    """Register a scheduler under the `kind` that site files use."""

    def register(scheduler: type[Scheduler]) -> type[Scheduler]:
        _REGISTRY[kind] = scheduler
        return scheduler

    return register


def get_scheduler(kind: str) -> Scheduler:
    """The scheduler of this kind."""
    importlib.import_module(_MODULES[kind])
    return _REGISTRY[kind]()


class ByHand(Scheduler):
    """A scheduler that takes the scripts from its user's hand."""

    name: str
    hand_in: str
    """The command, before a script's path."""
    drop: str
    """The command that ends a job."""

    def submit(self, root: Path, jobs: list[str]) -> str:
        script = shlex.quote(str(root / "jobs" / jobs[0] / "job.sh"))
        others = f", and so on for all {len(jobs)} jobs" if len(jobs) > 1 else ""
        raise UserError(
            f"hpcbench does not hand jobs to {self.name} yet: the scripts are in {root / 'jobs'}: "
            f"hand them in with `{self.hand_in} {script}`{others}"
        )

    def cancel(self, root: Path) -> str:
        raise UserError(f"{root}: its jobs were handed to {self.name} by hand: end them with `{self.drop} JOB_ID`")


@register_scheduler("slurm")
class Slurm(ByHand):
    """Slurm: scripts only."""

    name, hand_in, drop = "Slurm", "sbatch", "scancel"


@register_scheduler("lsf")
class Lsf(ByHand):
    """LSF: scripts only. They go in on standard input: `bsub FILE` reads no directives at most sites."""

    name, hand_in, drop = "LSF", "bsub <", "bkill"
