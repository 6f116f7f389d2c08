"""The time of a step with a parameter server: the turns of its workers, in one of three orders. Pure.

A turn reads the weights, computes and pushes. It has the work of a step, and then the bytes of a reduce-scatter and of
an all-gather, of which nothing is hidden. A step is an update, which takes as many turns as there are workers:

- with ``bsp`` it takes as long as the slowest worker's turn, and with ``ssp``, too: a worker that may be so many turns
  ahead waits in the long run for the slowest one;
- with ``asp`` fast workers take over what slow ones have not begun: n workers whose turns take t_r make
  sum(1 / t_r) gradients a second, so that a step takes n / sum(1 / t_r).

Where collectives keep replicas in step, all wait for a slow one: the step is that of the slow one, which hides more of
its messages behind its longer passes.

Requests and their headers are left out of the traffic: a few hundred bytes a turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpcbench.predict.basis import Estimate
from hpcbench.predict.cost import CodecSpeed
from hpcbench.predict.machine import Machine
from hpcbench.predict.step import StepModel, StepTime
from hpcbench.predict.workload import Workload

_PASSES = ("forward", "backward", "recompute")


def predict_step_time(workload: Workload, machine: Machine, speeds: dict[str, CodecSpeed] | None = None) -> StepTime:
    """The time of a step, however its replicas keep in step."""
    train = workload.train
    even = train.model_copy(update={"sync": "all-reduce", "staleness": 0, "slow_factor": 1.0, "slow_rank": 0})
    if train.sync == "all-reduce":
        return _beside_slow(replace(workload, train=even), train.slow_factor, machine, speeds)
    alone = even.model_copy(update={"overlap": False})
    turn = StepModel(replace(workload, train=alone), machine, speeds).run()
    factors = [train.slow_factor if rank == train.slow_rank else 1.0 for rank in range(workload.layout.ranks)]
    return time_served_step(turn, factors, shared=train.sync == "asp")


def _beside_slow(workload: Workload, factor: float, machine: Machine, speeds: dict[str, CodecSpeed] | None) -> StepTime:
    """The time of a step in which all wait for one worker, whose passes take so many times as long."""
    slow = replace(machine, work_factor=machine.work_factor * factor)
    found = StepModel(workload, slow, speeds).run()
    if factor == 1:
        return found
    update = found.parts["optimizer"]  # which is as fast as ever
    spared = update - update / factor
    seconds = found.seconds.value - spared
    parts = {**found.parts, "optimizer": update - spared}
    return replace(found, seconds=_as_wide(found.seconds, seconds), parts=parts)


def time_served_step(turn: StepTime, factors: Sequence[float], *, shared: bool) -> StepTime:
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
    seconds = average_turns(turns)
    each = [_of_worker(usual, factor) for factor in factors]
    # every worker is busy all the time: a rank's mean share of each part
    mean = {
        name: seconds * sum(own[name] / took for own, took in zip(each, turns, strict=True)) / len(turns)
        for name in usual
    }
    network = seconds * sum(turn.network_seconds / took for took in turns) / len(turns)
    return _made(turn, seconds, {**mean, "waiting": 0.0}, network)


def average_turns(turns: Sequence[float]) -> float:
    """Seconds of as many turns as there are workers, where each takes the next one when it has ended its own."""
    return len(turns) / sum(1 / took for took in turns)


def _of_worker(parts: Mapping[str, float], factor: float) -> dict[str, float]:
    return {name: seconds * (factor if name in _PASSES else 1.0) for name, seconds in parts.items()}


def _made(turn: StepTime, seconds: float, parts: dict[str, float], network: float) -> StepTime:
    """What has become of a turn."""
    figure = _as_wide(turn.seconds, seconds)
    channels = {channel: sent for channel, sent in turn.channels.items() if channel[0] != "EXACT"}
    return StepTime(figure, {name: parts[name] for name in turn.parts}, network, channels)


def _as_wide(known: Estimate, value: float) -> Estimate:
    """Another value whose interval is as wide for its length."""
    error = (known.high - known.value) / known.value if known.value else 0.0
    return Estimate.around(value, error * value, known.basis)
