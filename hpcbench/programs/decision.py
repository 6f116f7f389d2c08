"""The decision on identical calls: encode them, or leave them to PyTorch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hpcbench.comm.plan import Plan
from hpcbench.programs.account import CallCounts
from hpcbench.programs.call_carrier import CallCarrier


@dataclass
class Decision:
    """The plans of calls of one operation, type and size in a group."""

    row: CallCounts
    """Counts of encoded calls."""
    plain_row: CallCounts
    """Counts of calls that all ranks leave to PyTorch."""
    n: int
    """Elements of all vectors of a call."""
    nbytes: int
    carrier: CallCarrier
    """Encoded operations of the group on the device of the tensors."""
    plans: Sequence[Plan] | None = None
    """A plan for each vector; empty if PyTorch carries out the calls; None before the ranks have decided."""
    ask: Callable[[], Sequence[Plan]] | None = None
    """Function that decides together with the other ranks, and may wait for them."""

    def make(self) -> Sequence[Plan]:
        """Return the plans, and decide first if needed. The decision may block until all ranks take part."""
        if self.plans is None:
            self.plans = self.ask() if self.ask is not None else ()
        return self.plans
