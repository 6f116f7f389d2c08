"""When does each action of a pipeline schedule begin and end? A simulation, and what it comes to in closed form."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hpcbench.parallel.schedule import Action, Schedule


class TimedAction(NamedTuple):
    """An action, and the seconds from the start of the step at which it began and ended."""

    action: Action
    begin: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """What every stage did and when."""

    stages: list[list[TimedAction]]

    @property
    def seconds(self) -> float:
        """From the first action to the end of the last."""
        return max((stage[-1].end for stage in self.stages if stage), default=0.0)

    @property
    def bubble(self) -> float:
        """Part of all stages' time in which they had nothing to compute."""
        busy = sum(timed.end - timed.begin for stage in self.stages for timed in stage)
        return 1 - busy / (self.seconds * len(self.stages)) if self.seconds else 0.0


class DeadlockError(ValueError):
    """A schedule whose stages wait for each other for ever."""


def simulate(
    schedule: Schedule,
    *,
    microbatches: int,
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    stages: int,
    message_s: float = 0.0,
) -> Timeline:
    """Let the stages work on their actions, each as soon as what it needs has come.

    As in the executor, sending takes no time of the sender and a stage that waits for a message does nothing else.

    Parameters
    ----------
    schedule
        Gives the actions of each stage.
    microbatches
        Number of micro-batches in a step.
    forward_s, backward_s
        Seconds of each part of the model for one micro-batch, ``stages * chunks`` of them in the model's order.
    stages
        Number of stages of the pipeline.
    message_s
        Seconds of a message from one part to the next.

    Raises
    ------
    DeadlockError
        The stages wait for each other for ever.
    """
    parts = len(forward_s)
    todo = [list(schedule(stage, stages, microbatches, parts // stages)) for stage in range(stages)]
    done: list[list[TimedAction]] = [[] for _ in range(stages)]
    ends: dict[tuple[str, int, int], float] = {}
    """By work, micro-batch and part."""

    def ready(work: str, i: int, part: int) -> float | None:
        """When all has come that an action needs; None while that is not known."""
        needs = [("forward", part - 1)] if work == "forward" else [("forward", part), ("backward", part + 1)]
        latest = 0.0
        for kind, source in needs:
            if not 0 <= source < parts:
                continue  # the first part has tokens, the last one the loss
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
                came = ready(action.work, action.microbatch, part)
                if came is None:
                    break
                begin = max(came, done[stage][-1].end if done[stage] else 0.0)
                end = begin + (forward_s if action.work == "forward" else backward_s)[part]
                ends[action.work, action.microbatch, part] = end
                done[stage].append(TimedAction(action, begin, end))
                moved = True
    for stage, actions in enumerate(todo):
        if len(done[stage]) < len(actions):
            raise DeadlockError(f"stage {stage} waits for ever before {actions[len(done[stage])]}")
    return Timeline(done)


def compute_bubble(*, stages: int, microbatches: int, chunks: int = 1) -> float:
    """Part of the time in which a stage idles, where all parts take equally long and messages no time.

    ``(p - 1) / (v m + p - 1)``, of the whole step; the ``(p - 1) / (v m)`` of arXiv 2104.04473 (section 2.2) is of the
    time without the bubble. GPipe and 1F1B have the same, with v = 1.
    """
    return (stages - 1) / (chunks * microbatches + stages - 1)
