"""The decision about whether identical calls are encoded or left to PyTorch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hpcbench.comm.plan import Plan
from hpcbench.programs.account import CallCounts
from hpcbench.programs.call_carrier import CallCarrier


@dataclass
class Decision:
    """Plans of calls with the same operation, dtype, size and group."""

    row: CallCounts
    """Counts of encoded calls."""
    plain_row: CallCounts
    """Counts of calls that all ranks leave to PyTorch."""
    n: int
    """Total number of elements of all vectors in a call."""
    nbytes: int
    carrier: CallCarrier
    """Carrier of the group's encoded operations on the tensors' device."""
    plans: Sequence[Plan] | None = None
    """Plans, one per vector. The value is an empty sequence if PyTorch executes the calls, and None before the
    decision."""
    ask: Callable[[], Sequence[Plan]] | None = None
    """Function that makes the decision together with the other ranks. It may block."""

    def make(self) -> Sequence[Plan]:
        """Return the plans.

        If the ranks have not decided yet, the decision is made first. Making the decision may block until all ranks
        participate.
        """
        if self.plans is None:
            self.plans = self.ask() if self.ask is not None else ()
        return self.plans
