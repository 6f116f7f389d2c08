"""Training loop of a run."""

from collections.abc import Callable, Sequence
from typing import Any

from hpcbench.contract.events import VarianceFrozen
from hpcbench.contract.run import Run
from hpcbench.contract.training import UNFLUSHED
from hpcbench.parallel.onebit import OneBitAdam
from hpcbench.train import stop
from hpcbench.train.agreement import replicas_agree
from hpcbench.train.checkpoint import Checkpoints
from hpcbench.train.log import LogWriter
from hpcbench.train.milestones import Milestones
from hpcbench.train.observer import Observer
from hpcbench.train.serving import ServedTrainer
from hpcbench.train.streaming import StreamTrainer
from hpcbench.train.train_served import train_served
from hpcbench.train.trainer import Trainer


def trainer_of(run: Run, *arguments: Any) -> Trainer:
    """Create the trainer for the synchronization mode of the run."""
    if run.train.sync != "all-reduce":
        return ServedTrainer(run, *arguments)
    return (StreamTrainer if run.train.schedule in UNFLUSHED else Trainer)(run, *arguments)


def train(
    trainer: Trainer,
    log: LogWriter,
    *,
    hosts: Sequence[str] = (),
    taken: int = 0,
    checkpoints: Checkpoints | None = None,
    told_to_stop: Callable[[], bool] = stop.never,
    observers: Sequence[Observer] = (),
) -> tuple[str, str, int]:
    """Run all remaining steps.

    Parameters
    ----------
    hosts
        Host of each rank, in rank order. If empty, the log contains no compute times of hosts.
    taken
        Number of completed steps.
    checkpoints
        Checkpoint writer, or None to disable checkpoints.
    told_to_stop
        Callback that returns whether to stop (see `Trainer.step`).
    observers
        Observers, in the order of their events in the log.

    Returns
    -------
    The state of the run, the reason if the state is not ``completed``, and the number of completed steps.
    """
    settings = trainer.run.train
    trainer.policy.begin_step(max(taken, 1))  # for messages before the next step
    milestones = Milestones(trainer, log, hosts=hosts, taken=taken, checkpoints=checkpoints, observers=observers)
    if isinstance(trainer, ServedTrainer):
        return train_served(trainer, milestones, taken=taken, told_to_stop=told_to_stop, observers=observers)
    for k in range(taken, settings.steps):
        if k + 1 == milestones.counted:
            trainer.forget_times()
        for observer in observers:
            observer.begin(k + 1)
        result = trainer.step(k, told_to_stop)
        more = milestones.due(k + 1) or result.stop or any(observer.writes(k + 1) for observer in observers)
        for observer in observers:
            observer.pause(k + 1, more=more)
        observed = [event for observer in observers if (event := observer.end(k + 1))]
        milestones.line(k + 1, result, gradient_norm=result.gradient_norm)
        for event in observed:
            log.event(event)
        engine = trainer.data_parallel
        if isinstance(engine, OneBitAdam) and engine.updates == settings.freeze_step and not result.skipped:
            elements, without = engine.frozen_elements()
            log.event(VarianceFrozen(step=k + 1, elements=elements, without_gradient=without))
        if result.diverged == k + 1:
            return "nan", f"loss is {result.loss} at step {k + 1}", k + 1
        if result.diverged:
            reason = f"loss is not finite at step {result.diverged}, detected on all ranks after step {k + 1}"
            return "nan", reason, k + 1
        if result.skipped and result.loss_scale <= trainer.smallest_loss_scale:
            return "nan", f"gradient norm is not finite at step {k + 1}", k + 1
        if ended := milestones.reached(k + 1, stopped=result.stop and checkpoints is not None):
            return *ended, k + 1
    if not replicas_agree(trainer):
        reason = "replicas have different weights: a lossy collective returned different bytes on different ranks"
        return "failed", reason, settings.steps
    return "completed", "", settings.steps
