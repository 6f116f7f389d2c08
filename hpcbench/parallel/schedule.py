"""Pipeline schedules: the order of actions on each stage, as pure data.

The model is cut into ``stages * chunks`` parts. Chunk c of stage r is part ``c * stages + r``. Three modules use a
schedule: the executor (`hpcbench.parallel.pipeline`), the memory model (`hpcbench.predict.activations`), and the
simulator (`hpcbench.predict.stage_program`).

Every schedule runs the backward passes of a chunk in micro-batch order. Gradients are therefore summed in the same
order as without a pipeline and are bitwise identical.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from hpcbench.contract.training import ScheduleName


class Action(NamedTuple):
    """One action of a pipeline stage."""

    work: str
    """Kind of the action: ``forward`` or ``backward``."""
    microbatch: int
    chunk: int = 0


class Schedule(Protocol):
    """Function that yields the actions of one stage in execution order."""

    def __call__(self, stage: int, stages: int, microbatches: int, chunks: int = 1) -> Iterator[Action]:
        """Yield the actions of a stage."""


def gpipe(stage: int, stages: int, microbatches: int, chunks: int = 1) -> Iterator[Action]:
    """Yield all forwards, then all backwards (GPipe, arXiv 1811.06965).

    All micro-batches are in flight at the same time.
    """
    _one_chunk("gpipe", chunks)
    for i in range(microbatches):
        yield Action("forward", i)
    for i in range(microbatches):
        yield Action("backward", i)


def one_f_one_b(stage: int, stages: int, microbatches: int, chunks: int = 1) -> Iterator[Action]:
    """Yield the 1F1B schedule (PipeDream-Flush, arXiv 2006.09503).

    The warm-up consists of ``min(stages - stage - 1, microbatches)`` forwards. Then forwards and backwards alternate,
    followed by the remaining backwards. At most ``stages - stage`` micro-batches are in flight.
    """
    _one_chunk("1f1b", chunks)
    forwards = [Action("forward", i) for i in range(microbatches)]
    backwards = [Action("backward", i) for i in range(microbatches)]
    yield from _alternating(forwards, backwards, warmup=stages - stage - 1)


def interleaved(stage: int, stages: int, microbatches: int, chunks: int = 1) -> Iterator[Action]:
    """Yield interleaved 1F1B with several chunks per stage (arXiv 2104.04473, section 2.2).

    The bubble is divided by the number of chunks. Groups of `stages` micro-batches pass through one chunk after
    another. As in Megatron-LM, the warm-up consists of ``2 (stages - stage - 1) + (chunks - 1) stages`` forwards, so
    that every gradient arrives before its backward pass.

    Raises
    ------
    ValueError
        There is only one chunk, or the number of micro-batches is not a multiple of the number of stages.
    """
    if chunks < 2:
        raise ValueError("schedule interleaved needs at least two chunks per stage: for one chunk, use 1f1b")
    if microbatches % stages:
        raise ValueError(
            f"schedule interleaved needs a multiple of {stages} micro-batches, not {microbatches}: use 1f1b, or "
            "change the number of micro-batches"
        )
    forwards = list(forward_only(stage, stages, microbatches, chunks))
    backwards = [Action("backward", action.microbatch, chunks - 1 - action.chunk) for action in forwards]
    yield from _alternating(forwards, backwards, warmup=2 * (stages - stage - 1) + (chunks - 1) * stages)


def forward_only(stage: int, stages: int, microbatches: int, chunks: int = 1) -> Iterator[Action]:
    """Yield all forwards, for an evaluation with any number of micro-batches.

    All stages use the same order, and each part follows the previous part, so the stages cannot deadlock.
    """
    for first in range(0, microbatches, stages):
        for chunk in range(chunks):
            for i in range(first, min(first + stages, microbatches)):
                yield Action("forward", i, chunk)


SCHEDULES: dict[ScheduleName, Schedule] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "pipedream": one_f_one_b,
    "pipedream-2bw": one_f_one_b,
}
"""Pipeline schedules by name.

Schedules without a flush use 1F1B over the micro-batches of all steps (`hpcbench.parallel.stream`).
"""


def _one_chunk(name: str, chunks: int) -> None:
    if chunks != 1:
        raise ValueError(f"schedule {name} supports one chunk per stage, not {chunks}: use interleaved")


def _alternating(forwards: list[Action], backwards: list[Action], *, warmup: int) -> Iterator[Action]:
    """Yield `warmup` forwards, then alternating forwards and backwards, then the remaining backwards."""
    warmup = min(warmup, len(forwards))
    yield from forwards[:warmup]
    for forward, backward in zip(forwards[warmup:], backwards, strict=False):
        yield forward
        yield backward
    yield from backwards[len(forwards) - warmup :]
