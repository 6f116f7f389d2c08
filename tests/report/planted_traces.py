"""Rank traces with given times, in the directory of a run."""

from pathlib import Path

from hpcbench.contract.trace import (
    CODEC,
    DIRECTORY,
    STEP,
    STEPS,
    WAIT,
    ClockComparison,
    StepTrace,
    TraceSpan,
    write_trace,
)

MS = 1e-3


def plant(run: Path, ranks: int = 4, *, ahead: float = 50.0, steps: tuple[int, ...] = (4, 5, 6)) -> None:
    """Write steps of 100 ms. The clock of each rank is ahead of the previous rank's clock."""
    directory = run / DIRECTORY
    directory.mkdir()
    for rank in range(ranks):
        clock = ahead * rank
        spans = [span for step in steps for span in _step(step, clock + step * 100 * MS, rank)]
        compared = [ClockComparison(clock + at, clock, 2e-6) for at in (0.0, 10.0)]
        write_trace(directory, StepTrace(rank, f"n{rank // 2}", compared[0], compared[1], tuple(spans)))


def _step(step: int, begin: float, rank: int) -> list[TraceSpan]:
    def span(track: str, name: str, start: float, end: float, **about: object) -> TraceSpan:
        return TraceSpan(track, name, begin + start * MS, begin + end * MS, step, about)

    late = 5.0 * (rank % 2)
    return [
        span(STEPS, "forward", 0, 30, micro_batch=0, chunk=0),
        span(STEPS, "backward", 30, 70 + late, micro_batch=0, chunk=0),
        span(STEPS, WAIT, 72 + late, 80, channel="DP BACKWARD GRAD"),
        span(STEPS, "reduction", 70 + late, 80),
        span(STEPS, "optimizer", 80, 100),
        span(STEPS, STEP, 0, 100),
        span(CODEC, "encode", 60, 64, channel="DP BACKWARD GRAD"),
        span("DP BACKWARD GRAD", "DP BACKWARD GRAD", 60, 79, message_bytes=1000, wire_bytes=250),
    ]
