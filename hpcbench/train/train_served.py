"""The loop of a run with a parameter server: rounds of clocks, and what the log says of them."""

from collections.abc import Callable, Sequence
from dataclasses import asdict

import numpy as np

from hpcbench.contract.events import CheckpointWritten, Evaluation, Hosts, Phases, Traffic
from hpcbench.contract.measured import first_measured
from hpcbench.contract.step_line import Step
from hpcbench.parallel.exact import gather
from hpcbench.predict import flops
from hpcbench.train import resources, stop
from hpcbench.train.agreement import replicas_agree
from hpcbench.train.checkpoint import Checkpoints
from hpcbench.train.checkpoint_index import ReplicasDifferError
from hpcbench.train.energy.energy import EnergyMeter
from hpcbench.train.log import LogWriter
from hpcbench.train.serving import ServedTrainer, rounds


def train_served(
    trainer: ServedTrainer,
    log: LogWriter,
    *,
    hosts: Sequence[str] = (),
    taken: int = 0,
    checkpoints: Checkpoints | None = None,
    told_to_stop: Callable[[], bool] = stop.never,
    energy: EnergyMeter | None = None,
) -> tuple[str, str, int]:
    """Take all steps that are left.

    A step is an update of the first shard: its line has the mean loss of the gradients that made it, the time since the
    update before, and the bytes that the workers had sent when they pushed them.

    Parameters
    ----------
    hosts
        Host of each rank, in rank order. Without them the log has no times of hosts.
    taken
        Steps that the trainer has already taken.
    checkpoints
        Where checkpoints are written; None writes none.
    told_to_stop
        Asked after each gradient of the first rank.
    energy
        Reads the counters of energy over the steps that count for the run's speed.

    Returns
    -------
    The run's state, the reason where it is not ``completed``, and the steps taken.
    """
    settings = trainer.run.train
    counted = min(first_measured(settings.warmup_steps, settings.steps, taken), settings.steps)
    every = settings.eval_every, settings.checkpoint_every
    done, stopped = taken, False
    for end in rounds(settings.steps, taken, every=every, counted=counted):
        if done + 1 == counted:
            trainer.forget_times()
        if energy is not None and done + 1 >= counted:
            energy.meter.resume()
        trainer.begin_counting()
        trainer.open(end)
        bad = ""
        while trainer.turn():
            done, bad = _log(trainer, log, done, bad)
            if not stopped and told_to_stop():
                stopped = True
                trainer.end_early()
        last = trainer.close()
        done, bad = _log(trainer, log, done, bad)
        done = last
        if energy is not None:
            energy.meter.pause()
        known = gather(trainer.mesh.world, [float(stopped), float(bool(bad))], trainer.policy.exact)
        stopped, failed = any(one for one, _ in known), any(one for _, one in known)
        if failed:
            trainer.finish()
            return "nan", bad or "the loss of another rank's shard is not finite", done
        if done == settings.steps:
            _last_events(trainer, log, hosts, energy, counted)
        if done == settings.steps or (settings.eval_every and done % settings.eval_every == 0):
            loss, tokens = trainer.evaluate()
            log.event(Evaluation(step=done, split="valid", loss=loss, tokens=tokens))
            if not np.isfinite(loss):
                trainer.finish()
                return "nan", f"validation loss is {loss} at step {done}", done
        due = settings.checkpoint_every and done % settings.checkpoint_every == 0
        if checkpoints and done < settings.steps and (stopped or due):
            try:
                written = checkpoints.write(done, trainer.state(), corpus=trainer.corpus)
            except ReplicasDifferError as error:
                return "failed", f"replicas differ after step {done}: {error}", done
            log.event(CheckpointWritten(**asdict(written)))
        if stopped and done < settings.steps:
            trainer.finish()
            return "stopped", f"told to stop, checkpoint at step {done}", done
    trainer.finish()
    if not replicas_agree(trainer):
        return "failed", "replicas hold different weights after the last step", settings.steps
    return "completed", "", settings.steps


def _log(trainer: ServedTrainer, log: LogWriter, done: int, bad: str) -> tuple[int, str]:
    """Write the lines of new updates. The result is the last step, and why the run must end, if it must."""
    run, settings = trainer.run, trainer.run.train
    layers, hidden, vocab, seq_len = run.model.layers, run.model.hidden, run.model.vocab, settings.seq_len
    model_flops = flops.model_flops_per_sample(layers=layers, hidden=hidden, vocab=vocab, seq_len=seq_len)
    hardware_flops = flops.hardware_flops_per_sample(
        layers=layers, hidden=hidden, vocab=vocab, seq_len=seq_len, recompute=settings.recompute
    )
    for result in trainer.results():
        done += 1
        rate = settings.global_batch / result.seconds / run.ranks
        log.step(
            Step(
                step=done,
                steps=settings.steps,
                loss=result.loss,
                seconds=result.seconds,
                samples_per_s=settings.global_batch / result.seconds,
                model_flops_per_rank=model_flops * rate,
                hardware_flops_per_rank=hardware_flops * rate,
                lr=result.lr,
                message_bytes=result.message_bytes,
                wire_bytes=result.wire_bytes,
                skipped=0,
            )
        )
        if result.diverged and not bad:
            bad = f"loss is {result.loss} at step {done}"
    return done, bad


def _last_events(
    trainer: ServedTrainer, log: LogWriter, hosts: Sequence[str], energy: EnergyMeter | None, counted: int
) -> None:
    steps = trainer.run.train.steps
    log.event(Traffic(from_step=counted, to_step=steps, channels=trainer.traffic.report()))
    log.event(Phases(from_step=counted, to_step=steps, stages=resources.phase_times(trainer)))
    log.event(trainer.staleness())
    if hosts:
        log.event(Hosts(from_step=counted, to_step=steps, hosts=resources.compute_times(trainer, hosts)))
    log.event(resources.memory(trainer))
    if energy is not None:
        log.event(energy.event(from_step=counted, to_step=steps))
