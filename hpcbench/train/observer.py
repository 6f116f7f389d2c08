"""Observers of a run's steps: energy, traces and sampled messages."""

from hpcbench.contract.events import Event


class Observer:
    """An observer of a run's steps, which are counted from 1. All methods but `writes` are collective calls.

    The loop calls `begin`, takes the step, calls `pause`, and then `end`. An observer overrides what it needs.
    """

    def begin(self, step: int) -> None:
        """Prepare for a step."""

    def writes(self, step: int) -> bool:
        """Return whether `end` takes time after this step."""
        return False

    def pause(self, step: int, *, more: bool) -> None:
        """Take readings right after a step.

        Parameters
        ----------
        more
            Whether something other than the next step follows, such as an evaluation.
        """

    def end(self, step: int) -> Event | None:
        """Write the observations of a step. Return an event for the log, if there is one."""
        return None

    def summary(self, *, from_step: int, to_step: int) -> Event | None:
        """Return the event about all counted steps, after the last one."""
        return None
