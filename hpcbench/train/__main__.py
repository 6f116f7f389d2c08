"""The worker: ``python -m hpcbench.train RUN.json``, started on every rank by a job's launcher.

Exit status: 0 the run completed, 1 it diverged or its replicas differ, 2 it cannot be run as asked, 75 it was told to
stop and has written a checkpoint. Started again, it continues from the checkpoint.
"""

import gc
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

import hpcbench
from hpcbench.codecs.registry import instruction_set
from hpcbench.comm import links
from hpcbench.comm.gpu_aware import Awareness
from hpcbench.comm.half_sums import agreed
from hpcbench.comm.places import Places
from hpcbench.comm.progress import Progress
from hpcbench.comm.topology import Topology
from hpcbench.comm.wait import Wait
from hpcbench.contract import kept, rules, trace
from hpcbench.contract.events import (
    Binding,
    CheckpointCarried,
    CheckpointDamaged,
    CheckpointWritten,
    Configuration,
    End,
    Environment,
    Evaluation,
    Experts,
    Host,
    Hosts,
    IdleRule,
    Phases,
    Rank,
    SparseGradients,
    Sparsity,
    Start,
    Traffic,
    VarianceFrozen,
    WholeGradients,
)
from hpcbench.contract.measured import first_measured
from hpcbench.contract.run import Run, load
from hpcbench.contract.sparse_fit import whole_because
from hpcbench.contract.state import STOPPED_EXIT
from hpcbench.contract.step_line import Step
from hpcbench.contract.training import UNFLUSHED
from hpcbench.errors import TransitError, UserError
from hpcbench.parallel.onebit import OneBitAdam
from hpcbench.predict import flops
from hpcbench.predict.experts import expert_shape
from hpcbench.train import binding, clocks, container, gpu, preflight, resources, stop, surroundings, text
from hpcbench.train.agreement import replicas_agree
from hpcbench.train.checkpoint import Checkpoint, Checkpoints, LatestCheckpoint, carried
from hpcbench.train.checkpoint_index import ReplicasDifferError
from hpcbench.train.corpus import Corpus
from hpcbench.train.energy.energy import EnergyMeter
from hpcbench.train.keeping import Keeping
from hpcbench.train.log import LogWriter, now
from hpcbench.train.serving import ServedTrainer
from hpcbench.train.streaming import StreamTrainer
from hpcbench.train.tracing import Tracing
from hpcbench.train.train_served import train_served
from hpcbench.train.trainer import Trainer


def main(argv: list[str]) -> int:
    """Carry out one run on this rank."""
    comm = MPI.COMM_WORLD
    if len(argv) != 1:
        raise UserError("usage: python -m hpcbench.train RUN.json")
    path = Path(argv[0])
    container.check_version()
    container.check_library()
    run, raw = load(path)
    log = LogWriter(sys.stdout if comm.rank == 0 else None, path.parent / "reserve")
    checkpoints = Checkpoints(path.parent / "checkpoint", comm, run)
    found = checkpoints.find() if comm.size == run.ranks else LatestCheckpoint(None)  # another world is refused below
    resumed_from = found.newest.step if found.newest else None
    identity = {key: raw[key] for key in ("study", "run", "site", "repeat", "pairing", "cell")}
    log.event(
        Start(
            time=now(),
            schema=1,
            version=hpcbench.__version__,
            **identity,
            scheme=run.scheme.name,
            attempt=attempt(),
            resumed_from=resumed_from,
        )
    )
    for words in found.damaged:
        log.event(CheckpointDamaged(reason=words))
    begin = time.perf_counter()
    world = preflight.describe(comm, run)
    ranks = tuple(map(Rank.declared, world))
    where = surroundings.hosts(comm, gpus=run.device != "cpu")
    aware = gpu.awareness(comm, run)
    about = {**environment(), **transport(comm, run, aware), **(surroundings.job() if comm.rank == 0 else {})}
    if comm.rank == 0:
        log.event(Environment(**about, hosts=tuple(map(Host.declared, where)), world=ranks))
    preflight.check(world, run)
    if warnings := binding.check(world, run):
        log.event(Binding(warnings=tuple(warnings)))
    gpu.check(run)

    torch.set_num_threads(run.threads)
    wait = Wait.GIVE_WAY if run.oversubscribe else Wait.SPIN
    progress = Progress(wait, background=run.train.overlap)
    corpus = text.load_shared(comm, progress, run.data, run.train.seq_len, run.model.vocab)
    trainer = trainer_of(run, comm, progress, corpus, Places(aware=bool(aware)))
    for words in rules.idle(run.scheme.all_rules, run.setting):
        log.event(IdleRule(reason=words))
    if run.train.sparse_gradients == "auto" and (why := whole_because(run.model, run.train, run.layout.tensor)):
        log.event(WholeGradients(reason=str(why)))
    if comm.rank == 0:
        log.event(Configuration(run=raw, **facts(run, corpus)))
    if found.newest and (words := resume(trainer, checkpoints, found.newest, corpus)):
        log.event(CheckpointCarried(reason=words))
    request = stop.StopRequest(path.parent / "stop")
    state, reason, steps = train(
        trainer,
        log,
        hosts=[rank["host"] for rank in world],
        taken=resumed_from or 0,
        checkpoints=checkpoints,
        told_to_stop=request if comm.rank == 0 else stop.never,
        tracing=Tracing(trainer, comm, progress, world[comm.rank]["host"], path.parent / trace.DIRECTORY),
        keeping=Keeping(trainer, path.parent / kept.DIRECTORY),
        energy=EnergyMeter(ranks, comm),
    )
    if isinstance(trainer, ServedTrainer):
        trainer.write_clocks(path.parent / clocks.DIRECTORY)
    seconds = round(time.perf_counter() - begin, 3)
    log.event(End(time=now(), state=state, steps=steps, seconds=seconds, reason=reason))
    return {"completed": 0, "stopped": STOPPED_EXIT}.get(state, 1)


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
    run, settings = trainer.run, trainer.run.train
    if isinstance(trainer, ServedTrainer):
        return train_served(
            trainer,
            log,
            hosts=hosts,
            taken=taken,
            checkpoints=checkpoints,
            told_to_stop=told_to_stop,
            energy=energy,
        )
    model_flops = flops.model_flops_per_sample(**_shape(run))
    hardware_flops = flops.hardware_flops_per_sample(**_shape(run), recompute=settings.recompute)
    samples = settings.global_batch
    counted = min(first_measured(settings.warmup_steps, settings.steps, taken), settings.steps)
    for k in range(taken, settings.steps):
        if k + 1 == counted:
            trainer.forget_times()
        if tracing is not None:
            tracing.begin(k + 1)
        if keeping is not None:
            keeping.begin(k + 1)
        if energy is not None and k + 1 >= counted:
            energy.meter.resume()
        result = trainer.step(k, told_to_stop)
        last = k + 1 == settings.steps
        evaluated = last or bool(settings.eval_every and (k + 1) % settings.eval_every == 0)
        due = bool(settings.checkpoint_every and (k + 1) % settings.checkpoint_every == 0)
        writes = any(writer is not None and writer.writes(k + 1) for writer in (tracing, keeping))
        more = evaluated or due or result.stop or writes
        if energy is not None:
            energy.meter.pause() if more else energy.meter.tick()
        traced = tracing.end(k + 1) if tracing is not None else None
        kept_messages = keeping.end(k + 1) if keeping is not None else None
        rate = samples / result.seconds / run.ranks
        log.step(
            Step(
                step=k + 1,
                steps=settings.steps,
                loss=result.loss,
                seconds=result.seconds,
                samples_per_s=samples / result.seconds,
                model_flops_per_rank=model_flops * rate,
                hardware_flops_per_rank=hardware_flops * rate,
                lr=result.lr,
                gradient_norm=result.gradient_norm,
                message_bytes=result.message_bytes,
                wire_bytes=result.wire_bytes,
                skipped=trainer.skipped,
                loss_scale=result.loss_scale if settings.precision == "fp16" else None,
            )
        )
        if traced is not None:
            log.event(traced)
        if kept_messages is not None:
            log.event(kept_messages)
        engine = trainer.data_parallel
        if isinstance(engine, OneBitAdam) and engine.updates == settings.freeze_step and not result.skipped:
            elements, without = engine.frozen_elements()
            log.event(VarianceFrozen(step=k + 1, elements=elements, without_gradient=without))
        if result.diverged:
            return "nan", f"loss is {result.loss} at step {k + 1}", k + 1
        if result.skipped and result.loss_scale <= trainer.smallest_loss_scale:
            return "nan", f"gradient norm is not finite at step {k + 1}", k + 1
        if last:
            measured: dict[str, Any] = {"from_step": counted, "to_step": settings.steps}
            channels, (down, up) = trainer.traffic.report(), trainer.traffic.link_bytes() or (None, None)
            log.event(Traffic(**measured, channels=channels, host_down_bytes=down, host_up_bytes=up))
            if experts := run.model.experts:
                layers = trainer.experts.report(run.model.expert_layers, experts.count, trainer.policy.exact)
                log.event(Experts(**measured, layers=layers))
            if rows := trainer.rows.report(trainer.policy.exact):
                log.event(SparseGradients(**measured, **rows))
            if pruning := settings.pruning:
                log.event(Sparsity(pattern=pruning.pattern, updates=engine.updates, parts=trainer.sparsity()))
            log.event(Phases(**measured, stages=resources.phase_times(trainer)))
            if stale := trainer.staleness():
                log.event(stale)
            if hosts:
                log.event(Hosts(**measured, hosts=resources.compute_times(trainer, hosts)))
            log.event(resources.memory(trainer))
            if energy is not None:
                log.event(energy.event(**measured))
        if evaluated:
            loss, tokens = trainer.evaluate()
            log.event(Evaluation(step=k + 1, split="valid", loss=loss, tokens=tokens))
            if not np.isfinite(loss):
                return "nan", f"validation loss is {loss} at step {k + 1}", k + 1
        if checkpoints and not last and (result.stop or due):
            try:
                written = checkpoints.write(k + 1, trainer.state(), corpus=trainer.corpus)
            except ReplicasDifferError as error:
                return "failed", f"replicas differ after step {k + 1}: {error}", k + 1
            log.event(CheckpointWritten(**asdict(written)))
            if result.stop:
                return "stopped", f"told to stop, checkpoint at step {k + 1}", k + 1
    if not replicas_agree(trainer):
        reason = "replicas hold different weights: a lossy collective gave its ranks different bytes"
        return "failed", reason, settings.steps
    return "completed", "", settings.steps


def trainer_of(run: Run, *arguments: Any) -> Trainer:
    """The trainer for the run's way of keeping its ranks in step."""
    if run.train.sync != "all-reduce":
        return ServedTrainer(run, *arguments)
    return (StreamTrainer if run.train.schedule in UNFLUSHED else Trainer)(run, *arguments)


def attempt() -> int:
    """Number of times that the job has started the run.

    Raises
    ------
    UserError
        The variable does not hold a whole number from 1 on.
    """
    words = os.environ.get("HPCBENCH_ATTEMPT", "1")
    if not re.fullmatch(r"[1-9][0-9]{0,8}", words):
        raise UserError(f"HPCBENCH_ATTEMPT={words!r}: expected a whole number from 1 on; it is set by job scripts")
    return int(words)


def resume(trainer: Trainer, checkpoints: Checkpoints, checkpoint: Checkpoint, corpus: Corpus) -> str:
    """Continue from a checkpoint. The result tells what has changed if another layout wrote it.

    Raises
    ------
    UserError
        The text has changed since the checkpoint.
    """
    if checkpoint.corpus != corpus.digest:
        raise UserError(
            f"{checkpoint.directory}: the run has read another text than {trainer.run.data.path or 'this one'} holds "
            f"now: bring it back, or remove {checkpoint.directory.parent} to start from step 1"
        )
    state = checkpoints.load(checkpoint, trainer.state())
    trainer.load(state)
    return carried(checkpoint, state) if checkpoint.changed else ""


def environment() -> dict[str, Any]:
    """Versions of the libraries that compute and communicate."""
    return {
        "mpi": " ".join(MPI.Get_library_version().split("\n")[0].rstrip("\0").split()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "kernels": instruction_set(),
        **({"container": container.where()} if container.where() else {}),
    }


def transport(comm: MPI.Comm, run: Run, aware: Awareness | None) -> dict[str, Any]:
    """Settings that decide how messages travel. This is a collective call."""
    formats = run.train.message_formats
    found: dict[str, Any] = {
        "comm_precision": formats,
        "overlap": run.train.overlap,
        "mpi_thread_level": MPI.Query_thread(),
        "links": run.links,
    }
    if run.links:
        found["links_note"] = links.load(Path(run.links)).foreign(Topology.of(comm))
    if run.scheme.algorithm in ("native", "auto"):
        names, sums = {"fp16": "float16", "bf16": "bfloat16"}, agreed(comm)
        found["half_sums"] = {name: sums[names[name]].whose for name in sorted({*formats.values()} & names.keys())}
    if aware is not None:
        found["gpu_aware_mpi"] = str(aware)
    return found


def facts(run: Run, corpus: Corpus) -> dict[str, Any]:
    """Numbers that follow from the configuration."""
    shape = _shape(run)
    return {
        "parameters": flops.parameters(**shape, positions=run.model.positions, tied=run.model.tied),
        "model_flops_per_sample": flops.model_flops_per_sample(**shape),
        "hardware_flops_per_sample": flops.hardware_flops_per_sample(**shape, recompute=run.train.recompute),
        "neox_flops_per_sample": flops.neox_flops_per_sample(**shape, recompute=run.train.recompute),
        "flops_formulas": {
            "model": flops.MODEL_FORMULA,
            "hardware": flops.hardware_formula(run.train.recompute),
            "neox": flops.NEOX_FORMULA,
        },
        "corpus": corpus.digest,
        "corpus_tokens": {"train": len(corpus.train), "valid": len(corpus.valid)},
        "valid_loss_uniform": corpus.uniform_loss,
        "valid_loss_unigram": corpus.unigram_loss(),
        "unigram_tokens": corpus.unigram_tokens,
    }


def _shape(run: Run) -> dict[str, Any]:
    model = run.model
    sizes = {"layers": model.layers, "hidden": model.hidden, "vocab": model.vocab, "seq_len": run.train.seq_len}
    return {**sizes, "experts": expert_shape(model)}


def guarded() -> None:
    """Run `main`. A rank that fails ends the whole job, so that no rank waits for one that is gone."""
    try:
        status = main(sys.argv[1:])
    except UserError as error:
        if MPI.COMM_WORLD.rank:
            time.sleep(1)  # what all ranks have found, the first one says, and ends the job with it
        print(f"hpcbench.train: {error}", file=sys.stderr, flush=True)
        status = 2
    except TransitError as error:
        print(f"hpcbench.train: {error}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)
        os._exit(1)
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)
        os._exit(1)
    if status == 2:
        time.sleep(0.3)  # a launcher that hears of an abort may drop words that it has not read yet
        MPI.COMM_WORLD.Abort(2)
    gc.freeze()  # or the last collection walks all of PyTorch: seconds where ranks share cores
    sys.exit(status)


if __name__ == "__main__":
    guarded()
