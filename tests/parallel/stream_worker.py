"""Worker that trains with pipelines that are never flushed. The worker prints one JSON line per case."""

import io
import json
import math
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import parity
from cases import BASE
from delayed import simulate
from mpi4py import MPI
from parity import meet
from stream_cases import AFTER_RESUME, DIVERGED, FAULTY, GRID, RESUMED, Case

from hpcbench.comm.policy import Policy
from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.log_line import parse
from hpcbench.contract.run import Run
from hpcbench.contract.step_line import Step
from hpcbench.parallel.exact import exact_sum
from hpcbench.parallel.stream_pipeline import StreamPipeline
from hpcbench.parallel.versions import Versions
from hpcbench.train import text
from hpcbench.train.checkpoint import Checkpoints
from hpcbench.train.log import LogWriter
from hpcbench.train.loop import train, trainer_of
from hpcbench.train.streaming import StreamTrainer
from hpcbench.train.trainer import Trainer

WORLD = MPI.COMM_WORLD
CORPUS = text.load(BASE.data, BASE.train.seq_len)
History = list[tuple[float, dict[str, Any]]]


def make_trainer(run: Run, comm: MPI.Comm) -> Trainer:
    return trainer_of(run, comm.Dup(), Progress(Wait.GIVE_WAY, background=run.train.overlap), CORPUS)


def weights(trainer: Trainer, comm: MPI.Comm) -> dict[str, Any]:
    assembled = parity.assemble(comm, parity.parameters(trainer))
    return assembled.values if assembled else {}


def on(ranks: int, do: Callable[[MPI.Comm], Any]) -> Any:
    """Call a function on the first ranks of the world."""
    meet(WORLD)
    comm = WORLD.Split(0 if WORLD.rank < ranks else 1, WORLD.rank)
    return do(comm) if WORLD.rank < ranks else None


def trained(case: Case, comm: MPI.Comm) -> dict[str, Any]:
    """Return losses and newest weights after each step, and the weight versions that were used and stored."""
    trainer = make_trainer(case.run, comm)
    trainer.pipeline.keeps_record = True
    history: History = []
    for k in range(case.run.train.steps):
        result = trainer.step(k)
        trainer.versions.use(trainer.versions.newest)
        history.append((result.loss, weights(trainer, comm)))
    loss, _ = trainer.evaluate()
    sent = {f"{row.dimension} {row.phase} {row.kind}": row.message_bytes for row in trainer.traffic.report()}
    stage = trainer.mesh.pp.rank
    held = comm.allgather((stage, trainer.versions.most, trainer.pipeline.used, trainer.pipeline.most_alive))
    return {"history": history, "held": held, "bytes": sent, "evaluation": loss}


def simulated(case: Case, comm: MPI.Comm) -> dict[str, Any]:
    trainer = make_trainer(case.alone, comm)
    history: History = []
    for loss in simulate(case, trainer):
        (mean,) = exact_sum(trainer.mesh.dp, [loss / trainer.mesh.dp.size], trainer.policy.exact)
        history.append((mean, weights(trainer, comm)))
    return {"history": history, "evaluation": trainer.evaluate()[0]}


def compare(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    worst = loss_off = 0.0
    other = False
    for (loss, actual), (expected, wanted) in zip(ours["history"], theirs["history"], strict=True):
        worst = max(worst, parity.relative_error(actual, wanted)[0])
        other |= any(not np.array_equal(actual[name], wanted[name]) for name in wanted)
        loss_off = max(loss_off, abs(loss - expected) / expected)
    off = abs(ours["evaluation"] - theirs["evaluation"]) / theirs["evaluation"]
    return {"weights": worst, "other_bits": other, "loss": loss_off, "evaluation": off}


# ---------------------------------------------------------------- planted faults


def newest_in_the_backward_pass() -> object:
    """A backward pass uses the newest weights."""

    def faulty(self: StreamPipeline, i: int) -> None:
        flight = self._flights.pop(i)
        self._versions.use(self._versions.newest)
        self._backward(flight.alive, i, 0)

    return patch.object(StreamPipeline, "_leave", faulty)


def never_stashed() -> object:
    """Updates modify the only copy of the weights."""

    def faulty(self: Versions, *, keep: bool) -> None:
        self._stashed[self.newest] = list(self._flats)

    def use(self: Versions, version: int) -> None:
        return

    return _both(patch.object(Versions, "begin_update", faulty), patch.object(Versions, "use", use))


def newest_everywhere() -> object:
    """A stage ignores the version in the message header."""
    return _versions(lambda self: self._versions.newest)


def newest_with_two_buffers() -> object:
    """A micro-batch starts with the newest weights, although its step started with older weights."""
    return _versions(lambda self: self._versions.newest)


def _versions(chosen: Callable[[StreamPipeline], int]) -> object:
    use, enter = Versions.use, StreamPipeline._enter

    def faulty(self: StreamPipeline, i: int, *others: Any) -> None:
        with patch.object(Versions, "use", lambda versions, _: use(versions, chosen(self))):
            enter(self, i, *others)
        self._flights[i] = self._flights[i]._replace(version=chosen(self))

    return patch.object(StreamPipeline, "_enter", faulty)


@contextmanager
def _both(*patches: Any) -> Iterator[None]:
    with patches[0], patches[1]:
        yield


def version_off_by_one() -> object:
    """After a resume, each stashed version is replaced by the previous version."""
    return _stashes(lambda entry, delay: entry["values" if delay == 1 else f"delay {delay - 1}"])


def versions_lost() -> object:
    """After a resume, all versions equal the newest version."""
    return _stashes(lambda entry, delay: entry["values"])


def _stashes(chosen: Callable[[dict[str, Any], int], Any]) -> object:
    load = StreamTrainer.load

    def faulty(self: StreamTrainer, state: dict[str, Any]) -> None:
        wrong = {
            name: {
                key: chosen(entry, int(key.removeprefix("delay "))) if key.startswith("delay ") else value
                for key, value in entry.items()
            }
            for name, entry in state["parameters"].items()
        }
        load(self, {**state, "parameters": wrong})

    return patch.object(StreamTrainer, "load", faulty)


def flights_with_other_seeds() -> object:
    """Forward passes are repeated with the random seeds of later forward passes."""
    load, load_calls = StreamTrainer.load, Policy.load_calls

    def faulty(self: StreamTrainer, state: dict[str, Any]) -> None:
        last = {name: count for name, count in state["calls"].items() if not name.startswith("@")}
        with patch.object(Policy, "load_calls", lambda policy, _: load_calls(policy, last)):
            load(self, state)

    return patch.object(StreamTrainer, "load", faulty)


FAULTS = {
    fault.__name__: fault
    for fault in (
        newest_in_the_backward_pass,
        never_stashed,
        newest_everywhere,
        newest_with_two_buffers,
        version_off_by_one,
        versions_lost,
        flights_with_other_seeds,
    )
}


# ---------------------------------------------------------------- scenarios


def schedules() -> None:
    references: dict[str, Any] = {}
    for fault, case in [*((None, case) for case in GRID), *FAULTY.items()]:
        if case.name not in references:
            references[case.name] = on(case.alone.ranks, lambda comm, case=case: simulated(case, comm))
        with FAULTS[fault]() if fault else nullcontext():
            results = on(case.layout.ranks, lambda comm, case=case: trained(case, comm))
        if WORLD.rank == 0:
            answer = {"fault": fault, "case": case.name, "held": results["held"], "bytes": results["bytes"]}
            print(json.dumps({**answer, **compare(results, references[case.name])}), flush=True)


def resumed(case: Case, directory: Path, comm: MPI.Comm) -> dict[str, Any]:
    """Compare an uninterrupted run with a run that a second trainer resumes from a checkpoint."""
    run = case.run.changed(train=case.run.train.changed(checkpoint_every=4))
    streams = [io.StringIO() for _ in range(3)]
    uninterrupted = make_trainer(run, comm)
    outcomes = [train(uninterrupted, LogWriter(streams[0]))]
    checkpoints = Checkpoints(directory, comm.Dup(), run)
    first = make_trainer(run, comm)
    outcomes.append(train(first, LogWriter(streams[1]), checkpoints=checkpoints))
    second = make_trainer(run, comm)
    newest = checkpoints.find().newest
    assert newest is not None and newest.step == 4
    second.load(checkpoints.load(newest, second.state()))
    outcomes.append(train(second, LogWriter(streams[2]), taken=newest.step))
    same = [
        all(np.array_equal(a[name], b[name]) for name in a)
        for a, b in ((weights(uninterrupted, comm), weights(t, comm)) for t in (first, second))
    ]
    return {"states": [state for state, _, _ in outcomes], "same": same, "used": uninterrupted.versions.newest}


def resumes() -> None:
    directory = Path(WORLD.bcast(tempfile.mkdtemp()))
    for k, (fault, case) in enumerate([*((None, case) for case in RESUMED), *AFTER_RESUME.items()]):

        def both(comm: MPI.Comm, k: int = k, fault: str | None = fault, case: Case = case) -> Any:
            with FAULTS[fault]() if fault else nullcontext():
                return resumed(case, directory / str(k), comm)

        results = on(case.layout.ranks, both)
        if WORLD.rank == 0:
            print(json.dumps({"resume": case.name, "fault": fault, **results}), flush=True)


def diverges() -> None:
    """Print the log of a run that ends because one stage's loss or gradient norm is not finite."""
    timed = StreamTrainer._timed
    for case, stage, field, step in DIVERGED:

        def planted(self: StreamTrainer, k: int, stage: int = stage, field: str = field, step: int = step) -> Any:
            step_result = timed(self, k)
            here = k + 1 == step and self.mesh.pp.rank == stage % self.mesh.pp.size
            return replace(step_result, **{field: math.nan}) if here else step_result

        def logged(comm: MPI.Comm, case: Case = case) -> list[Any]:
            stream = io.StringIO()
            with patch.object(StreamTrainer, "_timed", planted):
                ending = train(make_trainer(case.run, comm), LogWriter(stream))
            records = [parse(line, i) for i, line in enumerate(stream.getvalue().splitlines(), 1)]
            lines = [record for record in records if isinstance(record, Step)]
            return [*ending, [line.step for line in lines if not math.isfinite(line.loss)]]

        results = on(case.layout.ranks, logged)
        if WORLD.rank == 0:
            where = [case.name, stage, field, step]
            print(json.dumps({"fault": "not finite", "diverges": where, "found": results}), flush=True)


if __name__ == "__main__":
    schedules()
    resumes()
    diverges()
