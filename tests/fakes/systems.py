"""The interface between the dispatcher and the faked scheduler."""

import importlib
from typing import Protocol

from fakes.state import Config, Job, State, Store


class System(Protocol):
    """The behaviour of a scheduler, apart from its programs."""

    def ready(self, job: Job, state: State) -> bool | None:
        """Whether the job's dependencies hold; None if they never will."""

    def environment(self, job: Job, store: Store) -> dict[str, str]:
        """Variables of the job, apart from those of its submission."""

    def plan(self, job: Job, config: Config, now: float) -> list[tuple[float, int, str]]:
        """The signals that it will get unless it ends before: time, signal, and reason."""

    def reaches_ranks(self, config: Config) -> bool:
        """Whether a signal to the job reaches its ranks, because they run on the host of the script."""

    def began(self, job: Job, now: float) -> None:
        """Note that it has started."""

    def signalled(self, job: Job, number: int, why: str, now: float) -> None:
        """Note that it got a signal."""

    def ended(self, job: Job, config: Config, now: float, *, again: bool) -> None:
        """Note that it has ended, and whether it goes back into the queue."""


def load(name: str) -> System:
    """The behaviour of ``lsf`` or ``flux``."""
    module = importlib.import_module(f"fakes.{name}")
    system: System = module.SYSTEM
    return system
