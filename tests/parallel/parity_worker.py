"""Trains small models in many layouts on real ranks and compares each with one process; prints a JSON line a case."""

import json
import math
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from unittest.mock import patch

import torch
from cases import LAYOUTS, LOSSY, MODELS, SPREAD, STEPS, in_pairs, label, run_of
from faults import planted
from mpi4py import MPI

from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.parallel.data_parallel import DataParallel
from hpcbench.parallel.exact import exact_sum
from hpcbench.parallel.layout import Layout
from hpcbench.testing import parity
from hpcbench.train import text
from hpcbench.train.config import Run
from hpcbench.train.trainer import Trainer

WORLD = MPI.COMM_WORLD
CORPUS = text.load(run_of("neox", Layout()).data, 12)


def train(run: Run, comm: MPI.Comm) -> list[dict[str, object]] | None:
    """Loss, gradients and weights after each step, whole, on rank 0."""
    trainer = Trainer(run, comm, Progress(Wait.GIVE_WAY, background=run.train.overlap), CORPUS)
    history = []
    for k in range(STEPS):
        (loss,) = exact_sum(trainer.mesh.world, [trainer.backward(k)], trainer.policy.exact)
        gradients = parity.assemble(comm, parity.gradients(trainer))  # before clipping, which would hide their scale
        _, norm = trainer.update(k)
        weights = parity.assemble(comm, parity.parameters(trainer))
        agree = trainer.replicas_agree()
        if gradients and weights:
            history.append(
                {
                    "loss": loss,
                    "norm": norm,
                    "gradients": gradients,
                    "weights": weights,
                    "agree": agree,
                }
            )
    evaluation, tokens = trainer.evaluate()
    if not history:
        return None
    return [*history, {"evaluation": evaluation, "tokens": tokens}]


def spread(run: Run) -> list[dict[str, object]] | None:
    """Train on the first ranks of the world; the others wait."""
    comm = WORLD.Split(0 if WORLD.rank < run.ranks else 1, WORLD.rank)
    return train(run, comm) if WORLD.rank < run.ranks else None


def compare(case: dict[str, object], history: list[dict[str, object]], reference: list[dict[str, object]]) -> None:
    """Print the largest errors over all steps."""
    errors: dict[str, float] = {"loss": 0.0, "norm": 0.0, "gradients": 0.0, "weights": 0.0, "replicas": 0.0}
    worst = {}
    agree = True
    for ours, theirs in zip(history[:-1], reference[:-1], strict=True):
        for name in ("loss", "norm"):
            errors[name] = max(errors[name], abs(ours[name] - theirs[name]) / abs(theirs[name]))
        for name in ("gradients", "weights"):
            error, tensor = parity.relative_error(ours[name].values, theirs[name].values)
            if error >= errors[name]:
                errors[name], worst[name] = error, tensor
            errors["replicas"] = max(errors["replicas"], ours[name].replicas_differ)
        agree &= ours["agree"]
    final, expected = history[-1], reference[-1]
    errors["evaluation"] = abs(final["evaluation"] - expected["evaluation"]) / expected["evaluation"]
    same_tokens = final["tokens"] == expected["tokens"]
    print(json.dumps({**case, **errors, "worst": worst, "agree": agree, "same_tokens": same_tokens}), flush=True)


def every_layout() -> None:
    for model in MODELS:
        zero = {"neox": 1, "gpt2": 0}[model]
        reference = train(run_of(model, Layout(), zero=zero), MPI.COMM_SELF) if WORLD.rank == 0 else None
        for layout in LAYOUTS:
            history = spread(run_of(model, layout, zero=zero))
            if WORLD.rank == 0:
                compare({"model": model, "layout": label(layout)}, history, reference)


def spread_by_positions() -> None:
    for model in MODELS:
        zero = {"neox": 0, "gpt2": 1}[model]
        alone = in_pairs(run_of(model, Layout(), zero=zero))
        reference = train(alone, MPI.COMM_SELF) if WORLD.rank == 0 else None
        for layout in SPREAD:
            history = spread(in_pairs(run_of(model, layout, zero=zero, sequence_parallel=True)))
            if WORLD.rank == 0:
                compare({"model": model, "layout": label(layout)}, history, reference)


def both_zero_stages() -> None:
    """ZeRO-1 against plain data parallelism: the sums have the same order, so the same bits.

    Not clipped: the norm is a sum over pieces, which are cut differently.
    """
    for model in MODELS:
        for layout in (Layout(dp=2), Layout(dp=2, tp=2, pp=2)):
            runs = [spread(run_of(model, layout, scheme="identity", zero=zero, clip=0.0)) for zero in (0, 1)]
            if WORLD.rank == 0:
                compare({"model": model, "layout": label(layout)}, runs[1], runs[0])


def lossless() -> None:
    """naive-mpc against the same algorithm with the identity codec, in fp32 and fp64."""
    for precision in ("fp32", "fp64"):
        for model in MODELS:
            layout = Layout(dp=2, tp=2, pp=2)
            runs = [
                spread(run_of(model, layout, scheme=name, precision=precision)) for name in ("naive-mpc", "identity")
            ]
            if WORLD.rank == 0:
                compare({"model": model, "precision": precision}, *runs)


def lossy() -> None:
    """Lossy schemes: far from exact, and yet equal on all replicas."""
    layout = Layout(dp=2, tp=2, pp=2)
    for model in MODELS:
        exact = spread(run_of(model, layout, scheme="identity", precision="fp32"))
        for scheme in LOSSY:
            history = spread(run_of(model, layout, scheme=scheme, precision="fp32"))
            if WORLD.rank == 0:
                compare({"model": model, "scheme": scheme}, history, exact)


def lossy_by_positions() -> None:
    """The same with sequence parallelism, which sends in two steps what was one."""
    for model, scheme in product(MODELS, LOSSY[:2]):
        runs = [
            spread(in_pairs(run_of(model, Layout(dp=2, tp=2), scheme=name, precision="fp32", sequence_parallel=True)))
            for name in (scheme, "identity")
        ]
        if WORLD.rank == 0:
            compare({"model": model, "scheme": scheme}, *runs)


def overlapped() -> None:
    """Gradients reduced during the backward pass against after it: the same sums, so the same bits."""
    layout = Layout(dp=2, tp=2, pp=2)
    for model, scheme in (("neox", "baseline"), ("gpt2", "zhybrid-16-8"), ("neox", "sign-feedback")):
        runs, early = [], []
        for on in (True, False):
            begun: list[bool] = []
            with patch.object(DataParallel, "reduce_gradients", counting(begun)):
                runs.append(spread(run_of(model, layout, scheme=scheme, precision="fp32", overlap=on)))
            early.append(sum(begun))
        if WORLD.rank == 0:
            compare({"model": model, "scheme": scheme, "early": early}, *runs)


def counting(begun: list[bool]) -> Callable[[DataParallel], None]:
    """Notes which buckets' reductions had begun when the backward pass was over."""
    reduce_gradients = DataParallel.reduce_gradients

    def counted(self: DataParallel) -> None:
        begun.extend(piece.reduction is not None for piece in self.pieces)
        reduce_gradients(self)

    return counted


def residuals() -> None:
    """Residuals of a few steps, taken up by another trainer with other buckets; and after a skipped step."""
    run = run_of("neox", Layout(dp=4, tp=2), scheme="sign-feedback", precision="fp32", zero=0)
    first = Trainer(run, WORLD, Progress(Wait.GIVE_WAY), CORPUS)
    for k in range(2):
        first.step(k)
    saved = first.data_parallel.residuals()
    other = replace(run, train=replace(run.train, bucket_mb=run.train.bucket_mb / 3))
    second = Trainer(other, WORLD, Progress(Wait.GIVE_WAY), CORPUS)
    second.data_parallel.load_residuals(saved)
    taken = second.data_parallel.residuals()
    with patch.object(DataParallel, "gradient_norm", lambda self: math.nan):
        first.step(2)
    left = first.data_parallel.residuals()
    answer = {
        "parameters": sorted(saved) == sorted(item.shard.name for item in first.held),
        "buckets": [len(trainer.data_parallel.pieces) for trainer in (first, second)],
        "equal": all(torch.equal(taken[name][kind], saved[name][kind]) for name in saved for kind in saved[name]),
        "sizes": {kind: sum(float(saved[name][kind].norm()) for name in saved) for kind in ("sent", "summed")},
        "after_skipping": sum(float(left[name][kind].norm()) for name in left for kind in left[name]),
    }
    for each in WORLD.gather(answer) or []:
        print(json.dumps(each), flush=True)


def with_fault(name: str, model: str, layout: Layout, scheme: str, precision: str) -> None:
    plain = Layout() if scheme == "baseline" else layout
    comm = MPI.COMM_SELF if plain == Layout() else None
    reference_run = run_of(model, plain, scheme=scheme, precision=precision)
    reference = (train(reference_run, comm) if WORLD.rank == 0 else None) if comm else spread(reference_run)
    for fault in (None, name):
        with planted(fault) if fault else nullcontext():
            history = spread(run_of(model, layout, scheme=scheme, precision=precision))
        if WORLD.rank == 0:
            compare({"fault": fault}, history, reference)


def faults() -> None:
    whole = Layout(dp=2, tp=2, pp=2)
    for name, model, scheme, precision in (
        ("divided_twice", "neox", "baseline", "fp64"),
        ("reduce_left_out", "neox", "baseline", "fp64"),
        ("backward_reduce_left_out", "neox", "baseline", "fp64"),
        ("own_piece_exact", "neox", "zhybrid-16-8", "fp32"),
        ("whole_and_split_mixed", "neox", "naive-int8", "fp32"),
        ("tied_gradient_left_out", "gpt2", "baseline", "fp64"),
        ("one_replica_dropped", "neox", "baseline", "fp64"),
        ("boundary_gradient_stale", "neox", "baseline", "fp64"),
    ):
        with_fault(name, model, whole, scheme, precision)


def tensor_faults() -> None:
    for by_positions, names in (
        (
            False,
            ("largest_logit_left_out", "exponentials_left_out", "target_counted_twice", "rows_off_by_one_rank"),
        ),
        (True, ("summands_left_out", "gathered_in_wrong_order")),
    ):
        alone, run = (in_pairs(run_of("gpt2", Layout(tp=t), sequence_parallel=by_positions)) for t in (1, 2))
        reference = train(alone, MPI.COMM_SELF) if WORLD.rank == 0 else None
        for fault in (None, *names):
            with planted(fault) if fault else nullcontext():
                history = spread(run)
            if WORLD.rank == 0:
                compare({"fault": fault, "sequence_parallel": by_positions}, history, reference)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
