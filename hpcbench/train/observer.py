"""Base class of step observers, such as energy meters, traces and message samplers."""

from hpcbench.contract.events import Event


class Observer:
    """An observer of steps (counted from 1). All methods except `writes` are collective calls.

    The training loop calls `begin`, runs the step, and calls `pause` and then `end`. Subclasses override the methods
    that they need.
    """

    def begin(self, step: int) -> None:
        """Prepare for a step."""

    def writes(self, step: int) -> bool:
        """Return whether `end` writes files after this step, which takes time."""
        return False

    def pause(self, step: int, *, more: bool) -> None:
        """Take readings immediately after a step.

        Parameters
        ----------
        more
            Whether an action other than the next step follows, such as an evaluation.
        """

    def end(self, step: int) -> Event | None:
        """Write the observations of a step. Return a log event, or None."""
        return None

    def summary(self, *, from_step: int, to_step: int) -> Event | None:
        """Return the summary event of all counted steps, after the last step."""
        return None
