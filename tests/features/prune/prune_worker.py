"""Worker that compares parallel training with sparse weights to training in one process.

The worker prints one JSON line per case.
"""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import parity
import parity_worker
import prune_cases
from mpi4py import MPI
from parity import Part, Values
from parity_worker import WORLD, History, meet
from prune_faults import FAULTS, FAULTS_IN_TRANSIT

from hpcbench.contract.run import Run
from hpcbench.contract.shards import cut_evenly
from hpcbench.errors import TransitError
from hpcbench.features.prune.traffic import Zeros
from hpcbench.predict import volume
from hpcbench.train.checkpoint import Checkpoints
from hpcbench.train.trainer import Trainer

STEPS = parity_worker.STEPS
Layouts = list[list[tuple[int, list[tuple[str, tuple[slice, ...], slice]]]]]
MASKS: dict[str, tuple[Layouts, list[dict[str, Values]]]] = {}
"""Bucket layout of each rank, and the masks after each step, keyed by the run's JSON (only on rank 0)."""
plain_train, plain_errors = parity_worker.train, parity_worker.errors


def list_masks(trainer: Trainer) -> list[Part]:
    """List the masks of this rank's parameters, with 1 for each kept weight."""
    masks = []
    for piece in trainer.data_parallel.pieces:
        mask = np.ones(piece.bucket.values.numel()) if piece.packing is None else piece.packing.kept.double().numpy()
        for slot in piece.bucket.slots:
            masks.append(Part(slot.shard, mask[slot.span].reshape(slot.shard.local_shape)))
    return masks


def train(run: Run, comm: MPI.Comm, steps: int) -> History | None:
    """Train like parity_worker.py, and add the masks after each step to the history."""
    parts_of_steps: list[list[Part]] = []
    bucket_layout: Layouts = [[]]
    update = Trainer.update

    def update_and_record(self: Trainer, step: int) -> tuple[float, float]:
        result = update(self, step)
        parts_of_steps.append(list_masks(self))
        bucket_layout[0] = [
            (
                piece.bucket.values.numel(),
                [(slot.shard.name, slot.shard.held, slot.span) for slot in piece.bucket.slots],
            )
            for piece in self.data_parallel.pieces
        ]
        return result

    with patch.object(Trainer, "update", update_and_record):
        history = plain_train(run, comm, steps)
    wholes = [parity.assemble(comm, parts) for parts in parts_of_steps]
    layouts = comm.gather(bucket_layout[0])
    if history and layouts:
        for step, step_masks in zip(history, wholes, strict=False):
            step["masks"] = step_masks
        MASKS[run.model_dump_json()] = (layouts, [step_masks.values for step_masks in wholes if step_masks])
    return history


def compute_errors(history: History, reference: History) -> dict[str, Any]:
    """Compute the errors of parity_worker.py, and count differing mask elements and nonzero masked weights."""
    differ = stray = zeros = 0.0
    for ours, theirs in zip(history[:-1], reference[:-1], strict=True):
        mine, other = ours["masks"], theirs["masks"]
        differ += mine.replicas_differ
        for name, mask in mine.values.items():
            differ += float((mask != other.values.get(name, np.ones_like(mask))).sum())
            stray += float(((mask == 0) & (ours["weights"].values[name] != 0)).sum())
            zeros += float((mask == 0).sum())
        missing = other.values.keys() - mine.values.keys()
        differ += sum(float((other.values[name] == 0).sum()) for name in missing)
    return {**plain_errors(history, reference), "masks": differ, "stray": stray, "zeros": zeros}


def count_zeros(run: Run, rank: int, step: int) -> list[list[int]]:
    """Count the zeros in each bucket of a rank after `step` steps, for each replica's piece."""
    layouts, masks = MASKS[run.model_dump_json()]
    zeros = []
    for length, slots in layouts[rank]:
        mask = np.ones(length, bool)
        for name, held, span in slots if step else ():
            if name in masks[step - 1]:
                mask[span] = masks[step - 1][name][held].reshape(-1) != 0
        zeros.append([int((~mask[cut]).sum()) for cut in cut_evenly(length, run.layout.replicas)])
    return zeros


def predict_bytes(run: Run, steps: int) -> list[dict[str, int]]:
    """Predict the bytes of each rank, from the settings if they suffice, otherwise from the zero counts."""
    prune, layout = run.train.prune, run.layout
    assert prune is not None
    needs_no_counts = prune.pattern == "2:4" or (run.train.zero == 0 and layout.tp == 1)
    bytes_of_ranks = []
    for rank in range(run.ranks):
        total: Counter[str] = Counter()
        for k in range(steps):
            zeros = None if needs_no_counts else Zeros(count_zeros(run, rank, k), count_zeros(run, rank, k + 1))
            sent = volume.count_step_bytes(run.model, run.train, layout, rank, updates=k, zeros=zeros)
            total.update({" ".join(key): nbytes for key, nbytes in sent.items()})
        bytes_of_ranks.append(dict(total))
    return bytes_of_ranks


def run_transit_faults() -> None:
    """Print the errors of runs whose masks differ between replicas or are damaged in transit."""
    for pattern, zero in (("growing", 0), ("pairs", 1)):
        for fault in (None, *FAULTS_IN_TRANSIT):
            if (fault == "place_out_of_order") != (pattern == "pairs") and fault:
                continue
            run = prune_cases.make_comparison(
                {"model": "neox", "layout.dp": 2, "train.prune": pattern, "train.zero": zero}
            ).run
            meet(WORLD)
            comm = WORLD.Split(int(WORLD.rank >= run.ranks), WORLD.rank)
            if WORLD.rank >= run.ranks:
                continue
            message = ""
            with FAULTS_IN_TRANSIT[fault]() if fault else nullcontext():
                trainer = parity_worker.make_trainer(run, comm)
                try:
                    for k in range(STEPS):
                        trainer.step(k)
                except TransitError as error:
                    message = str(error)
            messages = comm.gather(message)
            if messages:
                print(json.dumps({"transit": fault or f"none {pattern}", "messages": messages}), flush=True)


JOURNEY = [
    ({"layout.dp": 2, "layout.tp": 2, "layout.pp": 1, "train.zero": 1}, 2),
    ({"layout.dp": 2, "layout.tp": 1, "layout.pp": 2, "train.zero": 3}, 3),
    ({"layout.dp": 4, "layout.tp": 1, "layout.pp": 1, "train.zero": 0}, 4),
]
"""Layouts in which a run trains consecutively, and the step at which it stops in each layout."""


def run_journeys(team: MPI.Comm, patterns: Sequence[str]) -> list[dict[str, Any]]:
    """Compare the masks of runs that resume in other layouts with the masks of one process. Results are on rank 0."""
    place = Path(team.bcast(tempfile.mkdtemp() if team.rank == 0 else ""))
    results = []
    for pattern in patterns:
        common = {"model": "neox", "train.prune": pattern, "train.steps": 4, "train.clip": 0.0}
        alone: list[dict[str, Values]] = [{}]
        if team.rank == 0:
            trainer = parity_worker.make_trainer(
                prune_cases.make_comparison({**common, "layout.dp": 1}).run, MPI.COMM_SELF
            )
            for k in range(4):
                trainer.step(k)
                assembled = parity.assemble(MPI.COMM_SELF, list_masks(trainer))
                alone.append(assembled.values if assembled else {})
        steps_taken = 0
        for settings, until in JOURNEY:
            meet(team)
            run = prune_cases.make_comparison({**common, **settings}).run
            trainer = parity_worker.make_trainer(run, team)
            checkpoints = Checkpoints(place / pattern, team, run)
            if checkpoint := checkpoints.find().newest:
                trainer.load(checkpoints.load(checkpoint, trainer.state()))
            before = parity.assemble(team, list_masks(trainer))
            for k in range(steps_taken, until):
                trainer.step(k)
            after = parity.assemble(team, list_masks(trainer))
            checkpoints.write(until, trainer.state(), corpus=parity_worker.CORPUS)
            if before and after:
                result = {
                    "journey": pattern,
                    "before": count_differing(before.values, alone[steps_taken]),
                    "after": count_differing(after.values, alone[until]),
                    "replicas": before.replicas_differ + after.replicas_differ,
                    "zeros": sum(float((mask == 0).sum()) for mask in after.values.values()),
                }
                results.append(result)
            steps_taken = until
    return results


def count_differing(ours: dict[str, Values], theirs: dict[str, Values]) -> int:
    """Count the elements that only one of two sets of masks keeps. A missing mask keeps all elements."""
    return sum(int((ours.get(name, np.ones(1)) != theirs.get(name, np.ones(1))).sum()) for name in {*ours, *theirs})


def main(part: str = "") -> None:
    """Run all suites of a part after a single start of the ranks, because each start takes a second."""
    comparisons = []
    if WORLD.rank == 0:  # listing them takes a second
        every = [comparison for suite in prune_cases.SUITES[part] for comparison in suite()]
        comparisons = list({comparison.name: comparison for comparison in every}.values())
    meet(WORLD)
    comparisons = WORLD.bcast(comparisons)
    with ExitStack() as patches:
        replacements = (("PLANTS", FAULTS), ("train", train), ("predicted", predict_bytes), ("errors", compute_errors))
        for name, value in replacements:
            patches.enter_context(patch.object(parity_worker, name, value))
        parity_worker.compare_all(comparisons, STEPS)
    if part:
        return
    run_transit_faults()
    meet(WORLD)
    team = WORLD.Split(WORLD.rank // 4, WORLD.rank)
    results = run_journeys(team, prune_cases.TRAVELLERS[WORLD.rank // 4 :: 2])
    meet(WORLD)
    for result in (result_of_rank for rank in WORLD.gather(results) or [] for result_of_rank in rank):
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
