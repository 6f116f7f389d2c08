"""The worker: ``python -m hpcbench.train RUN.json``, started on every rank by a job's launcher.

Exit status: 0 the run completed, 1 it diverged or its replicas differ, 2 it cannot be run as asked.
"""

import gc
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

import hpcbench
from hpcbench.codecs.registry import instruction_set
from hpcbench.comm import links
from hpcbench.comm.gpu_aware import gpu_aware
from hpcbench.comm.progress import Progress
from hpcbench.comm.topology import Topology
from hpcbench.comm.wait import Wait
from hpcbench.errors import TransitError, UserError
from hpcbench.predict import flops
from hpcbench.train import config, preflight, text
from hpcbench.train.log import RunLog, Step, now
from hpcbench.train.traffic import Traffic
from hpcbench.train.trainer import Trainer


def main(argv: list[str]) -> int:
    """Run one run on this rank."""
    comm = MPI.COMM_WORLD
    if len(argv) != 1:
        raise UserError("usage: python -m hpcbench.train RUN.json")
    run, raw = config.load(Path(argv[0]))
    log = RunLog(sys.stdout if comm.rank == 0 else None)
    identity = {key: raw[key] for key in ("study", "run", "site", "repeat", "pairing", "cell")}
    log.event("start", time=now(), schema=1, version=hpcbench.__version__, **identity, scheme=run.scheme.name)
    begin = time.perf_counter()
    world = preflight.describe(comm, run)
    log.event("environment", **environment(), **transport(comm, run), world=world)
    preflight.check(world, run)

    torch.set_num_threads(run.threads)
    wait = Wait.GIVE_WAY if run.oversubscribe else Wait.SPIN
    progress = Progress(wait, background=run.train.overlap)
    corpus = text.load_shared(comm, progress, run.data, run.train.seq_len)
    trainer = Trainer(run, comm, progress, corpus)
    if comm.rank == 0:
        log.event("configuration", run=raw, **facts(run, corpus))
    state, reason, steps = train(trainer, log)
    log.event("end", time=now(), state=state, steps=steps, seconds=round(time.perf_counter() - begin, 3), reason=reason)
    return 0 if state == "completed" else 1


def train(trainer: Trainer, log: RunLog) -> tuple[str, str, int]:
    """Take all steps; returns the run's state, the reason where it is not ``completed``, and the steps taken."""
    run, settings = trainer.run, trainer.run.train
    model_flops = flops.model_flops_per_sample(**_shape(run))
    samples = settings.global_batch
    skipped = 0
    traffic = Traffic(trainer.policy, trainer.mesh)
    for k in range(settings.steps):
        if k == settings.warmup_steps:
            traffic = Traffic(trainer.policy, trainer.mesh)
        result = trainer.step(k)
        skipped += result.skipped
        rate = model_flops * samples / result.seconds / run.ranks
        log.step(
            Step(
                step=k + 1,
                steps=settings.steps,
                loss=result.loss,
                seconds=result.seconds,
                samples_per_s=samples / result.seconds,
                model_flops_per_rank=rate,
                hardware_flops_per_rank=rate,
                lr=result.lr,
                gradient_norm=result.gradient_norm,
                message_bytes=result.message_bytes,
                wire_bytes=result.wire_bytes,
                skipped=skipped,
            )
        )
        if not np.isfinite(result.loss):
            return "nan", f"loss is {result.loss} at step {k + 1}", k + 1
        if result.skipped and settings.precision != "fp16":
            return "nan", f"gradient norm is not finite at step {k + 1}", k + 1
        last = k + 1 == settings.steps
        if last:
            warm = min(settings.warmup_steps, settings.steps - 1)
            log.event("traffic", from_step=warm + 1, to_step=settings.steps, channels=traffic.report())
        if last or (settings.eval_every and (k + 1) % settings.eval_every == 0):
            loss, tokens = trainer.evaluate()
            log.event("evaluation", step=k + 1, split="valid", loss=loss, tokens=tokens)
            if not np.isfinite(loss):
                return "nan", f"validation loss is {loss} at step {k + 1}", k + 1
    if not trainer.replicas_agree():
        return "failed", "replicas hold different weights: a lossy collective gave its ranks different bytes", k + 1
    return "completed", "", settings.steps


def environment() -> dict[str, Any]:
    """Versions of what computes and communicates."""
    return {
        "mpi": " ".join(MPI.Get_library_version().split("\n")[0].rstrip("\0").split()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "kernels": instruction_set(),
    }


def transport(comm: MPI.Comm, run: config.Run) -> dict[str, Any]:
    """What decides how messages travel (a collective call)."""
    found: dict[str, Any] = {"overlap": run.train.overlap, "mpi_thread_level": MPI.Query_thread(), "links": run.links}
    if run.links:
        found["links_note"] = links.load(Path(run.links)).foreign(Topology.of(comm))
    if run.device != "cpu":
        found["gpu_aware_mpi"] = str(gpu_aware(comm))
    return found


def facts(run: config.Run, corpus: text.Corpus) -> dict[str, Any]:
    """What follows from the configuration."""
    shape = _shape(run)
    return {
        "parameters": flops.parameters(**shape, positions=run.model.positions, tied=run.model.tied),
        "model_flops_per_sample": flops.model_flops_per_sample(**shape),
        "hardware_flops_per_sample": flops.hardware_flops_per_sample(**shape, recompute=False),
        "corpus": corpus.digest,
        "valid_loss_uniform": text.UNIFORM_LOSS,
        "valid_loss_unigram": corpus.unigram_loss(),
    }


def _shape(run: config.Run) -> dict[str, int]:
    model = run.model
    return {"layers": model.layers, "hidden": model.hidden, "vocab": model.vocab, "seq_len": run.train.seq_len}


def guarded() -> None:
    """Run `main`; a rank that fails takes the whole job with it, so that no rank waits for one that is gone."""
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
        MPI.COMM_WORLD.Abort(2)
    gc.freeze()  # or the last collection walks all of PyTorch: seconds where ranks share cores
    sys.exit(status)


if __name__ == "__main__":
    guarded()
