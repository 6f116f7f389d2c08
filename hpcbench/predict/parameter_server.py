"""Step time with a parameter server, from the workers' turns. Pure.

In a turn, a worker reads the weights, computes and pushes gradients. A turn includes the work of a step, and the bytes
of a reduce-scatter and an all-gather. All communication is exposed. A step is one update, based on the turns of all n
workers:

- With ``bsp`` and ``ssp``, a step takes as long as the slowest worker's turn. With ``ssp``, a worker may be some turns
  ahead, but in the long run, it waits for the slowest worker.
- With ``asp``, fast workers take over work that slow workers have not started. Workers with turns of t_r seconds
  produce sum(1 / t_r) gradients per second, and a step takes n / sum(1 / t_r).

If replicas use collectives, all replicas wait for the slow replica. The slow replica determines the step time. The
passes of this replica are longer, so they hide more of its messages.

The traffic excludes requests and headers, which are a few hundred bytes per turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpcbench.predict.basis import PredictedValue
from hpcbench.predict.cost import CodecSpeed
from hpcbench.predict.machine import Machine
from hpcbench.predict.step import StepModel, StepTime
from hpcbench.predict.workload import Workload

_PASSES = ("forward", "backward", "recompute")


def predict_step_time(workload: Workload, machine: Machine, speeds: dict[str, CodecSpeed] | None = None) -> StepTime:
    """Predict the step time, with collectives or with a parameter server."""
    train = workload.train
    even = train.model_copy(update={"sync": "all-reduce", "staleness": 0, "slow_factor": 1.0, "slow_rank": 0})
    if train.sync == "all-reduce":
        return _predict_with_slow_replica(replace(workload, train=even), train.slow_factor, machine, speeds)
    alone = even.model_copy(update={"overlap": False})
    turn = StepModel(replace(workload, train=alone), machine, speeds).run()
    factors = [train.slow_factor if rank == train.slow_rank else 1.0 for rank in range(workload.layout.ranks)]
    return time_served_step(turn, factors, shared=train.sync == "asp")


def _predict_with_slow_replica(
    workload: Workload, factor: float, machine: Machine, speeds: dict[str, CodecSpeed] | None
) -> StepTime:
    """Predict the step time if all replicas wait for a replica whose passes take `factor` times as long."""
    slow = replace(machine, work_factor=machine.work_factor * factor)
    step = StepModel(workload, slow, speeds).run()
    if factor == 1:
        return step
    update = step.parts["optimizer"]  # Undo the slowdown of the update, which the slow replica does not affect.
    excess = update - update / factor
    seconds = step.seconds.value - excess
    parts = {**step.parts, "optimizer": update - excess}
    return replace(step, seconds=_scale_interval(step.seconds, seconds), parts=parts)


def time_served_step(turn: StepTime, factors: Sequence[float], *, shared: bool) -> StepTime:
    """Derive the step time from a worker's turn.

    Parameters
    ----------
    turn
        Turn of a worker that is not slowed down.
    factors
        Time factor for each worker's passes.
    shared
        Whether workers share the work without waiting for each other.
    """
    usual = {name: seconds for name, seconds in turn.parts.items() if name != "waiting"}
    busy = turn.seconds.value - turn.parts["waiting"]
    passes = sum(usual[name] for name in _PASSES)
    turns = [busy + (factor - 1) * passes for factor in factors]
    if not shared:
        slowest = max(range(len(turns)), key=turns.__getitem__)
        wait = turn.parts["waiting"] / busy if busy else 0.0
        parts = {**_slow_passes(usual, factors[slowest]), "waiting": wait * turns[slowest]}
        return _make_step(turn, turns[slowest] * (1 + wait), parts, turn.network_seconds)
    seconds = average_turns(turns)
    each = [_slow_passes(usual, factor) for factor in factors]
    # Every worker is always busy. The parts of a step are means over the workers.
    mean = {
        name: seconds * sum(worker[name] / took for worker, took in zip(each, turns, strict=True)) / len(turns)
        for name in usual
    }
    network = seconds * sum(turn.network_seconds / took for took in turns) / len(turns)
    return _make_step(turn, seconds, {**mean, "waiting": 0.0}, network)


def average_turns(turns: Sequence[float]) -> float:
    """Return the time in seconds that n workers take for n turns without pausing between turns."""
    return len(turns) / sum(1 / took for took in turns)


def _slow_passes(parts: Mapping[str, float], factor: float) -> dict[str, float]:
    return {name: seconds * (factor if name in _PASSES else 1.0) for name, seconds in parts.items()}


def _make_step(turn: StepTime, seconds: float, parts: dict[str, float], network: float) -> StepTime:
    figure = _scale_interval(turn.seconds, seconds)
    channels = {channel: sent for channel, sent in turn.channels.items() if channel[0] != "EXACT"}
    return StepTime(figure, {name: parts[name] for name in turn.parts}, network, channels)


def _scale_interval(figure: PredictedValue, value: float) -> PredictedValue:
    """Return `value` with the same relative interval as `figure`."""
    error = (figure.high - figure.value) / figure.value if figure.value else 0.0
    return PredictedValue.around(value, error * value, figure.basis)
