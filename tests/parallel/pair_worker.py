"""Worker that trains the cases of pairs.json as a job does, and compares them with one process. The worker prints JSON
lines."""

import io
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pair_cases
import parity
import shared_text
from mpi4py import MPI
from parity import meet

from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.run import Run
from hpcbench.features.messages.observer import MessageObserver
from hpcbench.features.trace.observer import TraceObserver
from hpcbench.train import loop, stop
from hpcbench.train.checkpoint import Checkpoints
from hpcbench.train.log import LogWriter
from hpcbench.train.milestones import Milestones
from hpcbench.train.step_result import StepResult
from hpcbench.train.trainer import Trainer

WORLD = MPI.COMM_WORLD
CORPUS = shared_text.corpus()

History = dict[str, Any]


def train(run: Run, comm: MPI.Comm) -> History | None:
    """Train, and return on rank 0 the state, losses, norms, gradients of each step, weights and evaluation."""
    meet(comm)
    directory = Path(comm.bcast(tempfile.mkdtemp(prefix="pairs") if comm.rank == 0 else None))
    log = LogWriter(io.StringIO() if comm.rank == 0 else None)
    progress = Progress(Wait.GIVE_WAY, background=run.train.overlap)
    checkpoints = Checkpoints(directory / "checkpoint", comm, run)
    gradients: list[parity.Whole] = []
    results: list[StepResult] = []
    stops = run.train.checkpoint_every > 0
    taken, ended, trainer = 0, None, None
    while ended is None or ended[0] == "stopped":
        if trainer:
            trainer.mesh.free()
        trainer = loop.trainer_of(run, comm, progress, CORPUS)
        if newest := checkpoints.find().newest if stops else None:
            trainer.load(checkpoints.load(newest, trainer.state()))
            taken = newest.step
        with noting(results, gradients, comm):
            ended = loop.train(
                trainer,
                log,
                taken=taken,
                checkpoints=checkpoints,
                told_to_stop=(lambda: True) if stops and ended is None and comm.rank == 0 else stop.never,
                observers=[
                    TraceObserver(trainer, comm, progress, "here", directory),
                    MessageObserver(trainer, directory),
                ],
            )
        meet(comm)
    assert trainer is not None
    weights = parity.assemble(comm, parity.parameters(trainer))
    padding = max(comm.allgather(parity.padding(trainer)))
    evaluation, tokens = trainer.evaluate()
    meet(comm)
    trainer.mesh.free()
    if comm.rank == 0:
        shutil.rmtree(directory)
    if weights is None:
        return None
    averaged = run.train.freeze_step  # after the freeze step, 1-bit Adam averages momenta, and gradients remain local
    return {
        "state": ended[0],
        "losses": [result.loss for result in results],
        "norms": [result.gradient_norm for result in results][:averaged],
        "gradients": gradients[:averaged],
        "weights": weights,
        "evaluation": evaluation,
        "tokens": tokens,
        "padding": padding,
    }


@contextmanager
def noting(results: list[StepResult], gradients: list[parity.Whole], comm: MPI.Comm) -> Iterator[None]:
    """Record the results of steps, and the gradients before each update, because an update clips them.

    In asynchronous training, no step combines the gradients of all ranks.
    """
    update, line = Trainer.update, Milestones.line

    def noted(self: Trainer, step: int) -> tuple[float, float]:
        assembled = parity.assemble(comm, parity.gradients(self))
        if assembled:
            gradients.append(assembled)
        return update(self, step)

    def written(self: Milestones, step: int, result: StepResult, **others: Any) -> None:
        results.append(result)
        line(self, step, result, **others)

    with patch.object(Trainer, "update", noted), patch.object(Milestones, "line", written):
        yield


def far(ours: float | None, theirs: float | None) -> float:
    """Return the relative difference, or None if a value is unknown."""
    if ours is None or theirs is None or math.isnan(ours) or math.isnan(theirs):
        return 0.0
    return abs(ours - theirs) / abs(theirs)


def errors(ours: History, theirs: History) -> dict[str, Any]:
    """Return the largest differences over all steps."""
    worst: dict[str, Any] = {}
    result = {"gradients": 0.0, "replicas": ours["weights"].replicas_differ}
    for mine, other in zip(ours["gradients"], theirs["gradients"], strict=False):
        error, tensor = parity.relative_error(mine.values, other.values)
        if error >= result["gradients"]:
            result["gradients"], worst["gradients"] = error, tensor
    result["weights"], worst["weights"] = parity.relative_error(ours["weights"].values, theirs["weights"].values)
    steps = list(zip(ours["losses"], theirs["losses"], strict=True))
    return {
        **result,
        "loss": max(far(*pair) for pair in steps),
        "norm": max(far(*pair) for pair in zip(ours["norms"], theirs["norms"], strict=True)),
        "evaluation": far(ours["evaluation"], theirs["evaluation"]),
        "padding": ours["padding"],
        "same_tokens": ours["tokens"] == theirs["tokens"],
        "state": ours["state"],
        "steps": len(steps),
        "worst": worst,
    }


def compared(
    cases: list[pair_cases.Pairs], team: MPI.Comm, references: dict[str, History | None]
) -> list[dict[str, Any]]:
    """Run the cases on a team of ranks, and return the results on its rank 0.

    Cached `references` are not trained again.
    """
    results = []
    for case in cases:
        against = case.reference
        key = against.model_dump_json()
        if key not in references:
            comm = team.Split(0 if team.rank < against.ranks else 1, team.rank)
            references[key] = train(against, comm) if team.rank < against.ranks else None
        history, reference = train(case.run, team), references[key]
        if history and reference:
            results.append({"name": case.name, **errors(history, reference)})
    return results


def compare_all(cases: list[pair_cases.Pairs]) -> None:
    """Run the cases. Teams of ranks work in parallel."""
    results = []
    for ranks in sorted({case.run.ranks for case in cases}):
        mine = [case for case in cases if case.run.ranks == ranks]
        teams = WORLD.size // ranks
        meet(WORLD)
        index = WORLD.rank // ranks
        team = WORLD.Split(index, WORLD.rank)
        if index < teams:
            results += compared(mine[index::teams], team, {})
    meet(WORLD)
    for rank in WORLD.gather(results) or []:
        for result in rank:
            print(json.dumps(result), flush=True)


def main(part: str) -> None:
    compare_all(pair_cases.parts()[part])


if __name__ == "__main__":
    main(*sys.argv[1:])
