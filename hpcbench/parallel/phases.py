"""The time that a rank spends in each phase of its steps."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hpcbench.comm.clock import Clock, HostClock
from hpcbench.comm.recorder import Recorder
from hpcbench.contract.trace import STEPS


@dataclass
class Phases:
    """Time of each phase in seconds of the host, or on a GPU of the computing stream, summed over steps.

    Attributes
    ----------
    forward, backward
        Seconds in the passes, with their tensor-parallel traffic. Recomputation is part of the backward pass.
    bubble
        Seconds in the passes in which the stage is idle: from the call to receive another stage's message to its
        arrival.
    reduction
        Seconds of waiting for the gradients' reduction after the last backward pass.
    optimizer
        Seconds from the gradient norm to the new weights, gathered by all replicas.
    step
        Seconds of the whole steps: the sum of the phases, and the time between them.
    steps
        Number of steps.
    clock
        The clock that measures them; it must have been settled.
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
        """Add the time between two marks of the clock to a phase.

        Parameters
        ----------
        phase
            Name of the phase.
        begin, end
            Marks of the clock.
        out_of
            The phase that contains it and does not count it.
        of
            Micro-batch and chunk, if it belongs to one.
        """
        self.clock.count(begin, end, partial(self._add, phase, out_of))
        if self.recorder is not None:
            about = {"micro_batch": of[0], "chunk": of[1]} if of else {}
            self.recorder.span(STEPS, phase, self.clock, begin, end, about)

    def _add(self, phase: str, out_of: str | None, seconds: float) -> None:
        setattr(self, phase, getattr(self, phase) + seconds)
        if out_of:
            setattr(self, out_of, getattr(self, out_of) - seconds)
