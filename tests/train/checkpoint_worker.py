"""Runs that stop and go on, and checkpoints that are killed or damaged, on real ranks; prints JSON lines."""

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from mpi4py import MPI

from hpcbench.comm.policy import Policy
from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.errors import UserError
from hpcbench.parallel import gradients
from hpcbench.parallel.data_parallel import DataParallel
from hpcbench.parallel.layout import Layout
from hpcbench.parallel.sharding import Shard
from hpcbench.train import checkpoint_files as files
from hpcbench.train import text
from hpcbench.train.__main__ import train
from hpcbench.train.checkpoint import Checkpoints
from hpcbench.train.config import Data, Model, Run, Scheme, SchemeRule, Train
from hpcbench.train.corpus import Corpus
from hpcbench.train.log import RunLog
from hpcbench.train.precision import LossScale
from hpcbench.train.stop import never
from hpcbench.train.trainer import Trainer

WORLD = MPI.COMM_WORLD
STEPS, STOP = 5, 2
CORPUS = text.load_shared(WORLD, Progress(Wait.GIVE_WAY), Data("stdlib", None, 0.1), 12)

NEOX = Model("neox", 2, 40, 4, 256, "rotary", 0.4, parallel_residual=True, tied=False)
GPT2 = Model("gpt2", 2, 32, 4, 256, "learned", 0.0, parallel_residual=False, tied=True)
BASELINE = Scheme("baseline", "native", "none", [])
SIGNS = Scheme("signs", "encoded", "none", [SchemeRule("DP", None, None, "sign:1024", feedback=True)])
ONEBIT = replace(SIGNS, rules=[SchemeRule("DP", None, "OPTIM", "sign:1024", feedback=True)], optimizer="onebit-adam")
ROUNDED = Scheme("rounded", "two-shot", "int8:256:stochastic", [])
SETTINGS = Train(STEPS, 1, 4, 1, 12, "fp32", 1, 7, 1e-2, 1e-3, 0.9, 0.95, 1e-8, 0.01, 1.0, 0.05, True, 2, 4)


def run_of(layout: Layout, scheme: Scheme = BASELINE, model: Model = NEOX, **settings: Any) -> Run:
    data = Data("stdlib", None, 0.1)
    chosen = replace(SETTINGS, **settings)
    return Run(
        1, "s", "local", "r", 1, "r1", {}, model, data, chosen, layout, scheme, layout.ranks, 1, True, "cpu", None
    )


CASES = {
    "dp2-fp64-zero0": run_of(Layout(2), precision="fp64", zero=0),
    "dp2-fp16-zero1-overflow": run_of(Layout(2), precision="fp16"),
    "dp2-fp32-zero0-feedback": run_of(Layout(2), SIGNS, zero=0),
    "dp2-fp32-zero1-feedback": run_of(Layout(2), SIGNS),
    "dp2-tp2-fp32-zero1-stochastic": run_of(Layout(2, 2), ROUNDED),
    "dp2-tp2-bf16-zero1-feedback": run_of(Layout(2, 2), SIGNS, precision="bf16"),
    "dp2-tp2-fp32-zero0-onebit": run_of(Layout(2, 2), ONEBIT, zero=0, optimizer="onebit-adam", freeze_step=1),
    "pp2-fp64-zero1-tied": run_of(Layout(pp=2), model=GPT2, precision="fp64"),
    "pp2-fp16-zero0-overflow": run_of(Layout(pp=2), model=GPT2, precision="fp16", zero=0),
}


def overflowing(cls: type[LossScale], train: Train) -> LossScale:
    """A scale that the first steps skip for, and that doubles soon after."""
    return cls(2.0**19, window=2) if train.precision == "fp16" else cls(1.0, window=0)


def trainer_of(run: Run, comm: MPI.Comm) -> Trainer:
    with patch.object(LossScale, "of", classmethod(overflowing)):
        return Trainer(run, comm, Progress(Wait.GIVE_WAY, background=run.train.overlap), CORPUS)


def lines(stream: io.StringIO) -> list[str]:
    """What the log says of losses and bytes; times differ."""
    found = []
    for line in stream.getvalue().splitlines():
        if line.startswith("step "):
            parts = line.split(" | ")
            timed = ("time ", "samples/s ", "model ", "hardware ")
            found.append(" | ".join(part for part in parts if not part.startswith(timed)))
        elif line.startswith('{"event": "evaluation"'):
            found.append(line)
    return found


def differences(a: Any, b: Any, name: str = "") -> list[str]:
    """Names of the leaves that differ in any bit."""
    if isinstance(a, dict):
        if a.keys() != b.keys():
            return [name]
        return [found for key in a for found in differences(a[key], b[key], f"{name}/{key}")]
    same = a.dtype == b.dtype and torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
    return [] if same else [name]


def compare(name: str, run: Run, directory: Path) -> dict[str, Any] | None:
    """All steps at once against some steps, a checkpoint, and the others by another trainer; on every rank."""
    comm = WORLD.Split(0 if WORLD.rank < run.ranks else 1, WORLD.rank)
    if WORLD.rank >= run.ranks:
        return None
    streams = [io.StringIO() for _ in range(3)]
    whole = trainer_of(run, comm.Dup())
    outcome = [train(whole, RunLog(streams[0]))]
    checkpoints = Checkpoints(directory / name, comm, run)
    first = trainer_of(run, comm.Dup())
    asked = iter(range(1, STEPS + 1))
    told = (lambda: next(asked) == STOP) if comm.rank == 0 else never
    outcome.append(train(first, RunLog(streams[1]), checkpoints=checkpoints, told_to_stop=told))
    second = trainer_of(run, comm.Dup())
    newest = checkpoints.find().newest
    assert newest is not None
    second.load(checkpoints.load(newest, second.state()))
    at_once = differences(second.state(), first.state())
    outcome.append(train(second, RunLog(streams[2]), taken=newest.step))
    return {
        "case": name,
        "states": [state for state, _, _ in outcome],
        "steps": [steps for _, _, steps in outcome],
        "reloaded": at_once,
        "weights": differences(second.state(), whole.state()),
        "whole": lines(streams[0]),
        "parts": lines(streams[1]) + lines(streams[2]),
        "skipped": whole.skipped,
        "scale": whole.state()["loss_scale"]["value"],
        "residual": sum(float(r["sent"].abs().sum()) for r in whole.data_parallel.residuals().values()),
    }


def tell(answer: Any) -> None:
    """Print each rank's answer."""
    for each in WORLD.gather(answer) or []:
        if each is not None:
            print(json.dumps(each), flush=True)


def exact(directory: str) -> None:
    for name, run in CASES.items():
        tell(compare(name, run, Path(directory)))


# ---------------------------------------------------------------- planted faults


def residuals_lost() -> object:
    """What messages lacked before the checkpoint is forgotten."""
    return patch.object(DataParallel, "load_residuals", lambda self, saved: None)


def moments_lost() -> object:
    """Adam's variance begins anew."""
    load = DataParallel.load_optimizer

    def faulty(self: DataParallel, saved: dict[str, dict[str, Any]], *, updates: int) -> None:
        load(self, saved, updates=updates)
        for piece in self.pieces:
            piece.adam.second.zero_()

    return patch.object(DataParallel, "load_optimizer", faulty)


def updates_lost() -> object:
    """Adam corrects its moments as if it had taken no step."""
    load = DataParallel.load_optimizer

    def faulty(self: DataParallel, saved: dict[str, dict[str, Any]], *, updates: int) -> None:
        load(self, saved, updates=0)

    return patch.object(DataParallel, "load_optimizer", faulty)


def loss_scale_lost() -> object:
    """The loss scale is that of the first step."""
    load = Trainer.load

    def faulty(self: Trainer, state: dict[str, Any]) -> None:
        fresh = self._scale
        load(self, state)
        self._scale = fresh

    return patch.object(Trainer, "load", faulty)


def seeds_lost() -> object:
    """Random rounding draws the numbers of the first step again."""
    return patch.object(Policy, "load_calls", lambda self, saved: None)


def masters_rounded() -> object:
    """The master weights are taken from the weights."""
    load = DataParallel.load_optimizer

    def faulty(self: DataParallel, saved: dict[str, dict[str, Any]], *, updates: int) -> None:
        load(self, saved, updates=updates)
        for piece in self.pieces:
            piece.master.copy_(piece.bucket.values[piece.owned])

    return patch.object(DataParallel, "load_optimizer", faulty)


def padding_kept() -> object:
    """Padding has a gradient and residuals, which no parameter's name finds again."""
    return patch.object(gradients, "clear_padding", lambda piece: None)


FAULTS: dict[str, tuple[Callable[[], object], str]] = {
    "residuals_lost": (residuals_lost, "dp2-fp32-zero1-feedback"),
    "moments_lost": (moments_lost, "dp2-fp64-zero0"),
    "updates_lost": (updates_lost, "dp2-fp64-zero0"),
    "loss_scale_lost": (loss_scale_lost, "dp2-fp16-zero1-overflow"),
    "seeds_lost": (seeds_lost, "dp2-tp2-fp32-zero1-stochastic"),
    "masters_rounded": (masters_rounded, "dp2-tp2-bf16-zero1-feedback"),
    "padding_kept": (padding_kept, "dp2-fp32-zero1-feedback"),
}


def faults(directory: str) -> None:
    for name, (fault, case) in FAULTS.items():
        with fault():  # type: ignore[attr-defined]
            found = compare(case, CASES[case], Path(directory) / name)
        tell(found and {**found, "fault": name})


# ---------------------------------------------------------------- files: toy states, no training

TOY = run_of(Layout(2))
TEXT = Corpus(np.zeros(9, np.uint8), np.ones(9, np.uint8))


def toy_state(step: int) -> dict[str, Any]:
    """Each rank has its half of one tensor, and what both have alike."""
    shard = Shard("weights", (100_000,), 0, WORLD.rank, 2)
    return {
        "parameters": {"weights": torch.full((50_000,), float(100 * step + WORLD.rank))},
        "optimizer": {},
        "residuals": {},
        "calls": {"DP BACKWARD GRAD": 10 * step + WORLD.rank},
        "updates": step,
        "shards": {"weights": shard},
        "replica": WORLD.rank,
        "replicas": 2,
    }


def write(directory: Path, *steps: int, run: Run = TOY) -> Checkpoints:
    checkpoints = Checkpoints(directory, WORLD, run)
    for step in steps:
        checkpoints.write(step, toy_state(step), corpus=TEXT)
    return checkpoints


def found_in(directory: Path, run: Run = TOY) -> dict[str, Any]:
    """What is found, and whether it is what was written."""
    checkpoints = Checkpoints(directory, WORLD, run)
    try:
        found = checkpoints.find()
    except UserError as error:
        return {"error": str(error)}
    step = found.newest.step if found.newest else None
    sound = found.newest is None or not differences(checkpoints.load(found.newest, toy_state(0)), toy_state(step or 0))
    return {"step": step, "damaged": found.damaged, "sound": sound}


@contextmanager
def killed(point: str) -> Iterator[None]:
    """One rank dies at that point of what follows, as by SIGKILL."""

    def die(*_: Any, **__: Any) -> None:
        os._exit(9)

    def half(path: Path, content: bytes) -> None:
        path.write_bytes(content[: len(content) // 2])
        die()

    def in_own_file(self: Any, data: bytes) -> int:
        if self.size > 100_000:
            self._stream.flush()
            die()
        return digested(self, data)

    digested = files._Digested.write
    sync, rank = files._sync, WORLD.rank
    patches = {
        "before_any_file": (0, patch.object(files, "fresh", die)),
        "before_own_file": (1, patch.object(files, "write_rank", die)),
        "in_own_file": (1, patch.object(files._Digested, "write", in_own_file)),
        "before_complete": (0, patch.object(files, "write_durably", die)),
        "in_complete": (0, patch.object(files, "write_durably", half)),
        "before_rename": (0, patch.object(files, "_sync", die)),
        "after_rename": (0, patch.object(files, "_sync", lambda path: sync(path) if "partial" in path.name else die())),
        "in_prune": (0, patch.object(files.shutil, "rmtree", lambda path, **_: path.name == "step-000002" and die())),
    }
    with ExitStack() as stack:
        chosen, patched = patches[point]
        if rank == chosen:
            stack.enter_context(patched)
        yield


def kill(directory: str, point: str) -> None:
    """Two checkpoints, and a third one that does not come to its end."""
    write(Path(directory), 2, 4)
    with killed(point):
        write(Path(directory), 6)


def after(*directories: str) -> None:
    """What each directory holds; and that the run can go on writing there."""
    for directory in map(Path, directories):
        answer = found_in(directory)
        write(directory, 8)
        names = sorted(path.name for path in directory.iterdir()) if WORLD.rank == 0 else []
        WORLD.Barrier()
        tell({"point": directory.name, **answer, "names": WORLD.bcast(names), "then": found_in(directory)["step"]})


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def stale(path: Path) -> None:
    """The index of the checkpoint before, as if it were this one's."""
    manifest = files.read_manifest(path.with_name("step-000002"))
    assert isinstance(manifest, dict)
    files.write_manifest(path, {**manifest, "step": 4})


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: os.truncate(path / "rank-00001.pt", 1000),
    "flipped": lambda path: flip(path / "rank-00001.pt"),
    "gone": lambda path: (path / "rank-00000.pt").unlink(),
    "empty": lambda path: os.truncate(path / "rank-00000.pt", 0),
    "no_complete": lambda path: (path / "complete.json").unlink(),
    "complete_cut": lambda path: os.truncate(path / "complete.json", 60),
    "complete_other_step": lambda path: edit(path / "complete.json", lambda data: data.update(step=5)),
    "complete_no_digest": lambda path: edit(path / "complete.json", lambda data: data["ranks"][0].pop("xxh3")),
    "complete_few_ranks": lambda path: edit(path / "complete.json", lambda data: data["ranks"].pop()),
    "complete_other_place": lambda path: edit(
        path / "complete.json", lambda data: data["index"]["parameters"]["weights"]["parts"].reverse()
    ),
    "complete_stale": lambda path: stale(path),
    "complete_is_a_list": lambda path: (path / "complete.json").write_text("[1]"),
}


def damage(directory: str) -> None:
    for name, spoil in DAMAGE.items():
        where = Path(directory) / name
        write(where, 2, 4)
        if WORLD.rank == 0:
            spoil(where / "step-000004")
        WORLD.Barrier()
        tell({"damage": name, **found_in(where)})
    for name in ("both", "kept"):
        write(Path(directory) / name, 2, 4)
        if WORLD.rank == 0:
            for step in ("step-000002", "step-000004") if name == "both" else ("step-000004",):
                flip(Path(directory) / name / step / "rank-00001.pt")
        WORLD.Barrier()
    tell({"damage": "both", **found_in(Path(directory) / "both")})
    going_on = Checkpoints(Path(directory) / "kept", WORLD, TOY)
    going_on.find()
    going_on.write(6, toy_state(6), corpus=TEXT)
    names = sorted(path.name for path in (Path(directory) / "kept").iterdir())
    tell({"damage": "kept", "names": names})


def others(directory: str) -> None:
    """Checkpoints of other runs."""
    where = Path(directory)
    write(where, 2)
    changes = {
        "learning rate": replace(TOY, train=replace(TOY.train, lr=0.5)),
        "seed": replace(TOY, train=replace(TOY.train, seed=8)),
        "vocabulary": replace(TOY, model=replace(NEOX, vocab=300)),
        "data": replace(TOY, data=Data("stdlib", None, 0.2)),
        "model": replace(TOY, model=GPT2),
        "scheme": replace(TOY, scheme=SIGNS),
        "checkpoint_every": replace(TOY, train=replace(TOY.train, checkpoint_every=7)),
    }
    for name, run in changes.items():
        tell({"change": name, **found_in(where, run)})
    if WORLD.rank == 0:
        edit(where / "step-000002" / "complete.json", lambda data: data.update(schema=1))
    WORLD.Barrier()
    tell({"change": "version", **found_in(where)})


def full(directory: str) -> None:
    """A rank's disk is full: all ranks learn of it, and the checkpoint before stays."""
    where = Path(directory)
    checkpoints = write(where, 2)
    device = where.parent / "full"
    if WORLD.rank == 0:
        device.symlink_to("/dev/full")
    WORLD.Barrier()
    write_rank = files.write_rank
    to = device if WORLD.rank == 1 else None
    with patch.object(files, "write_rank", lambda path, state: write_rank(to or path, state)):
        try:
            checkpoints.write(4, toy_state(4), corpus=TEXT)
        except UserError as error:
            tell({"error": str(error), **found_in(where)})


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
