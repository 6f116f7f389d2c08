"""Interface between the dispatcher and a fake scheduler."""

import importlib
from typing import Protocol

from fakes.state import Config, Job, State, Store


class System(Protocol):
    """Behavior of a scheduler, apart from its programs."""

    def is_ready(self, job: Job, state: State) -> bool | None:
        """Return whether the job's dependencies are met, or None if they never will be."""

    def list_variables(self, job: Job, store: Store) -> dict[str, str]:
        """Return the job's variables, in addition to the variables of its submission."""

    def plan(self, job: Job, config: Config, now: float) -> list[tuple[float, int, str]]:
        """Return the job's future signals: time, signal, and reason."""

    def can_reach_ranks(self, config: Config) -> bool:
        """Return whether a signal to the job reaches its ranks, because they run on the script's host."""

    def record_start(self, job: Job, now: float) -> None:
        """Record that the job has started."""

    def record_signal(self, job: Job, number: int, why: str, now: float) -> None:
        """Record that the job received a signal."""

    def record_end(self, job: Job, config: Config, now: float, *, again: bool) -> None:
        """Record that the job has ended, and whether it is requeued."""


def load(name: str) -> System:
    """Return the behavior of ``lsf`` or ``flux``."""
    module = importlib.import_module(f"fakes.{name}")
    system: System = module.SYSTEM
    return system
