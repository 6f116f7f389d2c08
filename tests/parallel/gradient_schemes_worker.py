"""Worker that trains two replicas with schemes that change gradients, and prints JSON lines.

The arguments are names of functions of this module.
"""

import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from planting import Patch, list_faults
from runs import run_of
from shared_text import corpus
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from zero_worker import WORLD

from hpcbench.comm.group import Group
from hpcbench.comm.policy import Policy
from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme, Scheme
from hpcbench.contract.traffic import Dimension, MessageKind, Phase
from hpcbench.parallel.adamw import AdamW
from hpcbench.parallel.averaged_errors import AveragedErrors
from hpcbench.parallel.buckets import Bucket
from hpcbench.parallel.exact import digest
from hpcbench.parallel.low_rank import LowRank
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.pieces import Piece, make_piece
from hpcbench.parallel.sharding import Held, Shard
from hpcbench.predict.volume import count_step_bytes
from hpcbench.train.agreement import replicas_agree
from hpcbench.train.trainer import Trainer

STEPS = 4
Bytes = dict[str, list[int]]
"""Message bytes and wire bytes by traffic."""


def run_with(*rules: Rule, **train: Any) -> Run:
    """Return a run of two replicas with the given rules."""
    run = run_of("neox", Layout(dp=2), precision="fp32")
    settings = {"global_batch": 4, "micro_batch": 1, "steps": STEPS, "bucket_mb": 0.02, **train}
    scheme = NamedScheme(name="tested", algorithm="two-shot", default="none", rules=list(rules))
    return run.changed(scheme=scheme, train=run.train.changed(**settings))


def make_trainer(run: Run) -> Trainer:
    return Trainer(run, WORLD.Dup(), Progress(Wait.GIVE_WAY, background=run.train.overlap), corpus())


def count_bytes(trainer: Trainer) -> Bytes:
    counters = {" ".join(channel.traffic): channel.counters for channel in trainer.policy.channels}
    return {
        name: [counted.message_bytes, counted.wire_bytes]
        for name, counted in counters.items()
        if counted.calls and not name.startswith("EXACT")
    }


def train(run: Run, steps: int = STEPS) -> tuple[Trainer, list[Bytes], list[int]]:
    """Train, and return the trainer, the bytes of each step, and a digest of the weights after each step."""
    trainer, sent, digests = make_trainer(run), [], []
    before = count_bytes(trainer)
    for step in range(steps):
        trainer.step(step)
        after = count_bytes(trainer)
        sent.append(
            {name: [a - b for a, b in zip(after[name], before.get(name, [0, 0]), strict=True)] for name in after}
        )
        before = after
        weights = [values for _, values in trainer.data_parallel.weights()]
        digests.append(digest(weights))
    assert replicas_agree(trainer)
    return trainer, sent, digests


def predict(run: Run, step: int, low_rank: int = 0) -> dict[str, int]:
    counted = count_step_bytes(run.model, run.train, run.layout, WORLD.rank, updates=step, low_rank=low_rank)
    return {" ".join(key): nbytes for key, nbytes in counted.items() if key[0] != "EXACT"}


def tell(**fields: Any) -> None:
    """Print the results of all ranks on rank 0."""
    for rank, each in enumerate(WORLD.gather(fields) or []):
        print(json.dumps({"rank": rank, **each}), flush=True)


def steps() -> None:
    """Compare rules that apply only in some steps with rules that always apply."""
    codec = {"dimension": "DP", "codec": "int8:256"}
    gathers = {"dimension": "ZERO", "codec": "int8:64"}
    run = run_with(Rule(**codec, from_step=2, until_step=3), Rule(**gathers, from_step=3))
    trainer, scheduled, digests = train(run)
    _, plain, plain_digests = train(run_with())
    _, encoded, encoded_digests = train(run_with(Rule(**codec), Rule(**gathers)))
    _, _, always = train(run_with(Rule(**codec, from_step=1, until_step=STEPS), Rule(**gathers, from_step=1)))
    rows = [
        [row.dimension, row.codec, row.message_bytes, row.wire_bytes]
        for row in trainer.traffic.report()
        if row.dimension != "EXACT"
    ]
    tell(
        test="steps",
        scheduled=scheduled,
        plain=plain,
        encoded=encoded,
        predicted=[predict(run, step) for step in range(STEPS)],
        first_step=[digests[0] == plain_digests[0], digests[1] == plain_digests[1]],
        always=always == encoded_digests,
        rows=rows,
    )


def forgotten() -> None:
    """Print the size of the residuals after each step, including a step in which the rule no longer applies."""
    signs = {"dimension": "DP", "codec": "sign:1024", "feedback": True}
    run = run_with(Rule(**signs, until_step=2))
    trainer = make_trainer(run)
    sizes = []
    for step in range(3):
        trainer.step(step)
        residuals = trainer.data_parallel.residuals().values()
        sizes.append(sum(float(values.abs().sum()) for each in residuals for values in each.values()))
    tell(test="forgotten", sizes=sizes)


# ---------------------------------------------------------------- low rank


RANK, SHAPES = 2, {"first": (24, 16), "bias": (16,), "small": (6, 4), "second": (5, 8, 12)}
"""Shapes of parameters. For `small`, low-rank factors would save too few values."""


def low_rank() -> None:
    """Train with low-rank gradients from the second step, at two ZeRO stages."""
    for zero in (0, 1):
        run = run_with(Rule(dimension="DP", codec="none", low_rank=RANK, from_step=2), zero=zero)
        trainer, sent, _ = train(run)
        predicted = [predict(run, step, RANK if step else 0) for step in range(STEPS)]
        held, sizes = trainer.data_parallel.held_bytes(), trainer.data_parallel.factors()
        elements = sum(piece.bucket.values.numel() for piece in trainer.data_parallel.pieces)
        tell(
            test="low_rank",
            zero=zero,
            sent=sent,
            predicted=predicted,
            residuals=[held["host residuals"], 8 * elements],
            factors=len(sizes),
        )


class OfPyTorch:
    """PyTorch's PowerSGD for one bucket, starting from the same factors as hpcbench's iteration."""

    def __init__(self, starts: list[Tensor]) -> None:
        self.state = PowerSGDState(None, RANK, start_powerSGD_iter=2, min_compression_rate=2)
        self.state.iter = 2
        rows = sum(math.prod(SHAPES[name][:1]) for name in ("first", "second"))
        self.state.p_memory_dict[0] = torch.empty(rows * RANK)
        self.state.q_memory_dict[0] = torch.cat([start.reshape(-1) for start in starts])

    def average(self, values: Tensor, slots: dict[str, slice]) -> Tensor:
        class FakeBucket:
            def buffer(self) -> Tensor:
                return values

            def gradients(self) -> list[Tensor]:
                return [values[slots[name]].view(shape) for name, shape in SHAPES.items()]

            def index(self) -> int:
                return 0

            def is_last(self) -> bool:
                return True

        averaged: Tensor = powerSGD_hook(self.state, FakeBucket()).wait()  # type: ignore[arg-type]
        return averaged


def make_bucket_piece() -> Piece:
    held = [Held(nn.Parameter(torch.zeros(shape)), Shard(name, shape)) for name, shape in SHAPES.items()]
    return make_piece(Bucket(held, 2), AdamW(0.9, 0.95, 1e-8, 0.0), part=0, parts=1, feedback=True, in_place=True)


def own_gradient(step: int, piece: Piece) -> Tensor:
    """Return this rank's gradient of a step. Step 0 has no gradient."""
    seed = torch.Generator().manual_seed(10 * step + WORLD.rank)
    values = torch.randn(piece.bucket.values.numel(), generator=seed) * (step > 0)
    values[piece.bucket.padding] = 0
    return values


def iterate(group: Group, codec: str, steps: tuple[int, ...] = (1, 2, 3)) -> dict[str, Any]:
    """Sum the gradients of each step.

    Compare each sum with PyTorch's, and the total of all sums with the exact total.
    """
    scheme = Scheme(algorithm="two-shot", rules=[Rule(dimension="DP", codec=codec, low_rank=RANK)])
    channel = Policy(scheme).channel(Dimension.DP, Phase.BACKWARD, MessageKind.GRAD)
    piece, reducer, oracle = make_bucket_piece(), LowRank(channel), None
    slots = {slot.shard.name: slot.span for slot in piece.bucket.slots}
    n = piece.bucket.values.numel()
    total, exact, errors, digests = torch.zeros(n), torch.zeros(n), [], []
    for step in steps:
        gradient = own_gradient(step, piece)
        piece.bucket.gradients.copy_(gradient)
        if oracle is None:
            starts = [reducer._first_factor(name, gradient[slots[name]].view(SHAPES[name][0], -1)) for name in STARTED]
            oracle = OfPyTorch(starts)
        reduction = reducer.start(piece, piece.bucket.gradients, 2.0, group)
        assert reduction is not None
        reduction.wait()
        theirs = oracle.average(gradient.clone(), slots)
        errors.append(float((reduction.result - theirs).norm() / (theirs.norm() + 1e-30)))
        digests.append(digest([reduction.result.clone()]))
        total += reduction.result
        exact += torch.from_numpy(WORLD.allreduce(gradient.numpy() / 2))
    assert piece.feedback is not None
    left = total + torch.from_numpy(WORLD.allreduce(piece.feedback.sent))
    sizes = [float(total[slots[name]].norm()) for name in STARTED]
    return {
        "errors": errors,
        "telescoped": float((left - exact).norm() / exact.norm()),
        "sizes": sizes,
        "digests": digests,
        "wire": [channel.counters.message_bytes, channel.counters.wire_bytes],
    }


STARTED = ("first", "second")


def low_rank_sums() -> None:
    """Compare sums with the sums of PyTorch's hook: without a fault, with lossy factors, and with each fault."""
    group = Mesh(WORLD.Dup(), Layout(dp=2), Progress(Wait.GIVE_WAY)).dp
    name = WORLD.bcast(tempfile.mkdtemp() if WORLD.rank == 0 else None)
    store = dist.FileStore(str(Path(name) / "store"), WORLD.size)
    dist.init_process_group("gloo", store=store, rank=WORLD.rank, world_size=WORLD.size)
    tell(test="low_rank_sums", fault=None, **iterate(group, "none"))
    tell(test="low_rank_coded", **iterate(group, "int8:64"))
    tell(test="low_rank_after_zeros", **iterate(group, "none", (0, 1, 2)))
    for name, fault in FAULTS_OF_LOW_RANK.items():
        with fault():
            tell(test="low_rank_sums", fault=name, **iterate(group, "none"))
    dist.destroy_process_group()
    overflow(group)


def overflow(group: Group) -> None:
    """Give one replica an infinite gradient. No replica may receive a finite sum."""
    scheme = Scheme(algorithm="two-shot", rules=[Rule(dimension="DP", codec="none", low_rank=RANK)])
    piece = make_bucket_piece()
    reducer = LowRank(Policy(scheme).channel(Dimension.DP, Phase.BACKWARD, MessageKind.GRAD))
    piece.bucket.gradients.copy_(own_gradient(1, piece))
    piece.bucket.gradients[3] = math.inf if WORLD.rank else 1.0
    reduction = reducer.start(piece, piece.bucket.gradients, 2.0, group)
    assert reduction is not None
    reduction.wait()
    finite = bool(torch.isfinite(reduction.result).all())
    reducer.forget()
    tell(test="overflow", finite=finite, factors=len(reducer.factors))


# ---------------------------------------------------------------- averaged errors


AVERAGE = 0.8


def averaged() -> None:
    """Print the residuals of training with plain feedback, with averaged errors, and with a reset."""
    feedback: dict[str, Any] = {"dimension": "DP", "codec": "int4:32", "feedback": True}
    for zero in (0, 1, 2, 3):
        sizes = []
        for more in ({}, {"feedback_average": AVERAGE}, {"feedback_average": AVERAGE, "feedback_reset": 2}):
            # Stages 2 and 3 reduce the gradients of each micro-batch, so one micro-batch is one message per step.
            trainer = make_trainer(run_with(Rule(**feedback, **more), zero=zero, micro_batch=2))
            sizes.append([])
            for step in range(3):
                trainer.step(step)
                residuals = trainer.data_parallel.residuals().values()
                squares = (float(values.square().sum()) for each in residuals for values in each.values())
                sizes[-1].append(math.sqrt(sum(squares)))
        tell(test="averaged", zero=zero, sizes=sizes)


def averaged_sums() -> None:
    """Sum gradients with averaged errors: with feedback, the errors of all sums stay bounded."""
    group = Mesh(WORLD.Dup(), Layout(dp=2), Progress(Wait.GIVE_WAY)).dp
    tell(test="averaged_sums", fault=None, telescoped=sum_averaged(group))
    for name, fault in FAULTS_OF_AVERAGE.items():
        with fault():
            tell(test="averaged_sums", fault=name, telescoped=sum_averaged(group))


def sum_averaged(group: Group) -> float:
    """Return the relative error of `sums + residuals / (1 - average)`, compared with the total of all gradients."""
    rule = Rule(dimension="DP", codec="int4:32", feedback=True, feedback_average=AVERAGE)
    scheme = Scheme(algorithm="two-shot", rules=[rule])
    channel = Policy(scheme).channel(Dimension.DP, Phase.BACKWARD, MessageKind.GRAD)
    piece, averaged = make_bucket_piece(), AveragedErrors(channel)
    assert piece.feedback is not None
    total, exact = torch.zeros(piece.bucket.values.numel()), torch.zeros(piece.bucket.values.numel())
    for step in range(1, 6):
        gradient = own_gradient(step, piece).numpy()
        exact += torch.from_numpy(WORLD.allreduce(gradient))
        averaged.keep(piece)
        group.all_reduce(gradient, channel=channel, feedback=piece.feedback).wait()
        averaged.average(piece)
        total += torch.from_numpy(gradient)
    left = WORLD.allreduce(piece.feedback.sent) + WORLD.allreduce(piece.feedback.summed)
    return float((total + torch.from_numpy(left) / (1 - AVERAGE) - exact).norm() / exact.norm())


# ---------------------------------------------------------------- planted faults


def errors_not_averaged() -> Patch:
    """The residual is the error of the last message, not its average with earlier errors."""
    return patch.object(AveragedErrors, "average", lambda self, piece: None)


def weights_exchanged() -> Patch:
    """The coefficients of the new error and of the earlier residual are swapped in the average."""
    average = AveragedErrors.average

    def faulty(self: AveragedErrors, piece: Piece) -> None:
        weight = self._channel.feedback_average
        self._channel.feedback_average = 1 - weight
        average(self, piece)
        self._channel.feedback_average = weight

    return patch.object(AveragedErrors, "average", faulty)


FAULTS_OF_AVERAGE = list_faults(errors_not_averaged, weights_exchanged)


def error_of_the_sum() -> Patch:
    """The error of a low-rank gradient is its difference from the sum instead of from the mean."""
    complete = LowRank._complete

    def faulty(self: LowRank, matrices: list[Any], *arguments: Any) -> None:
        before = [matrix.values.clone() for matrix in matrices]
        complete(self, matrices, *arguments)
        for matrix, values in zip(matrices, before, strict=True):
            matrix.error.copy_(values - matrix.values)

    return patch.object(LowRank, "_complete", faulty)


def error_not_added() -> Patch:
    """The error of a low-rank gradient is not added to the next gradient."""
    cut = LowRank._cut

    def faulty(self: LowRank, bucket: Bucket, values: Tensor, errors: Tensor) -> Any:
        errors.zero_()
        return cut(self, bucket, values, errors)

    return patch.object(LowRank, "_cut", faulty)


def cold_start() -> Patch:
    """Each power iteration starts from random columns instead of the factor of the previous step."""
    first = LowRank._first_factor

    def faulty(self: LowRank, name: str, matrix: Tensor) -> Tensor:
        self.factors.pop(name, None)
        return first(self, name, matrix)

    return patch.object(LowRank, "_first_factor", faulty)


def first_factor_not_summed() -> Patch:
    """Each replica uses its own first factor, so replicas have different sums."""
    all_reduce = Group.all_reduce
    calls = iter(range(1000))

    def faulty(self: Group, buf: Any, **how: Any) -> Any:
        return all_reduce(self, buf.copy() if next(calls) % 2 == 0 else buf, **how)

    return patch.object(Group, "all_reduce", faulty)


FAULTS_OF_LOW_RANK = list_faults(error_of_the_sum, error_not_added, cold_start, first_factor_not_summed)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
