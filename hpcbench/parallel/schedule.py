"""Pipeline schedules: the order of each stage's actions, as pure data.

The model is cut into ``stages * chunks`` parts; stage r holds part ``c * stages + r`` as its chunk c. The executor
(`hpcbench.parallel.pipeline`) carries out a schedule, the memory model (`hpcbench.predict.activations`) counts it, and
the simulator (`hpcbench.predict.schedule`) times it. All three read the same data.

Every schedule runs the backward passes of a chunk in the order of the micro-batches, so that gradients are summed in
the same order as without a pipeline and have the same bits.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from hpcbench.contract.training import ScheduleName


class Action(NamedTuple):
    """One piece of work of a stage."""

    work: str
    """Kind of work: ``forward`` or ``backward``."""
    microbatch: int
    chunk: int = 0


class Schedule(Protocol):
    """The actions of one stage in their order."""

    def __call__(self, stage: int, stages: int, microbatches: int, chunks: int = 1) -> Iterator[Action]:
        """Yield the actions of a stage."""


def gpipe(stage: int, stages: int, microbatches: int, chunks: int = 1) -> Iterator[Action]:
    """Yield all forwards, then all backwards (arXiv 1811.06965): all micro-batches are alive at once."""
    _one_chunk("gpipe", chunks)
    for i in range(microbatches):
        yield Action("forward", i)
    for i in range(microbatches):
        yield Action("backward", i)


def one_f_one_b(stage: int, stages: int, microbatches: int, chunks: int = 1) -> Iterator[Action]:
    """Yield the 1F1B schedule (PipeDream-Flush, arXiv 2006.09503): at most ``stages - stage`` micro-batches are alive.

    ``min(stages - stage - 1, microbatches)`` forwards warm up, then forward and backward alternate, then the rest of
    the backwards drain.
    """
    _one_chunk("1f1b", chunks)
    forwards = [Action("forward", i) for i in range(microbatches)]
    backwards = [Action("backward", i) for i in range(microbatches)]
    yield from _alternating(forwards, backwards, warmup=stages - stage - 1)


def interleaved(stage: int, stages: int, microbatches: int, chunks: int = 1) -> Iterator[Action]:
    """Yield 1F1B over several chunks per stage (arXiv 2104.04473, section 2.2): the bubble is divided by their number.

    Groups with one micro-batch for each stage go through chunk after chunk. Megatron-LM's warm-up of
    ``2 (stages - stage - 1) + (chunks - 1) stages`` forwards lets every backward find its gradient in time.

    Raises
    ------
    ValueError
        There is only one chunk, or the number of micro-batches is not a multiple of the stages.
    """
    if chunks < 2:
        raise ValueError("schedule interleaved needs at least two chunks per stage: use 1f1b for one")
    if microbatches % stages:
        raise ValueError(
            f"schedule interleaved needs a multiple of {stages} micro-batches, not {microbatches}:"
            " use 1f1b, or another number"
        )
    forwards = list(forward_only(stage, stages, microbatches, chunks))
    backwards = [Action("backward", action.microbatch, chunks - 1 - action.chunk) for action in forwards]
    yield from _alternating(forwards, backwards, warmup=2 * (stages - stage - 1) + (chunks - 1) * stages)


def forward_only(stage: int, stages: int, microbatches: int, chunks: int = 1) -> Iterator[Action]:
    """Yield all forwards, for the evaluation of any number of micro-batches.

    Every stage has the same order, and each part follows the previous one, so stages cannot deadlock.
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
"""The schedules. Those without a flush are 1F1B over the micro-batches of all steps, see `hpcbench.parallel.stream`."""


def _one_chunk(name: str, chunks: int) -> None:
    if chunks != 1:
        raise ValueError(f"schedule {name} has one chunk per stage, not {chunks}: use interleaved")


def _alternating(forwards: list[Action], backwards: list[Action], *, warmup: int) -> Iterator[Action]:
    """Yield `warmup` forwards, then a forward and a backward in turn, then the remaining backwards."""
    warmup = min(warmup, len(forwards))
    yield from forwards[:warmup]
    for forward, backward in zip(forwards[warmup:], backwards, strict=False):
        yield forward
        yield backward
    yield from backwards[len(forwards) - warmup :]
