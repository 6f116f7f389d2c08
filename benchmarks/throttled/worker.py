"""Train runs one after the other on ranks that are started once: ``mpiexec ... python worker.py DIRECTORY``.

The directory contains run files, which are processed in name order, and a list of their link rates. If the rate changes
before a run, rank 0 creates a file NAME.asked and waits until the starting process has set the links and removed the
file. Rank 0 prints one JSON line per run. Times and bytes are those that the engine records for the steps after
warm-up. The time between steps is excluded.
"""

import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from mpi4py import MPI

from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.run import Run, load
from hpcbench.train import text
from hpcbench.train.agreement import replicas_agree
from hpcbench.train.trainer import Trainer

COUNTED = ("message_bytes", "wire_bytes", "network_bytes", "exposed_s", "hidden_s")
LONGEST = 60.0
"""Timeout in seconds for a change of the links."""


def main(directory: Path) -> None:
    """Train every run of the directory."""
    torch.set_num_threads(1)
    world = MPI.COMM_WORLD
    files = sorted(directory.glob("*.json"))
    runs = [load(file)[0] for file in files]
    rates: list[str | None] = json.loads((directory / "rates").read_text())
    drivers: dict[tuple[Wait, bool], Progress] = {}

    def driver_of(run: Run) -> Progress:
        how = (Wait.GIVE_WAY if run.oversubscribe else Wait.SPIN, run.train.overlap)
        if how not in drivers:
            drivers[how] = Progress(how[0], background=how[1])
        return drivers[how]

    first, current = runs[0], rates[0]
    corpus = text.load_shared(world, driver_of(first), first.data, first.train.seq_len)
    # The first steps after a start include the cost of libraries and connections, so their run is not counted.
    rehearsal = Trainer(first, world, driver_of(first), corpus)
    for k in range(max(1, first.train.warmup_steps)):
        rehearsal.step(k)
    rehearsal.mesh.free()
    for file, rate, run in zip(files, rates, runs, strict=True):
        if rate != current:
            ask(world, file.with_suffix(".asked"))
            current = rate
        trainer = Trainer(run, world, driver_of(run), corpus)
        result = train(trainer)
        trainer.mesh.free()  # An MPI library supports some thousand communicators.
        if world.rank == 0:
            print(json.dumps(result), flush=True)


def ask(world: MPI.Comm, file: Path) -> None:
    """Wait on all ranks until the links have the rate of the next run."""
    world.Barrier()
    if world.rank == 0:
        file.touch()
        asked = time.monotonic()
        while file.exists():
            if time.monotonic() - asked > LONGEST:
                raise TimeoutError(f"the link rate was not set within {LONGEST:.0f} s")
            time.sleep(0.02)
    world.Barrier()


def train(trainer: Trainer) -> dict[str, Any]:
    """Run all steps. Times are seconds per step of this rank. Traffic is per step, summed over all ranks."""
    run, settings = trainer.run, trainer.run.train
    for k in range(settings.steps):
        if k == settings.warmup_steps:
            trainer.forget_times()
        trainer.step(k)
    steps, seconds = trainer.traffic.steps, trainer.traffic.seconds / trainer.traffic.steps
    traffic: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(COUNTED, 0.0))
    for channel in trainer.traffic.report():
        for name in COUNTED:
            traffic[str(channel.dimension)][name] += getattr(channel, name) / steps
    valid, _ = trainer.evaluate()
    return {
        "scheme": run.scheme.name,
        "steps": steps,
        "seconds": seconds,
        "samples_per_s": settings.global_batch / seconds,
        "passes": (trainer.phases.forward + trainer.phases.backward) / trainer.phases.steps,
        "held_bytes": sum(trainer.data_parallel.held_bytes().values()),
        "traffic": traffic,
        "valid": valid,
        "replicas_agree": replicas_agree(trainer),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
