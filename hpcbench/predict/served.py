"""The time of a step with a parameter server: the turns of its workers, in one of three orders. Pure.

A turn reads the weights, computes and pushes. It has the work of a step, and then the bytes of a reduce-scatter and of
an all-gather, of which nothing is hidden. A step is an update, which takes as many turns as there are workers:

- with ``bsp`` it takes as long as the slowest worker's turn, and with ``ssp``, too: a worker that may be so many turns
  ahead waits in the long run for the slowest one;
- with ``asp`` fast workers take over what slow ones have not begun: n workers whose turns take t_r make
  sum(1 / t_r) gradients a second, so that a step takes n / sum(1 / t_r).

Requests and their headers are left out of the traffic: a few hundred bytes a turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpcbench.predict.basis import Figure
from hpcbench.predict.machine import Machine
from hpcbench.predict.step import Step, StepTime
from hpcbench.predict.subject import Subject
from hpcbench.predict.traffic import CodecSpeed

_PASSES = ("forward", "backward", "recompute")


def step_time(subject: Subject, machine: Machine, speeds: dict[str, CodecSpeed] | None = None) -> StepTime:
    """The time of a step, however its replicas keep in step."""
    train = subject.train
    if train.sync == "all-reduce":
        return Step(subject, machine, speeds).run()
    alone = train.model_copy(
        update={"sync": "all-reduce", "overlap": False, "staleness": 0, "slow_factor": 1.0, "slow_rank": 0}
    )
    turn = Step(replace(subject, train=alone), machine, speeds).run()
    factors = [train.slow_factor if rank == train.slow_rank else 1.0 for rank in range(subject.layout.ranks)]
    return served(turn, factors, shared=train.sync == "asp")


def served(turn: StepTime, factors: Sequence[float], *, shared: bool) -> StepTime:
    """The time of a step from the turn of a worker.

    Parameters
    ----------
    turn
        A turn, and what ranks wait for the slowest.
    factors
        How many times as long each worker's passes take.
    shared
        Whether workers share their work, and wait for nobody.
    """
    usual = {name: seconds for name, seconds in turn.parts.items() if name != "waiting"}
    busy = turn.seconds.value - turn.parts["waiting"]
    passes = sum(usual[name] for name in _PASSES)
    turns = [busy + (factor - 1) * passes for factor in factors]
    if not shared:
        slowest = max(range(len(turns)), key=turns.__getitem__)
        wait = turn.parts["waiting"] / busy if busy else 0.0
        parts = {**_of_worker(usual, factors[slowest]), "waiting": wait * turns[slowest]}
        return _made(turn, turns[slowest] * (1 + wait), parts, turn.network_seconds)
    seconds = steady(turns)
    each = [_of_worker(usual, factor) for factor in factors]
    # every worker is busy all the time: a rank's mean share of each part
    mean = {
        name: seconds * sum(own[name] / took for own, took in zip(each, turns, strict=True)) / len(turns)
        for name in usual
    }
    network = seconds * sum(turn.network_seconds / took for took in turns) / len(turns)
    return _made(turn, seconds, {**mean, "waiting": 0.0}, network)


def steady(turns: Sequence[float]) -> float:
    """Seconds of as many turns as there are workers, where each takes the next one when it has ended its own."""
    return len(turns) / sum(1 / took for took in turns)


def _of_worker(parts: Mapping[str, float], factor: float) -> dict[str, float]:
    return {name: seconds * (factor if name in _PASSES else 1.0) for name, seconds in parts.items()}


def _made(turn: StepTime, seconds: float, parts: dict[str, float], network: float) -> StepTime:
    """With an interval that is as wide, for its length, as that of the turn."""
    error = (turn.seconds.high - turn.seconds.value) / turn.seconds.value if turn.seconds.value else 0.0
    figure = Figure.around(seconds, error * seconds, turn.seconds.basis)
    channels = {channel: sent for channel, sent in turn.channels.items() if channel[0] != "EXACT"}
    return StepTime(figure, {name: parts[name] for name in turn.parts}, network, channels)
