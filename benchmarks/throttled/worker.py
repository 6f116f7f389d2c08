"""Trains runs one after another in one start of the ranks: ``mpiexec ... python worker.py DIRECTORY``.

The directory holds run files, which are taken in the order of their names. Rank 0 prints a JSON line for each. Times and
bytes are the engine's own counts: of the steps after the warm-up, and of nothing between them.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from mpi4py import MPI

from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.train import config, text
from hpcbench.train.config import Run
from hpcbench.train.corpus import Corpus
from hpcbench.train.trainer import Trainer

COUNTED = ("message_bytes", "wire_bytes", "network_bytes", "exposed_s", "hidden_s")


def main(directory: Path) -> None:
    """Train every run of the directory."""
    torch.set_num_threads(1)
    runs = [config.load(path)[0] for path in sorted(directory.glob("*.json"))]
    world = MPI.COMM_WORLD
    drivers: dict[tuple[Wait, bool], Progress] = {}

    def driver_of(run: Run) -> Progress:
        how = (Wait.GIVE_WAY if run.oversubscribe else Wait.SPIN, run.train.overlap)
        if how not in drivers:
            drivers[how] = Progress(how[0], background=how[1])
        return drivers[how]

    first = runs[0]
    corpus = text.load_shared(world, driver_of(first), first.data, first.train.seq_len)

    def trainer_of(run: Run) -> Trainer:
        return Trainer(run, world.Dup(), driver_of(run), corpus)

    # The first steps of a start pay for libraries and connections: no run that counts shall be the first.
    rehearsal = trainer_of(first)
    for k in range(max(1, first.train.warmup_steps)):
        rehearsal.step(k)
    for run in runs:
        result = train(trainer_of(run), corpus)
        if world.rank == 0:
            print(json.dumps(result), flush=True)


def train(trainer: Trainer, corpus: Corpus) -> dict[str, Any]:
    """Take all steps; times are seconds a step of this rank, traffic is a step's, summed over all ranks."""
    run, settings = trainer.run, trainer.run.train
    for k in range(settings.steps):
        if k == settings.warmup_steps:
            trainer.forget_times()
        trainer.step(k)
    steps, seconds = trainer.traffic.steps, trainer.traffic.seconds / trainer.traffic.steps
    traffic: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(COUNTED, 0.0))
    for channel in trainer.traffic.report():
        for name in COUNTED:
            traffic[channel["dimension"]][name] += channel[name] / steps
    valid, _ = trainer.evaluate()
    return {
        "scheme": run.scheme.name,
        "steps": steps,
        "seconds": seconds,
        "samples_per_s": settings.global_batch / seconds,
        "traffic": traffic,
        "valid": valid,
        "unigram": corpus.unigram_loss(),
        "replicas_agree": trainer.replicas_agree(),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
