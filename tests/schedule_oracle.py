"""Closed forms and a simulation of pipeline schedules, which share no code with hpcbench."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hpcbench.parallel.schedule import Action, Schedule


class TimedAction(NamedTuple):
    """An action with start and end times, in seconds from the start of the step."""

    action: Action
    begin: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """Timed actions of every stage."""

    stages: list[list[TimedAction]]

    @property
    def seconds(self) -> float:
        """Seconds from the first action to the end of the last action."""
        return max((stage[-1].end for stage in self.stages if stage), default=0.0)

    @property
    def bubble(self) -> float:
        """Idle fraction of the stages' total time."""
        busy = sum(timed.end - timed.begin for stage in self.stages for timed in stage)
        return 1 - busy / (self.seconds * len(self.stages)) if self.seconds else 0.0


class StalledScheduleError(ValueError):
    """Error raised for a schedule whose stages wait for each other forever."""


def simulate(
    schedule: Schedule,
    *,
    microbatches: int,
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    stages: int,
    message_s: float = 0.0,
) -> Timeline:
    """Simulate the stages. Each action starts as soon as its inputs have arrived and its stage is free.

    As in the executor, sending takes the sender no time, and a stage that waits for a message is blocked.

    Parameters
    ----------
    schedule
        Function that returns the actions of a stage.
    microbatches
        Number of micro-batches in a step.
    forward_s, backward_s
        Time of one micro-batch in each of the ``stages * chunks`` parts, in seconds and in model order.
    stages
        Number of stages of the pipeline.
    message_s
        Message time in seconds from one part to the next.

    Raises
    ------
    StalledScheduleError
        The stages wait for each other forever.
    """
    parts = len(forward_s)
    todo = [list(schedule(stage, stages, microbatches, parts // stages)) for stage in range(stages)]
    done: list[list[TimedAction]] = [[] for _ in range(stages)]
    ends: dict[tuple[str, int, int], float] = {}
    """End of each pass, keyed by work, micro-batch and part."""

    def find_start(work: str, i: int, part: int) -> float | None:
        """Return the arrival time of an action's last input, or None if the time is not known yet."""
        needs = [("forward", part - 1)] if work == "forward" else [("forward", part), ("backward", part + 1)]
        latest = 0.0
        for kind, source in needs:
            if not 0 <= source < parts:
                continue  # The first part receives tokens, and the last part receives the loss.
            if (kind, i, source) not in ends:
                return None
            latest = max(latest, ends[kind, i, source] + (message_s if source != part else 0.0))
        return latest

    moved = True
    while moved:
        moved = False
        for stage, actions in enumerate(todo):
            while len(done[stage]) < len(actions):
                action = actions[len(done[stage])]
                part = action.chunk * stages + stage
                ready_at = find_start(action.work, action.microbatch, part)
                if ready_at is None:
                    break
                begin = max(ready_at, done[stage][-1].end if done[stage] else 0.0)
                end = begin + (forward_s if action.work == "forward" else backward_s)[part]
                ends[action.work, action.microbatch, part] = end
                done[stage].append(TimedAction(action, begin, end))
                moved = True
    for stage, actions in enumerate(todo):
        if len(done[stage]) < len(actions):
            raise StalledScheduleError(f"stage {stage} waits forever before {actions[len(done[stage])]}")
    return Timeline(done)


def count_alive_by_formula(name: str, *, stage: int, stages: int, microbatches: int, chunks: int = 1) -> int:
    """Return, in closed form, the result of `count_alive` for a schedule.

    For stage r of p, m micro-batches and v chunks: ``m`` for GPipe and ``min(p - r, m)`` for 1F1B (arXiv 2104.04473,
    section 2.2). The interleaved schedule keeps one micro-batch more than the warm-up of Megatron-LM, ``min(2 (p - r -
    1) + (v - 1) p + 1, v m)``. On the first stage, this number is 1 + (p - 1)/(p v) times the p v chunks of 1F1B (arXiv
    2205.05198, section 4.2.3). A pipeline without a flush keeps ``p - r``, regardless of the number of micro-batches.
    """
    counts = {
        "gpipe": microbatches,
        "1f1b": min(stages - stage, microbatches),
        "pipedream": stages - stage,
        "pipedream-2bw": stages - stage,
        "interleaved": min(2 * (stages - stage - 1) + (chunks - 1) * stages + 1, chunks * microbatches),
    }
    return counts[name]
