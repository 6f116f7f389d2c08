"""The loop of a run: takes all of its steps."""

from collections.abc import Callable, Sequence
from typing import Any

from hpcbench.contract.events import VarianceFrozen
from hpcbench.contract.run import Run
from hpcbench.contract.training import UNFLUSHED
from hpcbench.parallel.onebit import OneBitAdam
from hpcbench.train import stop
from hpcbench.train.agreement import replicas_agree
from hpcbench.train.checkpoint import Checkpoints
from hpcbench.train.energy.energy import EnergyMeter
from hpcbench.train.keeping import Keeping
from hpcbench.train.log import LogWriter
from hpcbench.train.milestones import Milestones
from hpcbench.train.serving import ServedTrainer
from hpcbench.train.streaming import StreamTrainer
from hpcbench.train.tracing import Tracing
from hpcbench.train.train_served import train_served
from hpcbench.train.trainer import Trainer


def trainer_of(run: Run, *arguments: Any) -> Trainer:
    """The trainer for the run's way of keeping its ranks in step."""
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
    tracing: Tracing | None = None,
    keeping: Keeping | None = None,
    energy: EnergyMeter | None = None,
) -> tuple[str, str, int]:
    """Take all steps that are left.

    Parameters
    ----------
    hosts
        Host of each rank, in rank order. Without them the log has no times of hosts.
    taken
        Steps that the trainer has already taken.
    checkpoints
        Where checkpoints are written; None writes none.
    told_to_stop
        Asked after each step, see `Trainer.step`.
    tracing
        Writes the trace that the run asks for.
    keeping
        Writes the messages that the run is asked to keep.
    energy
        Reads the counters of energy over the steps that count for the run's speed.

    Returns
    -------
    The run's state, the reason where it is not ``completed``, and the steps taken.
    """
    settings = trainer.run.train
    milestones = Milestones(trainer, log, hosts=hosts, taken=taken, checkpoints=checkpoints, energy=energy)
    if isinstance(trainer, ServedTrainer):
        return train_served(trainer, milestones, taken=taken, told_to_stop=told_to_stop, energy=energy)
    for k in range(taken, settings.steps):
        if k + 1 == milestones.counted:
            trainer.forget_times()
        if tracing is not None:
            tracing.begin(k + 1)
        if keeping is not None:
            keeping.begin(k + 1)
        if energy is not None and k + 1 >= milestones.counted:
            energy.meter.resume()
        result = trainer.step(k, told_to_stop)
        writes = any(writer is not None and writer.writes(k + 1) for writer in (tracing, keeping))
        more = milestones.due(k + 1) or result.stop or writes
        if energy is not None:
            energy.meter.pause() if more else energy.meter.tick()
        traced = tracing.end(k + 1) if tracing is not None else None
        kept_messages = keeping.end(k + 1) if keeping is not None else None
        milestones.line(k + 1, result, gradient_norm=result.gradient_norm)
        if traced is not None:
            log.event(traced)
        if kept_messages is not None:
            log.event(kept_messages)
        engine = trainer.data_parallel
        if isinstance(engine, OneBitAdam) and engine.updates == settings.freeze_step and not result.skipped:
            elements, without = engine.frozen_elements()
            log.event(VarianceFrozen(step=k + 1, elements=elements, without_gradient=without))
        if result.diverged == k + 1:
            return "nan", f"loss is {result.loss} at step {k + 1}", k + 1
        if result.diverged:
            reason = f"loss is not finite at step {result.diverged}, which all ranks know after step {k + 1}"
            return "nan", reason, k + 1
        if result.skipped and result.loss_scale <= trainer.smallest_loss_scale:
            return "nan", f"gradient norm is not finite at step {k + 1}", k + 1
        if ended := milestones.reached(k + 1, stopped=result.stop and checkpoints is not None):
            return *ended, k + 1
    if not replicas_agree(trainer):
        reason = "replicas hold different weights: a lossy collective gave its ranks different bytes"
        return "failed", reason, settings.steps
    return "completed", "", settings.steps
