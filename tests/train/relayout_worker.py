"""Worker that resumes runs in another layout on real ranks, and compares them with one process. The worker prints JSON
lines."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import parity
import shared_text
import torch
from mpi4py import MPI
from parity import meet
from small_runs import BASELINE, GPT2, NEOX, SIGNS, TRAIN, place_run

from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.experts import Experts
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import Model
from hpcbench.errors import UserError
from hpcbench.parallel.onebit import OneBitAdam
from hpcbench.train import checkpoint, checkpoint_load
from hpcbench.train.agreement import replicas_agree
from hpcbench.train.checkpoint import Checkpoints, carried
from hpcbench.train.checkpoint_index import Announced, Fragment, Index, fragments
from hpcbench.train.extent import Extent
from hpcbench.train.trainer import Trainer

WORLD = MPI.COMM_WORLD
BEFORE, STEPS = 2, 4
CORPUS = shared_text.corpus()

EXPERTS = GPT2.changed(name="experts", layers=2, experts=Experts(count=4, top=2, capacity=1.0, min_capacity=2))
# Adam divides by the gradient's size, so a small eps would amplify rounding in gradients that are zero in theory
SETTINGS = TRAIN.changed(steps=STEPS, seq_len=12, precision="fp64", seed=7, eps=1e-4, bucket_mb=0.05, overlap=False)


def run_of(model: Model, layout: Layout, scheme: NamedScheme = BASELINE, **settings: Any) -> Run:
    return place_run(layout, model=model, scheme=scheme, train=SETTINGS.changed(**settings))


CUBE = Layout(dp=2, tp=2, pp=2)
MATRIX: list[tuple[Model, tuple[Layout, dict[str, Any]], list[tuple[Layout, dict[str, Any]]]]] = [
    (
        NEOX,
        (CUBE, {}),
        [
            (Layout(tp=4, pp=2), {"zero": 0}),
            (Layout(dp=8), {}),
            (Layout(dp=2, pp=4), {"bucket_mb": 0.01}),
            (Layout(), {}),
            (CUBE, {"zero": 0}),
            (Layout(dp=4, tp=1, pp=2), {"zero": 3}),
        ],
    ),
    (
        NEOX,
        (Layout(dp=4, tp=2), {"zero": 3}),
        [(Layout(dp=4), {"zero": 0}), (Layout(dp=2, tp=2), {"zero": 3}), (CUBE, {})],
    ),
    (NEOX, (Layout(dp=4), {"zero": 0}), [(Layout(dp=2, tp=2), {}), (Layout(dp=2, tp=1, pp=4), {"micro_batch": 2})]),
    (
        GPT2,
        (CUBE, {"zero": 0}),
        [(Layout(dp=4, tp=1, pp=2), {}), (Layout(dp=1, tp=4), {}), (Layout(dp=1, tp=1, pp=3), {})],
    ),
    (GPT2, (Layout(), {}), [(Layout(dp=2, tp=1, pp=2), {}), (CUBE, {})]),
    (
        NEOX,
        (Layout(tp=8, tensor="3d"), {"micro_batch": 4}),
        [(Layout(tp=4, tensor="2d"), {"micro_batch": 2}), (Layout(dp=2), {})],
    ),
    (
        GPT2,
        (Layout(dp=2, tp=4, tensor="2d"), {"micro_batch": 2, "zero": 3}),
        [(Layout(tp=8, tensor="2.5d", depth=2), {"micro_batch": 4}), (CUBE, {})],
    ),
    (
        NEOX,
        (Layout(dp=2, cp=2, tp=2), {"zero": 3}),
        [(Layout(dp=2, tp=2), {}), (Layout(cp=2, context="ulysses", pp=2), {"zero": 0})],
    ),
    (GPT2, (CUBE, {}), [(Layout(cp=2, tp=2, pp=2, context="rsa"), {"zero": 2})]),
    (
        EXPERTS,
        (Layout(dp=4, tp=2, ep=2), {}),
        [(Layout(dp=4, ep=4), {"zero": 3}), (Layout(dp=2, tp=2), {"zero": 0}), (Layout(dp=2, tp=2, pp=2, ep=2), {})],
    ),
]
"""Runs: the model, the initial layout and its settings, and the layouts and settings with which the run resumes."""
OFTEN = (0, 3, 5, 7, 9)
"""Indices of runs whose first resume is part of `make test`: one run for each kind of layout."""


def label(layout: Layout, settings: dict[str, Any]) -> str:
    tensor = "" if layout.tensor == "1d" else f" {layout.tensor}"
    shared = f" cp{layout.cp} {layout.context}" if layout.cp > 1 else ""
    experts = f" ep{layout.ep}" if layout.ep > 1 else ""
    return f"dp{layout.dp}tp{layout.tp}pp{layout.pp}{tensor}{shared}{experts}" + "".join(
        f" {key}={value}" for key, value in settings.items()
    )


def spread(run: Run) -> MPI.Comm | None:
    """Return the communicator of the run's ranks, which are the first ranks of the world."""
    meet(WORLD)
    comm = WORLD.Split(0 if WORLD.rank < run.ranks else 1, WORLD.rank)
    return comm if WORLD.rank < run.ranks else None


def make_trainer(run: Run, comm: MPI.Comm) -> Trainer:
    return Trainer(run, comm.Dup(), Progress(Wait.GIVE_WAY, background=False), CORPUS)


def steps(trainer: Trainer, first: int, stop: int) -> list[float]:
    return [trainer.step(k).loss for k in range(first, stop)]


def tensors(comm: MPI.Comm, trainer: Trainer) -> dict[str, dict[str, np.ndarray[Any, Any]]] | None:
    """Return the weights, master weights and moments of the full model, on rank 0."""
    parts: dict[str, list[parity.Part]] = {}
    state = trainer.state()
    for fragment in fragments(state):
        shard = state["shards"][fragment.name]
        for field, values in fragment.fields.items():
            local = np.full(shard.local_shape, np.nan)
            local.reshape(-1)[fragment.extent.start :][: fragment.extent.length] = values.double().numpy()
            if fragment.kind != "residuals":
                parts.setdefault(field, []).append(parity.Part(shard, local))
    fields = {field: parity.assemble(comm, these) for field, these in sorted(parts.items())}
    return {field: tensor.values for field, tensor in fields.items() if tensor} if comm.rank == 0 else None


def begin(run: Run, directory: Path) -> Any:
    """Train some steps and write a checkpoint."""
    comm, saved = spread(run), None
    if comm is not None:
        trainer = make_trainer(run, comm)
        steps(trainer, 0, BEFORE)
        Checkpoints(directory, comm, run).write(BEFORE, trainer.state(), corpus=CORPUS)
        saved = tensors(comm, trainer)
    meet(WORLD)
    return saved


def continue_run(run: Run, directory: Path, before: Any, reference: Any) -> dict[str, Any] | None:
    """Train the remaining steps with another trainer, and return the result on rank 0."""
    comm = spread(run)
    if comm is None:
        return None
    trainer = make_trainer(run, comm)
    checkpoints = Checkpoints(directory, comm, run)
    newest = checkpoints.find().newest
    assert newest is not None
    opened: list[checkpoint_load.Files] = []

    def watched(path: Callable[[int], Path]) -> checkpoint_load.Files:
        opened.append(checkpoint_load.Files(path))
        return opened[0]

    with patch.object(checkpoint, "Files", watched):
        try:
            state = checkpoints.load(newest, trainer.state())
        except UserError as error:
            return {"error": str(error)} if comm.rank == 0 else None
    trainer.load(state)
    after = tensors(comm, trainer)
    losses = steps(trainer, newest.step, STEPS)
    agree = replicas_agree(trainer)
    final = tensors(comm, trainer)
    files = comm.gather(opened[0].opened)
    if after is None or final is None:
        return None
    expected_losses, expected = reference
    apart = [abs(a - b) / abs(b) for a, b in zip(losses, expected_losses[BEFORE:], strict=True)]
    errors = {field: parity.relative_error(final[field], expected[field])[0] for field in expected}
    return {
        "moved": [f"{f} {n}" for f in before for n in before[f] if not np.array_equal(before[f][n], after[f][n])],
        "fields": sorted(before),
        "loss": max(apart),
        **errors,
        "agree": agree,
        "files": files,
        "written": len(newest.holders),
        "carried": carried(newest, state) if newest.changed else "",
        "positions": newest.step,
    }


def matrix(directory: str, part: str) -> None:
    references: dict[str, Any] = {}
    for i, (model, (layout, settings), every) in enumerate(MATRIX):
        few = 1 if i in OFTEN else 0
        targets = every[:few] if part == "first" else every[few:]
        if not targets:
            continue
        where = Path(directory) / str(i)
        if model.name not in references and WORLD.rank == 0:
            trainer = make_trainer(run_of(model, Layout()), MPI.COMM_SELF)
            references[model.name] = steps(trainer, 0, STEPS), tensors(MPI.COMM_SELF, trainer)
        before = begin(run_of(model, layout, **settings), where)
        for to, changes in targets:
            answer = continue_run(run_of(model, to, **changes), where, before, references.get(model.name))
            if WORLD.rank == 0:
                names = {"model": model.name, "from": label(layout, settings), "to": label(to, changes)}
                print(json.dumps({**names, **(answer or {})}), flush=True)
            meet(WORLD)


# ---------------------------------------------------------------- residuals and seeds


def lacking(comm: MPI.Comm, trainer: Trainer) -> dict[str, np.ndarray[Any, Any]] | None:
    """Return the compression errors of all messages, summed for the full model, on rank 0.

    Errors of gradients are summed over replicas, over the copies of a tied weight, and over the tensor group if its
    ranks hold partial sums. Errors of momenta and of all other gradients are identical in a tensor group and are
    counted once.
    """
    own_tensors, state = [], trainer.state()
    one_bit = isinstance(trainer.data_parallel, OneBitAdam)
    for fragment in fragments(state):
        shard = state["shards"][fragment.name]
        summand = shard.partial or shard.copy == 0
        if fragment.kind == "residuals" and (shard.counts_in_norm if one_bit else summand):
            values = sum(field.double() for field in fragment.fields.values())
            assert isinstance(values, torch.Tensor)
            own_tensors.append((shard, values.view(shard.local_shape).numpy()))
    everything = comm.gather(own_tensors)
    if everything is None:
        return None
    total: dict[str, np.ndarray[Any, Any]] = {}
    for shard, values in (item for rank in everything for item in rank):
        total.setdefault(shard.name, np.zeros(shard.shape))[shard.held] += values
    return total


def spread_over(layout: Layout) -> tuple[Layout, dict[str, Any]]:
    return layout, {"sequence_parallel": True}


JOURNEYS: dict[str, list[tuple[Layout, dict[str, Any]]]] = {
    "experts": [(Layout(dp=4, tp=2, ep=2), {}), (Layout(dp=6, ep=2), {}), (Layout(dp=4), {})],
    "plain": [
        (CUBE, {}),
        (Layout(dp=4, tp=1, pp=2), {}),
        (Layout(dp=3, tp=2), {}),
        (Layout(dp=1, tp=2, pp=2), {}),
        (CUBE, {}),
    ],
    "spread": [
        spread_over(CUBE),
        (Layout(dp=4, tp=1, pp=2), {}),
        spread_over(Layout(dp=3, tp=2)),
        (Layout(dp=3, tp=2), {}),
        spread_over(Layout(dp=2, tp=2, pp=2)),
        spread_over(Layout(dp=2, tp=4)),
    ],
}
JOURNEYS["momenta"] = JOURNEYS["spread"][:3]
MOMENTA = NamedScheme(
    name="momenta",
    algorithm="encoded",
    default="none",
    rules=[Rule(dimension="DP", phase="STEP", kind="OPTIM", codec="sign:1024", feedback=True)],
)
ONE_BIT: dict[str, Any] = {"optimizer": "onebit-adam", "freeze_step": 1, "zero": 0, "clip": 0.0}
CASES: list[tuple[str, str | None, NamedScheme, dict[str, Any]]] = [
    ("plain", None, SIGNS, {}),
    ("spread", None, SIGNS, {}),
    ("spread", "sums_forgotten", SIGNS, {}),
    ("spread", "summands_counted_once", SIGNS, {}),
    ("momenta", None, MOMENTA, ONE_BIT),
    ("experts", None, SIGNS, {}),
]
"""Layouts by name, planted fault, scheme, and settings."""


def residuals(directory: str) -> None:
    """Compare the residuals of one layout with the residuals in other layouts, and again in the first layout."""
    for name, fault, scheme, settings in CASES:
        where = Path(directory) / f"{name}-{fault}"
        before: Any = None
        faulty = FAULTS_OF_RESIDUALS[fault] if fault else nullcontext
        legs = JOURNEYS[name][:2] if fault else JOURNEYS[name]  # one resume is enough to expose a fault
        for i, (layout, changes) in enumerate(legs):
            every = {"precision": "fp32", "zero": i % 2, "global_batch": 12, **changes, **settings}
            run = run_of(EXPERTS if name == "experts" else GPT2, layout, scheme, **every)
            comm = spread(run)
            if comm is not None:
                trainer = make_trainer(run, comm)
                checkpoints = Checkpoints(where, comm, run)
                newest = checkpoints.find().newest
                answer = None
                if newest is not None:
                    with faulty():
                        state = checkpoints.load(newest, trainer.state())
                    trainer.load(state)
                    now = lacking(comm, trainer)
                    calls = comm.gather(trainer.policy.calls())
                    if now and before:
                        error, worst = parity.relative_error(now, before)
                    else:
                        error, worst = 0.0, ""
                    carried_names = carried(newest, state)
                    answer = {
                        "error": error,
                        "worst": worst,
                        "carried": carried_names,
                        "calls": calls,
                        "most": newest.calls,
                    }
                if i < len(legs) - 1:
                    first = newest.step if newest else 0
                    stop = first + (1 if newest else 1 + bool(settings))  # freezing needs one step before it
                    steps(trainer, first, stop)
                    checkpoints.write(stop, trainer.state(), corpus=CORPUS)
                    before = lacking(comm, trainer)
                if answer and WORLD.rank == 0:
                    size = sum(float(np.abs(values).sum()) for values in (before or {}).values())
                    names = {"journey": name, "fault": fault, "to": label(layout, changes), "size": size}
                    print(json.dumps({**names, **answer}), flush=True)
            meet(WORLD)


# ---------------------------------------------------------------- planted faults


def sums_forgotten() -> Any:
    """In another layout, residuals of contributions are loaded, but residuals of sums are not."""
    share = checkpoint_load.share_residuals

    def faulty(state: dict[str, Any], index: Index, files: checkpoint_load.Files, holders: list[list[int]]) -> None:
        fields = checkpoint_load._fields
        with patch.object(checkpoint_load, "_fields", lambda *of: {"sent": fields(*of)["sent"]}):
            share(state, index, files, holders)

    return patch.object(checkpoint, "share_residuals", faulty)


@contextmanager
def slices_swapped() -> Iterator[None]:
    """Each rank declares that it holds the other half of the parameters that tensor parallelism cuts."""
    announce = checkpoint.announce

    def faulty(fragment: Fragment) -> Announced:
        true = announce(fragment)
        box = tuple(
            (size - stop, size - start) for size, (start, stop) in zip(true.shape, true.extent.box, strict=True)
        )
        return replace(true, extent=replace(true.extent, box=box))

    with patch.object(checkpoint, "announce", faulty):
        yield


@contextmanager
def moments_of_another() -> Iterator[None]:
    """A norm receives the moments of another norm in its layer."""
    fields = checkpoint_load._fields

    def faulty(file: dict[str, Any], fragment: Fragment) -> Any:
        if fragment.kind == "optimizer":
            other = fragment.name.replace("norm1.weight", "norm2.weight")
            values = fields(file, fragment)
            return {**values, **{key: file["optimizer"][other][key] for key in ("first", "second")}}
        return fields(file, fragment)

    with patch.object(checkpoint_load, "_fields", faulty):
        yield


@contextmanager
def index_stale() -> Iterator[None]:
    """The index describes the files of another ZeRO stage."""
    of = Index.of

    def faulty(announced: Any, chosen: Any) -> Index:
        index = of(announced, chosen)
        for entry in index.tables["optimizer"].values():
            entry["parts"] = [part for part in entry["parts"] if part[0] < 4]
        return index

    with patch.object(Index, "of", faulty):
        yield


@contextmanager
def halves_swapped() -> Iterator[None]:
    """The first and second replicas are swapped."""
    announce = checkpoint.announce

    def faulty(fragment: Fragment) -> Announced:
        true = announce(fragment)
        half = true.extent.length
        if true.kind == "optimizer" and 2 * half == Extent.of(tuple(slice(*pair) for pair in true.extent.box)).length:
            return replace(true, extent=replace(true.extent, start=half - true.extent.start))
        return true

    with patch.object(checkpoint, "announce", faulty):
        yield


def summands_counted_once() -> Any:
    """Partial sums of a gradient on the ranks of a tensor group are treated as copies."""
    share = checkpoint_load.share_residuals

    def faulty(state: dict[str, Any], index: Index, files: checkpoint_load.Files, holders: list[list[int]]) -> None:
        share(state, index, files, [[replica, 0, 0] for replica, _, _ in holders])

    return patch.object(checkpoint, "share_residuals", faulty)


FAULTS_OF_RESIDUALS: dict[str, Callable[[], Any]] = {
    "sums_forgotten": sums_forgotten,
    "summands_counted_once": summands_counted_once,
}
FAULTS: dict[str, Callable[[], Any]] = {
    "none": nullcontext,
    "slices_swapped": slices_swapped,
    "moments_of_another": moments_of_another,
    "index_stale": index_stale,
    "halves_swapped": halves_swapped,
}


def faults(directory: str) -> None:
    reference: Any = None
    if WORLD.rank == 0:
        trainer = make_trainer(run_of(NEOX, Layout()), MPI.COMM_SELF)
        reference = steps(trainer, 0, STEPS), tensors(MPI.COMM_SELF, trainer)
    for name, fault in FAULTS.items():
        with fault():
            # one bucket per parameter, which ZeRO cuts in halves
            before = begin(run_of(NEOX, CUBE, bucket_mb=1e-6), Path(directory) / name)
            answer = continue_run(run_of(NEOX, Layout(dp=2)), Path(directory) / name, before, reference)
        if WORLD.rank == 0:
            print(json.dumps({"fault": name, **(answer or {})}), flush=True)
        meet(WORLD)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
