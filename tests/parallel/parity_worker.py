"""Worker that compares training in many layouts with a reference run. The worker prints one JSON line per case."""

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import parity
import shared_text
import torch
from cases import (
    COVERS,
    FEWER_STEPS,
    MOST_RANKS,
    RUN_FOR_RESIDUALS,
    STEPS,
    SUITES,
    WHOLE,
    Comparison,
    faulty,
    run_of,
    select_once,
    select_rest,
)
from faults import FAULTS, OVERFLOW, RESIDUALS
from mpi4py import MPI
from parity import meet
from tiers import REST

from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.run import Run
from hpcbench.parallel.data_parallel import DataParallel
from hpcbench.parallel.exact import exact_sum
from hpcbench.predict import volume
from hpcbench.train.agreement import replicas_agree
from hpcbench.train.precision import LossScale
from hpcbench.train.trainer import Trainer

WORLD = MPI.COMM_WORLD
CORPUS = shared_text.corpus()
SCALE = 2.0**12
"""Scale applied to every loss. A power of two causes no rounding, and an error in unscaling changes the results."""

PLANTS = {name: fault.plant for name, fault in FAULTS.items()}
"""Faults of the suite by name. Workers of other suites replace these faults."""

History = list[dict[str, Any]]


def make_trainer(run: Run, comm: MPI.Comm) -> Trainer:
    return Trainer(run, comm, Progress(Wait.GIVE_WAY, background=run.train.overlap), CORPUS)


def train(run: Run, comm: MPI.Comm, steps: int) -> History | None:
    """Train, and return the loss, gradients and weights after each step on rank 0."""
    meet(comm)
    trainer = make_trainer(run, comm)
    begun: list[bool] = []
    sent = Counter[str]()
    history = []
    for k in range(steps):
        with patch.object(DataParallel, "reduce_gradients", record_begun(begun)), counting(trainer, sent):
            summand = trainer.backward(k)
        (loss,) = exact_sum(trainer.mesh.world, [summand], trainer.policy.exact)
        gradients = parity.assemble(comm, parity.gradients(trainer))  # before clipping, which would hide a wrong scale
        with counting(trainer, sent):
            _, norm = trainer.update(k)
        weights = parity.assemble(comm, parity.parameters(trainer))
        agree = replicas_agree(trainer)
        meet(comm)
        padding = max(comm.allgather(parity.padding(trainer)))
        if gradients and weights:
            history.append(
                {
                    "loss": loss,
                    "norm": norm,
                    "gradients": gradients,
                    "weights": weights,
                    "agree": agree,
                    "padding": padding,
                }
            )
    evaluation, tokens = trainer.evaluate()
    meet(comm)
    everyones = comm.gather(dict(sent))
    last = {"evaluation": evaluation, "tokens": tokens, "early": sum(begun), "sent": everyones}
    return [*history, last] if history else None


@contextmanager
def counting(trainer: Trainer, sent: Counter[str]) -> Iterator[None]:
    """Add the message bytes sent during the block, by channel. Messages of the comparison are excluded."""

    def counters() -> Counter[str]:
        channels = trainer.policy.channels
        return Counter({" ".join(channel.traffic): channel.counters.message_bytes for channel in channels})

    before = counters()
    yield
    sent.update(counters() - before)


def predicted(run: Run, steps: int) -> list[dict[str, int]]:
    """Return the number of bytes that each rank is expected to send, computed from the settings."""
    ranks = (volume.count_step_bytes(run.model, run.train, run.layout, rank) for rank in range(run.ranks))
    return [{" ".join(key): steps * nbytes for key, nbytes in step.items()} for step in ranks]


def record_begun(begun: list[bool]) -> Callable[[DataParallel], None]:
    """Record whether the reduction of each bucket had begun before the backward pass ended."""
    reduce_gradients = DataParallel.reduce_gradients

    def noted(self: DataParallel) -> None:
        begun.extend(piece.reduction is not None for piece in self.pieces)
        reduce_gradients(self)

    return noted


def errors(history: History, reference: History) -> dict[str, Any]:
    """Return the largest errors over all steps."""
    largest: dict[str, float] = dict.fromkeys(("loss", "norm", "gradients", "weights", "replicas", "padding"), 0.0)
    worst = {}
    for ours, theirs in zip(history[:-1], reference[:-1], strict=True):
        for name in ("loss", "norm"):
            largest[name] = max(largest[name], abs(ours[name] - theirs[name]) / abs(theirs[name]))
        for name in ("gradients", "weights"):
            error, tensor = parity.relative_error(ours[name].values, theirs[name].values)
            if error >= largest[name]:
                largest[name], worst[name] = error, tensor
            largest["replicas"] = max(largest["replicas"], ours[name].replicas_differ)
        largest["padding"] = max(largest["padding"], ours["padding"])
    final, expected = history[-1], reference[-1]
    return {
        **largest,
        "evaluation": abs(final["evaluation"] - expected["evaluation"]) / expected["evaluation"],
        "worst": worst,
        "agree": all(step["agree"] for step in history[:-1]),
        "same_tokens": final["tokens"] == expected["tokens"],
        "early": [final["early"], expected["early"]],
        "sent": final["sent"],
    }


def compare_team(comparisons: list[Comparison], team: MPI.Comm, steps: int) -> list[dict[str, Any]]:
    """Run the comparisons on a team of ranks, and return the results on its rank 0. References are trained once."""
    references: dict[str, History | None] = {}
    results = []
    for comparison in comparisons:
        against = comparison.reference
        key = against.model_dump_json()
        if key not in references:
            alone = against.ranks == 1
            comm = MPI.COMM_SELF if alone else team.Split(0 if team.rank < against.ranks else 1, team.rank)
            references[key] = train(against, comm, steps) if team.rank < against.ranks else None
        with PLANTS[comparison.fault]() if comparison.fault else nullcontext():
            history = train(comparison.run, team, steps)
        reference = references[key]
        if history and reference:
            fields = {"name": comparison.name, "steps": steps, "predicted": predicted(comparison.run, steps)}
            results.append({**fields, **errors(history, reference)})
    return results


def compare_all(comparisons: list[Comparison], steps: int) -> None:
    """Run the comparisons for `steps` steps each. Teams of ranks work in parallel."""
    results = []
    for ranks in sorted({comparison.ranks for comparison in comparisons}):
        mine = [comparison for comparison in comparisons if comparison.ranks == ranks]
        teams = MOST_RANKS // ranks
        meet(WORLD)
        index = WORLD.rank // ranks
        team = WORLD.Split(index, WORLD.rank)
        if index < teams:
            results += compare_team(mine[index::teams], team, steps)
    meet(WORLD)
    for rank in WORLD.gather(results) or []:
        for result in rank:
            print(json.dumps(result), flush=True)


def residuals() -> dict[str, Any]:
    """Check the residuals after a few steps, after loading them with other bucket sizes, and after a skipped step."""
    run = run_of(RUN_FOR_RESIDUALS)
    first = make_trainer(run, WORLD)
    for k in range(2):
        first.step(k)
    saved = first.data_parallel.residuals()
    second = make_trainer(run.changed(train=run.train.changed(bucket_mb=run.train.bucket_mb / 3)), WORLD)
    second.data_parallel.load_residuals(saved)
    taken = second.data_parallel.residuals()
    with patch.object(DataParallel, "gradient_norm", lambda self: math.nan):
        first.step(2)
    left = first.data_parallel.residuals()
    return {
        "parameters": sorted(saved) == sorted(item.shard.name for item in first.held),
        "buckets": [len(trainer.data_parallel.pieces) for trainer in (first, second)],
        "equal": all(torch.equal(taken[name][kind], saved[name][kind]) for name in saved for kind in saved[name]),
        "sizes": min(sum(float(saved[name][kind].norm()) for name in saved) for kind in ("sent", "summed")),
        "after_skipping": sum(float(left[name][kind].norm()) for name in left for kind in left[name]),
    }


def overflow() -> dict[str, Any]:
    """Run a step in which only the last part of the last stage has an infinite value in its gradient."""
    trainer = make_trainer(run_of({**WHOLE, "train.zero": 0}), WORLD)
    mesh = trainer.mesh
    trainer.backward(0)
    if mesh.last_stage and mesh.tp.rank == mesh.tp.size - 1:
        split = next(piece for piece in trainer.data_parallel.pieces if piece.bucket.slots[0].shard.replicated == ())
        split.gradient[0] = math.inf
    before = [parameter.detach().clone() for parameter, _ in trainer.held]
    trainer.update(0)
    same = all(torch.equal(old, parameter) for old, (parameter, _) in zip(before, trainer.held, strict=True))
    return {"skipped": trainer.skipped, "unchanged": same}


def print_every_rank(scene: Callable[[], dict[str, Any]], test: str) -> None:
    """Print one line per rank without faults, and one with each fault that the test must detect."""
    for fault in (None, *(name for name, fault in FAULTS.items() if fault.red == test)):
        meet(WORLD)
        with PLANTS[fault]() if fault else nullcontext():
            answer = scene()
        meet(WORLD)
        answers = WORLD.gather(answer)
        for answer in answers or []:
            print(json.dumps({"fault": fault, **answer}), flush=True)


def choose_comparisons(suite: str, part: str) -> list[Comparison]:
    """Return the comparisons of one part of a suite: those of `make test`, or the rest.

    Suites of faults are not divided.
    """
    comparisons = list(SUITES[suite]())
    if suite == faulty.__name__:
        return comparisons
    return select_rest(comparisons) if part == REST else select_once(comparisons)


def main(suite: str, part: str = "") -> None:
    scale_of = LossScale.of
    with patch.object(LossScale, "of", lambda *given, **named: replace(scale_of(*given, **named), value=SCALE)):
        if suite == "residuals":
            print_every_rank(residuals, RESIDUALS)
        elif suite == "overflow":
            print_every_rank(overflow, OVERFLOW)
        else:
            chosen = choose_comparisons(suite, part) if WORLD.rank == 0 else None  # the search takes a second
            meet(WORLD)
            compare_all(WORLD.bcast(chosen), STEPS if suite in COVERS else FEWER_STEPS)


if __name__ == "__main__":
    main(*sys.argv[1:])
