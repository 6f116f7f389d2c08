"""Time that a rank spends in each phase of its steps."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hpcbench.comm.clock import Clock, HostClock
from hpcbench.comm.recorder import Recorder
from hpcbench.contract.trace import STEPS


@dataclass
class Phases:
    """Time in seconds of each phase, summed over steps.

    On a GPU, the phases are timed on the compute stream. Otherwise, they are timed on the host.

    Attributes
    ----------
    forward, backward
        Time of the forward or backward passes, including tensor-parallel communication. Recomputation is part of the
        backward pass.
    bubble
        Idle time of the stage, from the call that receives another stage's message until the message arrives.
    reduction
        Exposed time of the gradient reduction after the last backward pass.
    optimizer
        Time from the gradient norm until all replicas have gathered the new weights.
    step
        Total time of the steps: the sum of all phases and the time between phases.
    steps
        Number of steps.
    clock
        Clock that measures the phases. Call its method `settle` before reading any times.
    recorder
        Recorder of the phases while a step is traced.
    """

    forward: float = 0.0
    backward: float = 0.0
    bubble: float = 0.0
    reduction: float = 0.0
    optimizer: float = 0.0
    step: float = 0.0
    steps: int = 0
    clock: Clock = field(default_factory=HostClock)
    recorder: Recorder | None = None

    def count(
        self, phase: str, begin: Any, end: Any, *, out_of: str | None = None, of: tuple[int, int] | None = None
    ) -> None:
        """Add the time between two clock marks to a phase.

        Parameters
        ----------
        phase
            Name of the phase.
        begin, end
            Clock marks at the start and the end.
        out_of
            Enclosing phase, from which the time is subtracted.
        of
            Micro-batch and chunk of the work, or None if the work belongs to no micro-batch.
        """
        self.clock.count(begin, end, partial(self._add, phase, out_of))
        if self.recorder is not None:
            about = {"micro_batch": of[0], "chunk": of[1]} if of else {}
            self.recorder.span(STEPS, phase, self.clock, begin, end, about)

    def _add(self, phase: str, out_of: str | None, seconds: float) -> None:
        setattr(self, phase, getattr(self, phase) + seconds)
        if out_of:
            setattr(self, out_of, getattr(self, out_of) - seconds)
