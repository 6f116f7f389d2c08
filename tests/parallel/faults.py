"""Planted faults. Each fault must make a test fail.

`python faults.py` prints the table of docs/reference/planted-faults.md.
"""

import ast
import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from mpi4py import MPI
from torch import Tensor

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.arrays import Array
from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.comm.work import Work
from hpcbench.contract.shards import cut_evenly
from hpcbench.parallel import (
    buckets,
    data_parallel,
    gradients,
    linear,
    parallelize,
    pipeline,
    recompute,
    regions,
    sequence,
    tensor,
    vocabulary,
)
from hpcbench.parallel.data_parallel import DataParallel
from hpcbench.parallel.fusion import Item
from hpcbench.parallel.gradients import Gradients
from hpcbench.parallel.pieces import Piece
from hpcbench.parallel.regions import Border
from hpcbench.parallel.sharding import Cut, Shard
from hpcbench.parallel.weights import GatheredAfterStep
from hpcbench.train import initial
from hpcbench.train.batches import Batches

ONE_PROCESS = "test_trains_like_one_process"
LOSSY = "test_replicas_agree_under_a_lossy_scheme"
LOSSLESS = "test_lossless_codec_gives_the_bits_of_the_identity"
RESIDUALS = "test_residuals_belong_to_parameters_and_end_with_a_skipped_step"
OVERFLOW = "test_an_overflow_of_one_rank_is_detected_by_all"
BYTES = "test_message_bytes_equal_the_closed_forms"

Patch = AbstractContextManager[object]


@dataclass(frozen=True)
class Fault:
    """A planted fault, and the test that detects it.

    Attributes
    ----------
    plant
        Context manager that plants the fault.
    red
        Test that fails.
    seen_in
        Quantity in which the test detects the fault.
    settings
        Settings of a run that exposes the fault, or None if the test creates its own runs.
    """

    plant: Callable[[], Patch]
    red: str
    seen_in: str
    settings: dict[str, Any] | None

    @property
    def description(self) -> str:
        return " ".join((self.plant.__doc__ or "").split())


FAULTS: dict[str, Fault] = {}

REPLICAS = {"layout__tp": 1, "layout__pp": 1}
TENSOR = {"layout__dp": 1, "layout__pp": 1}
STAGES = {"layout__dp": 1, "layout__tp": 1}
"""Two ranks along one axis, for faults that need a single axis. The default is two ranks along each of three axes."""


def add_fault(test: str, by: str, **settings: Any) -> Callable[[Callable[[], Patch]], Callable[[], Patch]]:
    """Register a fault. In the keys of `settings`, two underscores stand for a dot."""

    def enter(plant: Callable[[], Patch]) -> Callable[[], Patch]:
        named = {name.replace("__", "."): value for name, value in settings.items()}
        FAULTS[plant.__name__] = Fault(plant, test, by, None if test in (RESIDUALS, OVERFLOW) else named)
        return plant

    return enter


@add_fault(ONE_PROCESS, "gradients", **REPLICAS)
def divided_twice() -> Patch:
    """Gradients are divided twice by the number of replicas."""
    begin = DataParallel.begin

    def faulty(self: DataParallel, *, micro_batches: int, loss_scale: float) -> None:
        begin(self, micro_batches=micro_batches, loss_scale=loss_scale * self._mesh.dp.size)

    return patch.object(DataParallel, "begin", faulty)


@add_fault(ONE_PROCESS, "gradients", **REPLICAS)
def loss_scale_left_in() -> Patch:
    """The loss is scaled, but the gradients are never unscaled."""
    begin = DataParallel.begin

    def faulty(self: DataParallel, *, micro_batches: int, loss_scale: float) -> None:
        begin(self, micro_batches=micro_batches, loss_scale=1.0)

    return patch.object(DataParallel, "begin", faulty)


@add_fault(ONE_PROCESS, "gradients", **REPLICAS)
def one_replica_dropped() -> Patch:
    """The last replica's gradients are lost."""
    start = Gradients._start

    def faulty(self: Gradients, piece: Piece) -> None:
        if self._mesh.dp.rank == self._mesh.dp.size - 1:
            piece.bucket.gradients.zero_()
        start(self, piece)

    return patch.object(Gradients, "_start", faulty)


@add_fault(ONE_PROCESS, "norm", **TENSOR)
def norm_counts_replicas() -> Patch:
    """The gradient norm counts replicated parameters once for each rank of a tensor group."""
    return patch.object(Shard, "counts_in_norm", True)


@add_fault(ONE_PROCESS, "weights", train__zero=1, **REPLICAS)
def stale_weights_after_the_gather() -> Patch:
    """A rank uses outdated pieces from other ranks after an optimizer step."""
    step = DataParallel.step

    def faulty(self: DataParallel, **how: float) -> None:
        before = [piece.bucket.values.clone() for piece in self.pieces]
        step(self, **how)
        for piece, old in zip(self.pieces, before, strict=True):
            old[piece.owned] = piece.bucket.values[piece.owned]
            piece.bucket.values.copy_(old)

    return patch.object(DataParallel, "step", faulty)


@add_fault(ONE_PROCESS, "weights", train__zero=1, **REPLICAS)
def decay_of_everything() -> Patch:
    """Weight decay is applied to all parameters of a bucket, including biases and norms."""
    make_piece = data_parallel.make_piece

    def faulty(*arguments: Any, **how: Any) -> Piece:
        piece = make_piece(*arguments, **how)
        piece.adam._decays = [slice(0, piece.master.numel())]
        return piece

    return patch.object(data_parallel, "make_piece", faulty)


@add_fault(ONE_PROCESS, "gradients", model="gpt2", **STAGES)
def tied_gradient_left_out() -> Patch:
    """Each copy of a tied embedding is updated with its own gradient only."""
    return patch.object(Gradients, "_reduce_tied", lambda self: None)


@add_fault(ONE_PROCESS, "loss", **TENSOR)
def reduce_left_out() -> Patch:
    """A row-parallel layer returns a partial sum."""

    def faulty(x: Tensor, border: Border) -> Tensor:
        return x

    return patch.object(linear, "leave", faulty)


@add_fault(ONE_PROCESS, "gradients", **TENSOR)
def backward_reduce_left_out() -> Patch:
    """A column-parallel layer returns the gradient of its own part only."""

    def faulty(x: Tensor, border: Border) -> Tensor:
        return x

    return patch.object(linear, "enter", faulty)


@add_fault(ONE_PROCESS, "loss", **TENSOR)
def row_split_swapped() -> Patch:
    """A row-parallel layer holds the input columns of another rank."""
    record = parallelize._record_shards

    def faulty(*arguments: Any, **how: Any) -> dict[str, Shard]:
        records = record(*arguments, **how)
        return {
            name: replace(shard, cuts=tuple(Cut(cut.count - 1 - cut.index, cut.count) for cut in shard.cuts))
            if name.endswith(("out.weight", "down.weight"))
            else shard
            for name, shard in records.items()
        }

    return patch.object(parallelize, "_record_shards", faulty)


@add_fault(ONE_PROCESS, "loss", **TENSOR)
def initial_values_by_local_index() -> Patch:
    """Every rank initializes its part of a parameter with the parameter's first random values."""
    values = initial.values

    def faulty(name: str, shape: tuple[int, ...], *, held: tuple[slice, ...], **how: Any) -> Tensor:
        return values(name, shape, held=tuple(slice(0, part.stop - part.start) for part in held), **how)

    return patch.object(initial, "values", faulty)


@add_fault(ONE_PROCESS, "loss", **REPLICAS)
def samples_by_local_index() -> Patch:
    """Every replica reads the first samples of the batch."""
    cut = Batches._cut

    def faulty(self: Batches, split: str, seed: int, samples: np.ndarray) -> object:
        piece = cut_evenly(len(samples), self._size)[self._rank]
        return cut(self, split, seed, np.roll(samples, piece.start))

    return patch.object(Batches, "_cut", faulty)


@add_fault(ONE_PROCESS, "gradients", **STAGES)
def boundary_gradient_stale() -> Patch:
    """A stage always sends the gradient of the first micro-batch."""
    send = pipeline.Pipeline._send
    first: dict[int, Tensor] = {}

    def faulty(self: pipeline.Pipeline, x: Tensor, i: int, boundary: int, *, forward: bool) -> None:
        if not forward:
            x = first.setdefault(id(self), x)
        send(self, x, i, boundary, forward=forward)

    return patch.object(pipeline.Pipeline, "_send", faulty)


@add_fault(LOSSY, "replicas", scheme="zhybrid-16-8", train__precision="fp32", **REPLICAS)
def own_piece_exact() -> Patch:
    """In an all-gather, each rank keeps its own exact piece, so replicas decode different values."""
    all_gather = Group.all_gather

    def faulty(self: Group, src: Array, dst: Array, *, channel: Channel, **others: Any) -> Work:
        piece = src.copy()
        all_gather(self, src, dst, channel=channel).wait()
        dst[cut_evenly(dst.size, self.size)[self.rank]] = piece
        return Work.nothing(channel)

    return patch.object(Group, "all_gather", faulty)


@add_fault(LOSSY, "replicas", scheme="naive-int8", train__precision="fp32")
def whole_and_split_mixed() -> Patch:
    """A codec block mixes replicated parameters with parameters that are split over a tensor group."""
    fuse = buckets.fuse

    def faulty(items: Iterable[Item], **how: float) -> list[list[int]]:
        return fuse((item._replace(alike=()) for item in items), **how)

    return patch.object(buckets, "fuse", faulty)


@add_fault(
    LOSSY,
    "padding",
    scheme="sign-feedback",
    train__precision="fp32",
    train__bucket_mb=1e-6,
    layout__tp=4,
    layout__pp=1,
)
def padding_leaks() -> Patch:
    """A codec changes the zero padding at the end of a bucket, and the changed values enter the next message."""
    return patch.object(gradients, "clear_padding", lambda piece: None)


@add_fault(LOSSY, "gradients", scheme="naive-int8", train__precision="fp32", **REPLICAS)
def codec_silently_off() -> Patch:
    """Channels send unencoded values, whatever the scheme specifies."""
    return patch("hpcbench.comm.channel.get_codec", lambda name: get_codec("none"))


@add_fault(LOSSLESS, "gradients", scheme="naive-mpc", train__precision="fp32", **REPLICAS)
def lossless_codec_rounds() -> Patch:
    """A codec that is declared lossless changes a bit."""
    return patch("hpcbench.comm.channel.get_codec", lambda name: get_codec("zfp:24" if name == "mpc" else name))


@add_fault(RESIDUALS, "sizes")
def error_feedback_lost() -> Patch:
    """Error feedback is discarded after each step."""
    reduce_gradients = DataParallel.reduce_gradients

    def faulty(self: DataParallel) -> None:
        reduce_gradients(self)
        self.forget_residuals()

    return patch.object(DataParallel, "reduce_gradients", faulty)


@add_fault(RESIDUALS, "after_skipping")
def residuals_outlive_a_skipped_step() -> Patch:
    """The residuals of a skipped step are added to the next gradients."""
    return patch.object(DataParallel, "forget_residuals", lambda self: None)


@add_fault(OVERFLOW, "skipped")
def overflow_not_agreed() -> Patch:
    """A rank with finite gradients takes a step that the other ranks skip."""
    gradient_norm = DataParallel.gradient_norm

    def faulty(self: DataParallel) -> float:
        norm = gradient_norm(self)
        finite = all(bool(torch.isfinite(piece.gradient).all()) for piece in self.pieces)
        return 1.0 if finite and not math.isfinite(norm) else norm

    return patch.object(DataParallel, "gradient_norm", faulty)


def statistics(fault: Callable[[Tensor, Tensor, MPI.Op], Tensor]) -> Patch:
    """Replace the reduction of a softmax statistic with `fault(local, reduced, op)`."""

    def faulty(x: Tensor, group: Group, channel: Channel, op: MPI.Op) -> Tensor:
        return fault(x, regions.all_reduce(x, group, channel, op), op)

    return patch.object(vocabulary, "all_reduce", faulty)


@add_fault(ONE_PROCESS, "loss", model="gpt2", **TENSOR)
def largest_logit_left_out() -> Patch:
    """Each rank subtracts its own maximum logit before exponentiation."""
    return statistics(lambda local, reduced, op: local if op is MPI.MAX else reduced)


@add_fault(ONE_PROCESS, "loss", model="gpt2", **TENSOR)
def exponentials_left_out() -> Patch:
    """Each rank normalizes by the sum of its own exponentials."""
    return statistics(lambda local, reduced, op: reduced if op is MPI.MAX else torch.stack((local[0], reduced[1])))


@add_fault(ONE_PROCESS, "loss", model="gpt2", **TENSOR)
def target_counted_twice() -> Patch:
    """Two ranks contribute the target logit."""
    return statistics(
        lambda local, reduced, op: reduced if op is MPI.MAX else torch.stack((reduced[0], 2 * reduced[1]))
    )


@add_fault(ONE_PROCESS, "loss", model="gpt2", **TENSOR)
def rows_off_by_one_rank() -> Patch:
    """A rank looks up tokens as if it held the embedding rows of the next rank."""

    def faulty(vocab: int, group: Group) -> slice:
        return cut_evenly(vocab, group.size)[(group.rank + 1) % group.size]

    return patch.object(vocabulary, "held_rows", faulty)


@add_fault(ONE_PROCESS, "gradients", model="gpt2", train__sequence_parallel=True, **TENSOR)
def summands_left_out() -> Patch:
    """Norms and biases are updated with the gradients of a rank's own positions only."""
    return patch.object(Gradients, "_reduce_partial", lambda self: None)


@add_fault(ONE_PROCESS, "loss", model="gpt2", train__sequence_parallel=True, train__micro_batch=2, **TENSOR)
def gathered_in_wrong_order() -> Patch:
    """Positions are gathered in reverse rank order."""

    def faulty(x: Tensor, group: Group, channel: Channel) -> Tensor:
        return torch.cat(sequence.all_gather(x, group, channel).chunk(group.size, dim=1)[::-1], dim=1)

    return patch.object(tensor, "SEQUENCE", regions.SEQUENCE._replace(expand=faulty))


@add_fault(BYTES, "sent", train__zero=1, **REPLICAS)
def gathered_twice() -> Patch:
    """Every rank performs one redundant weight gather. All values are correct."""
    give = GatheredAfterStep.give

    def faulty(self: GatheredAfterStep, piece: Piece, source: Tensor) -> None:
        give(self, piece, source)
        give(self, piece, source)

    return patch.object(GatheredAfterStep, "give", faulty)


@add_fault(BYTES, "sent", train__recompute="full", **TENSOR)
def recomputed_for_nothing() -> Patch:
    """Activations and their messages are recomputed twice. All values are correct."""
    again = recompute.again

    def faulty(run: recompute.Run, inputs: list[Tensor], wanted: list[bool]) -> tuple[list[Tensor], Tensor]:
        again(run, inputs, wanted)
        return again(run, inputs, wanted)

    return patch.object(recompute, "again", faulty)


def format_table() -> str:
    """Return the table of faults for the documentation."""
    rows = [f"| `{name}` | {fault.description} | `{fault.red}` | {fault.seen_in} |" for name, fault in FAULTS.items()]
    return "\n".join(["| fault | what is wrong | test that turns red | seen in |", "| --- | --- | --- | --- |", *rows])


ELSEWHERE = {
    "parallel/zero_worker.py": "parallel/test_zero.py",
    "parallel/pipeline_faults.py": "parallel/test_pipeline.py",
    "parallel/grid_faults.py": "parallel/test_grids.py",
    "parallel/context_faults.py": "parallel/test_contexts.py",
    "parallel/expert_faults.py": "parallel/test_experts.py",
    "parallel/shape_faults.py": "parallel/test_model_shapes.py",
    "parallel/row_faults.py": "parallel/test_gradients_by_rows.py",
    "features/prune/prune_faults.py": "features/prune/test_pruning.py",
    "parallel/onebit_worker.py": "parallel/test_onebit.py",
    "parallel/gradient_schemes_worker.py": "parallel/test_gradient_schemes.py",
    "parallel/weight_differences_worker.py": "parallel/test_weight_differences.py",
    "parallel/half_messages_worker.py": "parallel/test_half_messages.py",
    "parallel/mixed_widths_worker.py": "parallel/test_mixed_widths.py",
    "parallel/boundary_errors_worker.py": "parallel/test_boundary_errors.py",
    "parallel/sample_changes_worker.py": "parallel/test_sample_changes.py",
    "train/checkpoint_worker.py": "train/test_checkpoint.py",
    "train/relayout_worker.py": "train/test_relayout.py",
}
"""Modules that plant faults in single mechanisms, and the tests that detect these faults."""


def describe_faults(source: Path) -> dict[str, str]:
    """Return the docstrings of the functions listed as faults in a module, without importing the module."""
    body = ast.parse(source.read_text()).body
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    descriptions = {}
    for node in body:
        target = node.target if isinstance(node, ast.AnnAssign) else (*getattr(node, "targets", ()), None)[0]
        if isinstance(target, ast.Name) and target.id.startswith("FAULTS"):
            called = {call.func for call in ast.walk(node) if isinstance(call, ast.Call)}
            for name in ast.walk(node):
                if isinstance(name, ast.Name) and name not in called and name.id in functions:
                    descriptions[name.id] = " ".join((ast.get_docstring(functions[name.id]) or "").split())
    return descriptions


def format_other_table() -> str:
    """Return the table of faults in single mechanisms."""
    tests = Path(__file__).parents[1]
    rows = [
        f"| `{name}` | {what} | `{red}` |"
        for source, red in ELSEWHERE.items()
        for name, what in describe_faults(tests / source).items()
    ]
    return "\n".join(["| fault | what is wrong | tests that turn red |", "| --- | --- | --- |", *rows])


if __name__ == "__main__":
    print(format_table(), format_other_table(), sep="\n\n")
