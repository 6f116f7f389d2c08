"""Worker that compares small parallel models with experts to models in one process.

The worker prints one JSON line per case.
"""

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
from counted_calls import Routed, count_counted_bytes
from expert_faults import FAULTS
from mpi4py import MPI
from parity_worker import History

from hpcbench.contract.run import Run
from hpcbench.parallel.experts import parcels
from hpcbench.parallel.on_demand import in_backward
from hpcbench.predict.calls import StepCalls
from hpcbench.predict.memory import count_lasting_bytes
from hpcbench.predict.workload import Workload
from hpcbench.train.trainer import Trainer

Rows = tuple[int, int, int]

STEPS = 1
"""Number of steps. The weights are evaluated after the last step. Longer runs with experts are in test_relayout.py."""
NOBODY = Routed(0, 0, 0)
KNOWN: dict[str, list[Routed]] = {}
"""Rows that each rank's experts sent and received in all steps of a run without dropping, by run (only on rank 0)."""


@contextmanager
def counting_rows(rows: list[Rows]) -> Iterator[None]:
    """Count the rows that a rank sends, receives and computes in its forward passes."""
    make, backward = parcels.without_places, Trainer.backward
    active = [False]

    def noted(routing: Any, *, count: int, ranks: int, exchange: Any) -> parcels.Parcels:
        plan = make(routing, count=count, ranks=ranks, exchange=exchange)
        if active[0] and not in_backward():
            group = exchange.__self__._group
            rank = group.rank if group else 0
            sent, received = (sum(side) - side[rank] for side in plan.counts)
            rows.append((sent, received, sum(plan.experts)))
        return plan

    def within(self: Trainer, step: int) -> float:
        active[0] = True
        loss = backward(self, step)
        active[0] = False
        return loss

    with patch.object(parcels, "without_places", noted), patch.object(Trainer, "backward", within):
        yield


def train(run: Run, comm: MPI.Comm, steps: int) -> History | None:
    """Train like the worker of the parity tests, and count rows."""
    rows: list[Rows] = []
    with counting_rows(rows):
        history = plain_train(run, comm, steps)
    routed = Routed(*map(sum, zip(*rows, strict=True))) if rows else NOBODY
    everyones = comm.gather(routed)
    if everyones:
        KNOWN[run.model_dump_json()] = everyones
    return history


def predicted(run: Run, steps: int) -> list[dict[str, int]]:
    """Compute the expected bytes of each rank from the settings and the row counts."""
    counts = []
    for rank, routed in enumerate(KNOWN[run.model_dump_json()]):
        once, counted = (
            count_counted_bytes(run.model, run.train, run.layout, rank, routed=each) for each in (NOBODY, routed)
        )
        total = Counter({key: steps * once.get(key, 0) + counted[key] - once.get(key, 0) for key in counted})
        counts.append({" ".join(key): nbytes for key, nbytes in total.items() if nbytes})
    return counts


plain_train = parity_worker.train


def memory(trainer: Trainer) -> list[dict[str, int]]:
    """Return the number of elements that a rank holds between steps, and the predicted number."""
    run = trainer.run
    workload = Workload(run.model, run.train, run.layout, run.ranks)
    calls = StepCalls(run.model, run.train, run.layout, trainer.mesh.rank)
    return [trainer.data_parallel.held_bytes(), count_lasting_bytes(workload, calls, None)]


def kept_choices(trainer: Trainer, comm: MPI.Comm) -> list[str] | None:
    """Return the accepted choices of each sample by layer, one character per choice (only on rank 0)."""
    choices: list[tuple[int, int, str]] = []
    for number, block in trainer.module.blocks.items():

        def watch(routing: Any, losses: Any, number: str = number) -> None:
            for sample in routing.accepted:
                choices.append((int(number), len(choices), "".join(map(str, sample.int().flatten().tolist()))))

        block.mlp.watch = watch
    trainer.backward(0)
    everyones = comm.gather(sorted(choices))
    # replicas take samples in rank order, and each replica takes its micro-batches in order
    layers = sorted({layer for layer, _, _ in choices})
    return everyones and [
        choice for layer in layers for rank in everyones for layer_number, _, choice in rank if layer_number == layer
    ]


def drops() -> None:
    """Print the dropped tokens of every layout."""
    for settings in expert_cases.dropping():
        run = cases.run_of(settings)
        parity_worker.meet(parity_worker.WORLD)
        comm = parity_worker.WORLD.Split(int(parity_worker.WORLD.rank >= run.ranks), parity_worker.WORLD.rank)
        if parity_worker.WORLD.rank >= run.ranks:
            continue
        trainer = parity_worker.make_trainer(run, comm)
        held = comm.gather(memory(trainer))
        choices = kept_choices(trainer, comm)
        if choices:
            of = {"experts": settings["model.experts"], "place": [run.layout.dp, run.layout.ep]}
            print(json.dumps({**of, "kept": choices, "held": held}), flush=True)


def main(part: str = "") -> None:
    """Run all scenarios, or the remaining cases, with a single start of the ranks, because starts take seconds."""
    comparisons = [comparison for suite in expert_cases.SUITES[part] for comparison in suite()]
    assert len({comparison.name for comparison in comparisons}) == len(comparisons)
    with ExitStack() as patches:
        for name, value in (("PLANTS", FAULTS), ("train", train), ("predicted", predicted)):
            patches.enter_context(patch.object(parity_worker, name, value))
        parity_worker.compare_all(comparisons, STEPS)
    if part:
        return
    drops()


if __name__ == "__main__":
    assert not set(expert_cases.FAULTY) & set(faults.FAULTS)
    main(*sys.argv[1:])
