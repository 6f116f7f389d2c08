"""Pipeline schedules: the order of work of each stage, as pure data."""

from collections.abc import Iterator
from typing import NamedTuple


class Action(NamedTuple):
    """One piece of work of a stage."""

    work: str
    """``forward`` or ``backward``."""
    microbatch: int


def one_f_one_b(stage: int, stages: int, microbatches: int) -> Iterator[Action]:
    """The 1F1B schedule (PipeDream-Flush, arXiv 2006.09503): at most ``stages - stage`` micro-batches are alive.

    ``min(stages - stage - 1, microbatches)`` forwards warm up, then forward and backward alternate, then the rest of
    the backwards drain.
    """
    warmup = min(stages - stage - 1, microbatches)
    for i in range(warmup):
        yield Action("forward", i)
    for i in range(warmup, microbatches):
        yield Action("forward", i)
        yield Action("backward", i - warmup)
    for i in range(microbatches - warmup, microbatches):
        yield Action("backward", i)


def forward_only(stage: int, stages: int, microbatches: int) -> Iterator[Action]:
    """All forwards in order, for evaluation."""
    for i in range(microbatches):
        yield Action("forward", i)
