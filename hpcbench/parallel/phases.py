"""Where the time of a rank's steps goes."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hpcbench.comm.clock import Clock, HostClock
from hpcbench.comm.recorder import Recorder
from hpcbench.contract.trace import STEPS


@dataclass
class Phases:
    """Seconds, summed over steps: of the host, or on a GPU of the stream that computes, whatever the host waits for.

    Attributes
    ----------
    forward, backward
        In the passes, with their tensor-parallel traffic; what is recomputed is part of the backward pass.
    bubble
        In the passes, from when the stage wants a message of another one until it has it: the stage idles.
    reduction
        Waiting, after the last backward pass, for the gradients' reduction.
    optimizer
        From the gradient norm to the new weights, gathered by all replicas.
    step
        The whole: more than the sum of the others by what is between them.
    steps
        How many.
    clock
        By which they are counted; it must have been settled.
    recorder
        Writes them down, while a step is traced.
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
            Which.
        begin, end
            Marks of the clock.
        out_of
            The phase that it lies in, and is no part of.
        of
            Micro-batch and chunk, where it is of one.
        """
        self.clock.count(begin, end, partial(self._add, phase, out_of))
        if self.recorder is not None:
            about = {"micro_batch": of[0], "chunk": of[1]} if of else {}
            self.recorder.span(STEPS, phase, self.clock, begin, end, about)

    def _add(self, phase: str, out_of: str | None, seconds: float) -> None:
        setattr(self, phase, getattr(self, phase) + seconds)
        if out_of:
            setattr(self, out_of, getattr(self, out_of) - seconds)
