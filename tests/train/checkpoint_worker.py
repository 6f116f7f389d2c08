"""Worker that stops runs and resumes them from a checkpoint, on real ranks. The worker prints JSON lines."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import small_runs
import torch
from mpi4py import MPI
from parity import meet
from shared_text import corpus
from small_runs import BASELINE, SIGNS, TRAIN, place_run

from hpcbench.comm.policy import Policy
from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import Data, Model, Train
from hpcbench.parallel import gradients
from hpcbench.parallel.boundary_errors import BoundaryErrors
from hpcbench.parallel.data_parallel import DataParallel
from hpcbench.parallel.sample_changes import SampleChanges
from hpcbench.train.checkpoint import Checkpoints
from hpcbench.train.log import LogWriter
from hpcbench.train.loop import train
from hpcbench.train.precision import LossScale
from hpcbench.train.stop import never
from hpcbench.train.trainer import Trainer

WORLD = MPI.COMM_WORLD
STEPS, STOP = 5, 2

NEOX = small_runs.NEOX.changed(layers=2, hidden=40, heads=4, rotary_fraction=0.4)
GPT2 = small_runs.GPT2.changed(layers=2, heads=4)
ONEBIT = SIGNS.changed(
    rules=[Rule(dimension="DP", kind="OPTIM", codec="sign:1024", feedback=True)], optimizer="onebit-adam"
)
ROUNDED = NamedScheme(name="rounded", algorithm="two-shot", default="int8:256:stochastic")
STEPWISE = SIGNS.changed(
    rules=[
        Rule(dimension="DP", codec="sign:1024", feedback=True, from_step=2),
        Rule(dimension="DP", codec="int4:32", feedback=True, from_step=4),
        Rule(codec="bf16", until_step=1),
    ]
)
AVERAGED = SIGNS.changed(
    rules=[Rule(dimension="DP", codec="int4:32", feedback=True, feedback_average=0.8, feedback_reset=3)]
)
DIFFERENCES = SIGNS.changed(rules=[Rule(dimension="ZERO", codec="rotate32+int4:32", differences=True)])
LAZY = SIGNS.changed(rules=[Rule(dimension="PP", phase="BACKWARD", codec="int4:32", feedback=True)])
CHANGES = SIGNS.changed(rules=[Rule(dimension="PP", phase="FORWARD", codec="int4:32", sample_changes=6)])
LOW_RANK = SIGNS.changed(rules=[Rule(dimension="DP", codec="none", low_rank=2)])
SETTINGS = TRAIN.changed(
    steps=STEPS, global_batch=4, seq_len=12, seed=7, lr=1e-2, min_lr=1e-3, bucket_mb=0.05, eval_every=2
)


def run_of(layout: Layout, scheme: NamedScheme = BASELINE, model: Model = NEOX, **settings: Any) -> Run:
    return place_run(layout, model=model, scheme=scheme, train=SETTINGS.changed(**settings))


CASES = {
    "dp2-fp64-zero0": run_of(Layout(dp=2), precision="fp64", zero=0),
    "dp2-fp16-zero1-overflow": run_of(Layout(dp=2), precision="fp16"),
    "dp2-fp32-zero0-feedback": run_of(Layout(dp=2), SIGNS, zero=0),
    "dp2-fp32-zero1-feedback": run_of(Layout(dp=2), SIGNS),
    "dp2-fp32-zero1-feedback-steps": run_of(Layout(dp=2), STEPWISE),
    "dp2-fp32-zero1-feedback-averaged": run_of(Layout(dp=2), AVERAGED),
    "dp2-tp2-fp32-zero1-feedback-low-rank": run_of(Layout(dp=2, tp=2), LOW_RANK),
    "dp2-tp2-fp32-zero1-stochastic": run_of(Layout(dp=2, tp=2), ROUNDED),
    "dp2-tp2-bf16-zero1-feedback": run_of(Layout(dp=2, tp=2), SIGNS, precision="bf16"),
    "dp2-tp2-bf16-zero1-differences": run_of(Layout(dp=2, tp=2), DIFFERENCES, precision="bf16"),
    "dp2-fp32-zero2-differences": run_of(Layout(dp=2), DIFFERENCES, zero=2),
    "dp2-tp2-fp32-zero0-onebit": run_of(
        # the variance of one step is tiny for some elements; with the lr of the other cases, 1e-2, the run diverges
        Layout(dp=2, tp=2),
        ONEBIT,
        zero=0,
        clip=0.0,
        optimizer="onebit-adam",
        freeze_step=1,
        lr=1e-3,
        min_lr=1e-4,
    ),
    "pp2-fp64-zero1-tied": run_of(Layout(pp=2), model=GPT2, precision="fp64"),
    "pp2-fp32-zero1-lazy-feedback": run_of(Layout(pp=2), LAZY),
    "pp2-fp32-zero1-lazy-changes": run_of(Layout(pp=2), CHANGES).changed(data=Data(samples=8)),
    "pp2-fp16-zero0-lazy-feedback-overflow": run_of(Layout(pp=2), LAZY, precision="fp16", zero=0),
    "pp2-fp16-zero0-overflow": run_of(Layout(pp=2), model=GPT2, precision="fp16", zero=0),
}


def overflowing(cls: type[LossScale], train: Train) -> LossScale:
    """Return a loss scale with which the trainer skips the first steps, and which is doubled soon afterwards."""
    return cls(2.0**17, window=2) if train.precision == "fp16" else cls(1.0, window=0)


def make_trainer(run: Run, comm: MPI.Comm) -> Trainer:
    with patch.object(LossScale, "of", classmethod(overflowing)):
        return Trainer(run, comm, Progress(Wait.GIVE_WAY, background=run.train.overlap), corpus())


def lines(stream: io.StringIO) -> list[str]:
    """Return the losses and bytes in the log, without times."""
    output = []
    for line in stream.getvalue().splitlines():
        if line.startswith("step "):
            parts = line.split(" | ")
            timed = ("time ", "samples/s ", "model ", "hardware ")
            output.append(" | ".join(part for part in parts if not part.startswith(timed)))
        elif line.startswith('{"event": "evaluation"'):
            output.append(line)
    return output


def differences(a: Any, b: Any, name: str = "") -> list[str]:
    """Return the names of the leaves that are not bitwise identical."""
    if isinstance(a, dict):
        if a.keys() != b.keys():
            return [name]
        return [difference for key in a for difference in differences(a[key], b[key], f"{name}/{key}")]
    same = a.dtype == b.dtype and torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
    return [] if same else [name]


def compare(name: str, run: Run, directory: Path) -> dict[str, Any] | None:
    """Compare an uninterrupted run with a run that another trainer resumes from a checkpoint, on every rank."""
    meet(WORLD)
    comm = WORLD.Split(0 if WORLD.rank < run.ranks else 1, WORLD.rank)
    if WORLD.rank >= run.ranks:
        return None
    streams = [io.StringIO() for _ in range(3)]
    uninterrupted = make_trainer(run, comm.Dup())
    outcome = [train(uninterrupted, LogWriter(streams[0]))]
    checkpoints = Checkpoints(directory / name, comm, run)
    first = make_trainer(run, comm.Dup())
    asked = iter(range(1, STEPS + 1))
    stop = (lambda: next(asked) == STOP) if comm.rank == 0 else never
    outcome.append(train(first, LogWriter(streams[1]), checkpoints=checkpoints, told_to_stop=stop))
    second = make_trainer(run, comm.Dup())
    newest = checkpoints.find().newest
    assert newest is not None
    second.load(checkpoints.load(newest, second.state()))
    at_once = differences(second.state(), first.state())
    outcome.append(train(second, LogWriter(streams[2]), taken=newest.step))
    return {
        "case": name,
        "states": [state for state, _, _ in outcome],
        "steps": [steps for _, _, steps in outcome],
        "reloaded": at_once,
        "weights": differences(second.state(), uninterrupted.state()),
        "whole": lines(streams[0]),
        "parts": lines(streams[1]) + lines(streams[2]),
        "skipped": uninterrupted.skipped,
        "residual": sum(float(r["sent"].abs().sum()) for r in uninterrupted.data_parallel.residuals().values())
        + uninterrupted.pipeline.errors.nbytes
        + uninterrupted.pipeline.changes.nbytes,
    }


def tell(answer: Any) -> None:
    """Print each rank's result."""
    meet(WORLD)
    for each in WORLD.gather(answer) or []:
        if each is not None:
            print(json.dumps(each), flush=True)


def exact(directory: str) -> None:
    for name, run in CASES.items():
        tell(compare(name, run, Path(directory)))


# ---------------------------------------------------------------- planted faults


def residuals_lost() -> object:
    """Residuals from before the checkpoint are lost."""
    return patch.object(DataParallel, "load_residuals", lambda self, saved: None)


def moments_lost() -> object:
    """Adam's variance restarts from zero."""
    load = DataParallel.load_optimizer

    def faulty(self: DataParallel, saved: dict[str, dict[str, Any]], *, updates: int) -> None:
        load(self, saved, updates=updates)
        for piece in self.pieces:
            piece.adam.second.zero_()

    return patch.object(DataParallel, "load_optimizer", faulty)


def updates_lost() -> object:
    """Adam corrects the bias of its moments as if it had not taken any step."""
    load = DataParallel.load_optimizer

    def faulty(self: DataParallel, saved: dict[str, dict[str, Any]], *, updates: int) -> None:
        load(self, saved, updates=0)

    return patch.object(DataParallel, "load_optimizer", faulty)


def loss_scale_lost() -> object:
    """The loss scale is reset to its initial value."""
    load = Trainer.load

    def faulty(self: Trainer, state: dict[str, Any]) -> None:
        fresh = self._scale
        load(self, state)
        self._scale = fresh

    return patch.object(Trainer, "load", faulty)


def seeds_lost() -> object:
    """Stochastic rounding reuses the random numbers of the first step."""
    return patch.object(Policy, "load_calls", lambda self, saved: None)


def masters_rounded() -> object:
    """The master weights are copied from the rounded weights."""
    load = DataParallel.load_optimizer

    def faulty(self: DataParallel, saved: dict[str, dict[str, Any]], *, updates: int) -> None:
        load(self, saved, updates=updates)
        for piece in self.pieces:
            piece.master.copy_(piece.bucket.values[piece.owned])

    return patch.object(DataParallel, "load_optimizer", faulty)


def padding_kept() -> object:
    """Padding, which belongs to no parameter, has a gradient and residuals."""
    return patch.object(gradients, "clear_padding", lambda piece: None)


def steps_counted_from_the_restart() -> object:
    """Rules with steps count the steps of the process instead of the steps of the run."""
    begin, begun = Policy.begin_step, dict[int, int]()

    def faulty(self: Policy, step: int) -> None:
        begun[id(self)] = begun.get(id(self), 0) + 1
        begin(self, begun[id(self)])

    return patch.object(Policy, "begin_step", faulty)


def factors_lost() -> object:
    """The power iterations of low-rank gradients start again from random factors."""
    return patch.object(DataParallel, "load_factors", lambda self, saved: None)


def boundary_errors_lost() -> object:
    """The errors of gradients between stages from before the checkpoint are lost."""
    return patch.object(BoundaryErrors, "load", lambda self, saved: None)


def activations_lost() -> object:
    """The activations of samples from before the checkpoint are lost on the first stage."""
    load = SampleChanges.load

    def faulty(self: SampleChanges, saved: dict[str, torch.Tensor]) -> None:
        load(self, {key: values for key, values in saved.items() if key.startswith("from")})

    return patch.object(SampleChanges, "load", faulty)


FAULTS: dict[str, tuple[Callable[[], object], str]] = {
    "residuals_lost": (residuals_lost, "dp2-fp32-zero1-feedback"),
    "moments_lost": (moments_lost, "dp2-fp64-zero0"),
    "updates_lost": (updates_lost, "dp2-fp64-zero0"),
    "loss_scale_lost": (loss_scale_lost, "dp2-fp16-zero1-overflow"),
    "seeds_lost": (seeds_lost, "dp2-tp2-fp32-zero1-stochastic"),
    "masters_rounded": (masters_rounded, "dp2-tp2-bf16-zero1-feedback"),
    "padding_kept": (padding_kept, "dp2-fp32-zero1-feedback"),
    "factors_lost": (factors_lost, "dp2-tp2-fp32-zero1-feedback-low-rank"),
    "activations_lost": (activations_lost, "pp2-fp32-zero1-lazy-changes"),
    "boundary_errors_lost": (boundary_errors_lost, "pp2-fp32-zero1-lazy-feedback"),
    "steps_counted_from_the_restart": (steps_counted_from_the_restart, "dp2-fp32-zero1-feedback-steps"),
}


def faults(directory: str) -> None:
    for name, (fault, case) in FAULTS.items():
        with fault():  # type: ignore[attr-defined]
            mistakes = compare(case, CASES[case], Path(directory) / name)
        tell(mistakes and {**mistakes, "fault": name})


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
