"""Trains small models with experts beside one process; prints a JSON line a case."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import cases
import expert_cases
import faults
import parity_worker
from expert_faults import planted
from mpi4py import MPI
from parity_worker import History

from hpcbench.contract.run import Run
from hpcbench.parallel.experts import parcels
from hpcbench.parallel.on_demand import in_backward
from hpcbench.predict import volume
from hpcbench.predict.calls import StepCalls
from hpcbench.predict.experts import Routed
from hpcbench.predict.memory import count_lasting_bytes
from hpcbench.predict.workload import Workload
from hpcbench.train.trainer import Trainer

Rows = tuple[int, int, int]

STEPS = 1
"""The weights after it are evaluated; runs with experts of more steps are in test_relayout.py."""
NOBODY = Routed(0, 0, 0)
KNOWN: dict[str, list[Routed]] = {}
"""What each rank's experts that drop nothing sent and received in all steps, by the run; on the first rank."""


@contextmanager
def counting_rows(rows: list[Rows]) -> Iterator[None]:
    """Notes what a rank sends, receives and computes in the forward passes of its steps."""
    make, backward = parcels.without_places, Trainer.backward
    active = [False]

    def noted(routing: Any, *, count: int, ranks: int, exchange: Any) -> parcels.Parcels:
        made = make(routing, count=count, ranks=ranks, exchange=exchange)
        if active[0] and not in_backward():
            group = exchange.__self__._group
            own = group.rank if group else 0
            sent, received = (sum(side) - side[own] for side in made.counts)
            rows.append((sent, received, sum(made.experts)))
        return made

    def within(self: Trainer, step: int) -> float:
        active[0] = True
        loss = backward(self, step)
        active[0] = False
        return loss

    with patch.object(parcels, "without_places", noted), patch.object(Trainer, "backward", within):
        yield


def train(run: Run, comm: MPI.Comm, steps: int) -> History | None:
    """As the worker of all parity tests does, and with the rows counted."""
    rows: list[Rows] = []
    with counting_rows(rows):
        history = plain_train(run, comm, steps)
    own = Routed(*map(sum, zip(*rows, strict=True))) if rows else NOBODY
    everyones = comm.gather(own)
    if everyones:
        KNOWN[run.model_dump_json()] = everyones
    return history


def predicted(run: Run, steps: int) -> list[dict[str, int]]:
    """The expected bytes by rank, from the settings and the counts of rows."""
    found = []
    for rank, routed in enumerate(KNOWN[run.model_dump_json()]):
        once, counted = (
            volume.count_step_bytes(run.model, run.train, run.layout, rank, routed=each) for each in (NOBODY, routed)
        )
        total = Counter({key: steps * once.get(key, 0) + counted[key] - once.get(key, 0) for key in counted})
        found.append({" ".join(key): nbytes for key, nbytes in total.items() if nbytes})
    return found


plain_train = parity_worker.train


def memory(trainer: Trainer) -> list[dict[str, int]]:
    """What a rank holds from step to step, and what it is said to hold."""
    run = trainer.run
    workload = Workload(run.model, run.train, run.layout, run.ranks)
    calls = StepCalls(run.model, run.train, run.layout, trainer.mesh.rank)
    return [trainer.data_parallel.held_bytes(), count_lasting_bytes(workload, calls, None)]


def kept(trainer: Trainer, comm: MPI.Comm) -> list[str] | None:
    """Which choices of each sample are kept in a step, by layer, on rank 0: a character a choice."""
    found: list[tuple[int, int, str]] = []
    for number, block in trainer.module.blocks.items():

        def watch(routing: Any, losses: Any, number: str = number) -> None:
            for sample in routing.accepted:
                found.append((int(number), len(found), "".join(map(str, sample.int().flatten().tolist()))))

        block.mlp.watch = watch
    trainer.backward(0)
    everyones = comm.gather(sorted(found))
    # replicas take samples in rank order, and each its micro-batches one after another
    layers = sorted({layer for layer, _, _ in found})
    return everyones and [words for layer in layers for rank in everyones for one, _, words in rank if one == layer]


def drops() -> None:
    """What is dropped in every layout."""
    for settings in expert_cases.dropping():
        run = cases.run_of(settings)
        parity_worker.meet(parity_worker.WORLD)
        comm = parity_worker.WORLD.Split(int(parity_worker.WORLD.rank >= run.ranks), parity_worker.WORLD.rank)
        if parity_worker.WORLD.rank >= run.ranks:
            continue
        trainer = parity_worker.trainer_of(run, comm)
        held = comm.gather(memory(trainer))
        words = kept(trainer, comm)
        if words:
            of = {"experts": settings["model.experts"], "place": [run.layout.dp, run.layout.ep]}
            print(json.dumps({**of, "kept": words, "held": held}), flush=True)


def main(part: str = "") -> None:
    """Everything in one start of the ranks, of which each takes a second; or the rest of the cover."""
    comparisons = [comparison for suite in expert_cases.SUITES[part] for comparison in suite()]
    assert len({comparison.name for comparison in comparisons}) == len(comparisons)
    with ExitStack() as patches:
        for name, value in (("planted", planted), ("train", train), ("predicted", predicted)):
            patches.enter_context(patch.object(parity_worker, name, value))
        parity_worker.compare_all(comparisons, STEPS)
    if part:
        return
    drops()


if __name__ == "__main__":
    assert not set(expert_cases.FAULTY) & set(faults.FAULTS)
    main(*sys.argv[1:])
