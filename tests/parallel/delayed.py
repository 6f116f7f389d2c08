"""Single-process simulator of delayed updates.

Each micro-batch's gradient is computed with the weight version that the schedule specifies. The simulator has no stages
and sends no activations. The number of a weight version is the number of updates before the forward pass, derived from
the order of work.
"""

from collections.abc import Callable, Iterator

import torch
from stream_cases import Case

from hpcbench.parallel.schedule import Action, one_f_one_b
from hpcbench.train.learning_rate import learning_rate
from hpcbench.train.trainer import Trainer

Weights = dict[str, torch.Tensor]


def versions_of(case: Case, steps: int) -> Callable[[int, int], int]:
    """Compute the weight version that a stage uses for a micro-batch."""
    m, pp = case.micro_batches, case.layout.pp
    counted: dict[tuple[int, int], int] = {}
    for stage in range(pp):
        backwards = 0
        for work, i, _ in one_f_one_b(stage, pp, m * steps):
            if work == "forward":
                counted[stage, i] = backwards // m
            backwards += work == "backward"

    def version(stage: int, i: int) -> int:
        if case.schedule == "pipedream-2bw":
            return max(i // m - 1, 0)
        return counted[0 if case.vertical else stage, i]

    return version


def stage_of(case: Case, name: str, layers: int) -> int:
    """Return the stage that owns a parameter."""
    if name.startswith("blocks."):
        layer = int(name.split(".")[1])
        return next(stage for stage, layers_here in enumerate(case.layout.layers_of(layers)) if layer in layers_here)
    return 0 if name.startswith("embedding") else case.layout.pp - 1


def simulate(case: Case, trainer: Trainer) -> Iterator[float]:
    """Train step by step and yield the loss of each step. The trainer holds the newest weights."""
    run = trainer.run
    m, steps = case.micro_batches, run.train.steps
    version = versions_of(case, steps)
    engine = trainer.data_parallel
    names = {name: stage_of(case, name, run.model.layers) for name in _values(trainer)}
    history: list[Weights] = [_values(trainer)]
    for step in range(steps):
        engine.begin(micro_batches=m, loss_scale=1.0)
        losses = []
        batches = trainer._batches.train(step)
        for k, batch in enumerate(batches):
            _set(trainer, {name: history[version(stage, step * m + k)][name] for name, stage in names.items()})
            passes = [Action("forward", 0), Action("backward", 0)]
            losses += trainer.pipeline.run(lambda stage, passes=passes: passes, [batch], loss_scale=1.0 / m)
        engine.reduce_gradients()
        _set(trainer, history[-1])
        engine.step(lr=learning_rate(step, run.train), clip=0.0, norm=0.0)
        history.append(_values(trainer))
        yield sum(losses) / len(losses)


def _values(trainer: Trainer) -> Weights:
    return {slot.shard.name: values.clone() for slot, values in trainer.data_parallel.weights()}


def _set(trainer: Trainer, weights: Weights) -> None:
    for slot, values in trainer.data_parallel.weights():
        values.copy_(weights[slot.shard.name])
