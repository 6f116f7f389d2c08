"""Worker program ``python -m hpcbench.train RUN.json``, which a launcher starts on every rank.

The exit status is 0 if the run completed, 1 if the run diverged or its replicas differ, 2 if the run cannot be executed
as requested, and 75 if the run was asked to stop and has written a checkpoint. If the program is started again, it
resumes from the checkpoint.
"""

import gc
import os
import re
import sys
import time
from pathlib import Path

import torch
from mpi4py import MPI

import hpcbench
from hpcbench.comm import nccl
from hpcbench.comm.places import Places
from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract import message_samples, rules, trace
from hpcbench.contract.events import (
    Binding,
    CheckpointCarried,
    CheckpointDamaged,
    Configuration,
    End,
    Environment,
    Host,
    IdleRule,
    Rank,
    SparseSwitch,
    Start,
    WholeGradients,
)
from hpcbench.contract.run import load
from hpcbench.contract.sparse_fit import find_unused_rows
from hpcbench.contract.state import STOPPED_EXIT
from hpcbench.errors import TransitError, UserError
from hpcbench.features.effects.observer.effects import EffectObserver
from hpcbench.features.energy.observer.energy import EnergyMeter
from hpcbench.features.messages.observer import MessageObserver
from hpcbench.features.network.observer import NetworkMeter
from hpcbench.features.prune.observer import CountedZeros
from hpcbench.features.trace.observer import TraceObserver
from hpcbench.train import binding, clocks, container, gpu, machine, preflight, stop, text
from hpcbench.train.applied import describe_applied
from hpcbench.train.checkpoint import Checkpoint, Checkpoints, LatestCheckpoint, carried
from hpcbench.train.corpus import Corpus
from hpcbench.train.environment import environment, transport
from hpcbench.train.facts import facts
from hpcbench.train.log import LogWriter, now
from hpcbench.train.loop import train, trainer_of
from hpcbench.train.milestones import first_counted
from hpcbench.train.serving import ServedTrainer
from hpcbench.train.trainer import Trainer


def main(argv: list[str]) -> int:
    """Execute one run on this rank."""
    comm = MPI.COMM_WORLD
    if len(argv) != 1:
        raise UserError("usage: python -m hpcbench.train RUN.json")
    path = Path(argv[0])
    container.check_version()
    container.check_library()
    run, raw = load(path)
    log = LogWriter(sys.stdout if comm.rank == 0 else None, path.parent / "reserve")
    checkpoints = Checkpoints(path.parent / "checkpoint", comm, run)
    latest = (
        checkpoints.find() if comm.size == run.ranks else LatestCheckpoint(None)
    )  # a wrong number of ranks is rejected below
    resumed_from = latest.newest.step if latest.newest else None
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
    for reason in latest.damaged:
        log.event(CheckpointDamaged(reason=reason))
    begin = time.perf_counter()
    world = preflight.describe(comm, run)
    ranks = tuple(map(Rank.declared, world))
    where = machine.hosts(comm, gpus=run.device != "cpu")
    aware = gpu.awareness(comm, run)
    about = {**environment(), **transport(comm, run, aware), **(machine.job() if comm.rank == 0 else {})}
    if comm.rank == 0:
        log.event(Environment(**about, hosts=tuple(map(Host.declared, where)), world=ranks))
        log.event(describe_applied(run.scheme, sys.orig_argv, os.environ))
    preflight.check(world, run)
    if warnings := binding.check(world, run):
        log.event(Binding(warnings=tuple(warnings)))
    gpu.check(run)

    torch.set_num_threads(run.threads)
    wait = Wait.GIVE_WAY if run.oversubscribe else Wait.SPIN
    progress = Progress(wait, background=run.train.overlap)
    corpus = text.load_shared(comm, progress, run.data, run.train.seq_len, run.model.vocab)
    places = Places(aware=bool(aware), nccl=nccl.connect if run.train.transport == "nccl" else None)
    trainer = trainer_of(run, comm, progress, corpus, places)
    for reason in rules.list_idle_rules(run.scheme, run.setting):
        log.event(IdleRule(reason=reason))
    if why := find_unused_rows(run.model, run.train, run.layout.tensor):
        log.event(WholeGradients(reason=str(why)))
    if switch := trainer.rows.switch:
        log.event(SparseSwitch(**switch._asdict()))
    if comm.rank == 0:
        log.event(Configuration(run=raw, **facts(run, corpus)))
    if latest.newest and (changes := resume(trainer, checkpoints, latest.newest, corpus)):
        log.event(CheckpointCarried(reason=changes))
    request = stop.StopRequest(path.parent / "stop")
    state, reason, steps = train(
        trainer,
        log,
        hosts=[rank["host"] for rank in world],
        taken=resumed_from or 0,
        checkpoints=checkpoints,
        told_to_stop=request if comm.rank == 0 else stop.never,
        observers=[
            TraceObserver(trainer, comm, progress, world[comm.rank]["host"], path.parent / trace.DIRECTORY),
            MessageObserver(trainer, path.parent / message_samples.DIRECTORY),
            EffectObserver(trainer),
            CountedZeros(trainer),
            EnergyMeter(ranks, comm, first=first_counted(run.train, resumed_from or 0)),
            NetworkMeter([rank["host"] for rank in world], comm, first=first_counted(run.train, resumed_from or 0)),
        ],
    )
    if isinstance(trainer, ServedTrainer):
        trainer.write_clocks(path.parent / clocks.DIRECTORY)
    seconds = round(time.perf_counter() - begin, 3)
    log.event(End(time=now(), state=state, steps=steps, seconds=seconds, reason=reason))
    return {"completed": 0, "stopped": STOPPED_EXIT}.get(state, 1)


def attempt() -> int:
    """Return how many times the job has started the run.

    Raises
    ------
    UserError
        The variable does not contain a positive integer.
    """
    number = os.environ.get("HPCBENCH_ATTEMPT", "1")
    if not re.fullmatch(r"[1-9][0-9]{0,8}", number):
        raise UserError(
            f"HPCBENCH_ATTEMPT={number!r}: expected a whole number of at least 1: submit the run as a job, whose "
            "script sets this variable"
        )
    return int(number)


def resume(trainer: Trainer, checkpoints: Checkpoints, checkpoint: Checkpoint, corpus: Corpus) -> str:
    """Resume from a checkpoint.

    If the checkpoint was written in a different layout, return a description of the changes.

    Raises
    ------
    UserError
        The text has changed since the checkpoint.
    """
    if checkpoint.corpus != corpus.digest:
        raise UserError(
            f"{checkpoint.directory}: the run was trained on a different text than "
            f"{trainer.run.data.path or 'the current text'}: restore the original text, or remove "
            f"{checkpoint.directory.parent} to start from step 1"
        )
    state = checkpoints.load(checkpoint, trainer.state())
    trainer.load(state)
    return carried(checkpoint, state) if checkpoint.changed else ""


def guarded() -> None:
    """Run `main`. If a rank fails, abort the whole job, so that no rank waits for a terminated rank."""
    try:
        status = main(sys.argv[1:])
    except UserError as error:
        if MPI.COMM_WORLD.rank:
            time.sleep(1)  # the first rank reports errors that occur on all ranks, and ends the job
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
        time.sleep(0.3)  # after an abort, launchers may drop unread output
        MPI.COMM_WORLD.Abort(2)
    gc.freeze()  # otherwise the last collection traverses all of PyTorch, which takes seconds on shared cores
    sys.exit(status)


if __name__ == "__main__":
    guarded()
