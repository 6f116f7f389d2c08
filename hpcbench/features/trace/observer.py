"""Observer that traces selected steps of a run. Each rank writes one file (see `hpcbench.contract.trace`)."""

import time
from pathlib import Path

from mpi4py import MPI

from hpcbench.comm.compare_clocks import compare
from hpcbench.comm.progress import Progress
from hpcbench.comm.recorder import Recorder
from hpcbench.contract.trace import STEP, StepTrace, TraceSpan, write_trace
from hpcbench.errors import UserError
from hpcbench.features.trace.events import TraceWritten
from hpcbench.parallel.exact import gather
from hpcbench.train.observer import Observer
from hpcbench.train.trainer import Trainer


class TraceObserver(Observer):
    """Trace observer of a run with the setting `train.trace`. All methods are collective calls.

    Parameters
    ----------
    trainer
        Trainer whose steps are traced.
    comm
        Communicator of all ranks.
    progress
        Progress engine of the trainer.
    host
        Host name of this rank.
    directory
        Output directory, which is created if it does not exist.
    """

    def __init__(self, trainer: Trainer, comm: MPI.Comm, progress: Progress, host: str, directory: Path) -> None:
        self._trainer, self._progress, self._host, self._directory = trainer, progress, host, directory
        asked = trainer.run.train.trace
        self._first, self._last = asked.steps if asked else (0, 0)
        self._comm = comm.Dup() if asked else comm
        self._recorder: Recorder | None = None

    def begin(self, step: int) -> None:
        """Begin a step, counted from 1."""
        if not self._first <= step <= self._last:
            return
        if self._recorder is None:
            self._recorder = Recorder(self._trainer.clock)
            self._before = compare(self._comm, self._progress)
        self._recorder.begin(step)
        self._trainer.record(self._recorder)

    def writes(self, step: int) -> bool:
        """Return whether the files are written after this step."""
        return self._recorder is not None and step == self._last

    def end(self, step: int) -> TraceWritten | None:
        """End a step. After the last traced step, write the files and return the event.

        Raises
        ------
        UserError
            The file cannot be written.
        """
        recorder = self._recorder
        if recorder is None or not self._first <= step <= self._last:
            return None
        self._trainer.record(None)
        if step < self._last:
            return None
        begin = time.perf_counter()
        after = compare(self._comm, self._progress)
        trainer = self._trainer
        spans_in_steps = _select_in_steps(recorder.spans())
        trace = StepTrace(trainer.mesh.rank, self._host, self._before, after, spans_in_steps, recorder.left_out)
        try:
            self._directory.mkdir(exist_ok=True)
            write_trace(self._directory, trace)
        except OSError as error:
            raise UserError(f"{self._directory}: the trace cannot be written: {error.strerror}") from None
        counts = gather(trainer.mesh.world, [len(spans_in_steps), recorder.left_out], trainer.policy.exact)
        spans, left_out = (round(sum(column)) for column in zip(*counts, strict=True))
        return TraceWritten(
            from_step=min(trace.steps(), default=step),
            to_step=step,
            spans=spans,
            left_out=left_out,
            seconds=round(time.perf_counter() - begin, 3),
        )


def _select_in_steps(spans: tuple[TraceSpan, ...]) -> tuple[TraceSpan, ...]:
    """Return the spans that lie within steps.

    Reductions for the step line take place after the step and are excluded.
    """
    ends = {span.step: span.end for span in spans if span.name == STEP}
    return tuple(span for span in spans if span.begin < ends.get(span.step, 0.0))
