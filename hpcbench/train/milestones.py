"""Actions after a step that all training loops share: step line, final events, evaluation, and checkpoint."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hpcbench.contract.events import (
    CheckpointWritten,
    ComputingTimes,
    Evaluation,
    ExpertTokens,
    PhaseTimes,
    RowTraffic,
    TrafficTotals,
)
from hpcbench.contract.measured import find_first_counted
from hpcbench.contract.step_line import Step
from hpcbench.contract.training import Train
from hpcbench.predict import flops
from hpcbench.train import resources
from hpcbench.train.checkpoint import Checkpoints
from hpcbench.train.checkpoint_index import ReplicasDifferError
from hpcbench.train.facts import shape_of
from hpcbench.train.log import LogWriter
from hpcbench.train.observer import Observer
from hpcbench.train.step_result import StepResult
from hpcbench.train.trainer import Trainer


class Milestones:
    """Actions after the steps of a run. All methods except `line` and `due` are collective calls.

    Parameters
    ----------
    trainer, log
        Trainer and log of the run.
    hosts
        Host of each rank, in rank order. If empty, the log contains no compute times of hosts.
    taken
        Number of steps completed before this start.
    checkpoints
        Checkpoint writer, or None to disable checkpoints.
    observers
        Observers, whose summaries are written after the last step.

    Attributes
    ----------
    counted : int
        First step that is included in the speed measurement.
    """

    def __init__(
        self,
        trainer: Trainer,
        log: LogWriter,
        *,
        hosts: Sequence[str],
        taken: int,
        checkpoints: Checkpoints | None,
        observers: Sequence[Observer],
    ) -> None:
        self._trainer, self._log, self._hosts = trainer, log, hosts
        self._checkpoints, self._observers = checkpoints, observers
        run, self._settings = trainer.run, trainer.run.train
        self.counted = first_counted(self._settings, taken)
        self._shape = shape_of(run)

    def line(self, step: int, result: StepResult, *, gradient_norm: float | None = None) -> None:
        """Write a step line."""
        trainer, settings = self._trainer, self._settings
        rate = settings.global_batch / result.seconds / trainer.run.ranks
        shape, experts = self._shape, self._shape["experts"]
        if experts.layers:
            accepted = result.kept_choices / (settings.global_batch * experts.layers)
            shape = {**shape, "experts": experts._replace(kept_rows=accepted)}
        self._log.step(
            Step(
                step=step,
                steps=settings.steps,
                loss=result.loss,
                seconds=result.seconds,
                samples_per_s=settings.global_batch / result.seconds,
                model_flops_per_rank=flops.count_model_flops(**shape) * rate,
                hardware_flops_per_rank=flops.count_hardware_flops(**shape, recompute=settings.recompute) * rate,
                lr=result.lr,
                gradient_norm=gradient_norm,
                message_bytes=result.message_bytes,
                wire_bytes=result.wire_bytes,
                skipped=trainer.skipped,
                loss_scale=result.loss_scale if settings.precision == "fp16" else None,
            )
        )

    def due(self, step: int) -> bool:
        """Return whether an evaluation or a checkpoint is due after this step."""
        return self._evaluates(step) or self._checkpoint_due(step)

    def reached(self, step: int, *, stopped: bool) -> tuple[str, str] | None:
        """Execute the actions that are due after a step. If the run must end, return its state and the reason.

        Parameters
        ----------
        stopped
            Whether any rank was asked to stop.
        """
        last = step == self._settings.steps
        if last:
            self._last_events()
        if self._evaluates(step):
            loss, tokens = self._trainer.evaluate()
            self._log.event(Evaluation(step=step, split="valid", loss=loss, tokens=tokens))
            if not math.isfinite(loss):
                return "nan", f"validation loss is {loss} at step {step}"
        if last:
            return None
        if self._checkpoints and (stopped or self._checkpoint_due(step)):
            try:
                written = self._checkpoints.write(step, self._trainer.state(), corpus=self._trainer.corpus)
            except ReplicasDifferError as error:
                return "failed", f"replicas differ after step {step}: {error}"
            self._log.event(CheckpointWritten(**asdict(written)))
        return ("stopped", f"stopped on request, checkpoint at step {step}") if stopped else None

    def _evaluates(self, step: int) -> bool:
        every = self._settings.eval_every
        return step == self._settings.steps or bool(every and step % every == 0)

    def _checkpoint_due(self, step: int) -> bool:
        every = self._settings.checkpoint_every
        return bool(every and step % every == 0)

    def _last_events(self) -> None:
        """Write the measurements of all counted steps, after the last step."""
        trainer, log, run, exact = self._trainer, self._log, self._trainer.run, self._trainer.policy.exact
        measured: dict[str, Any] = {"from_step": self.counted, "to_step": self._settings.steps}
        channels, (down, up) = trainer.traffic.report(), trainer.traffic.link_bytes() or (None, None)
        log.event(TrafficTotals(**measured, channels=channels, host_down_bytes=down, host_up_bytes=up))
        if experts := run.model.experts:
            layers = trainer.experts.report(run.model.expert_layers, experts.count, exact)
            log.event(ExpertTokens(**measured, layers=layers))
        if rows := trainer.rows.report(exact):
            log.event(RowTraffic(**measured, **rows))
        log.event(PhaseTimes(**measured, stages=resources.phase_times(trainer)))
        if stale := trainer.staleness():
            log.event(stale)
        if self._hosts:
            log.event(ComputingTimes(**measured, hosts=resources.compute_times(trainer, self._hosts)))
        log.event(resources.memory(trainer))
        for observer in self._observers:
            if summary := observer.summary(**measured):
                log.event(summary)


def first_counted(settings: Train, taken: int) -> int:
    """Return the first step that is included in the speed measurement, given the number of earlier steps."""
    return min(find_first_counted(settings.warmup_steps, settings.steps, taken), settings.steps)
