"""The pieces that a rank owns: the elements that it updates, with their master weights and the optimizer's states.

A piece is the whole of a bucket, or with ZeRO (arXiv 1910.02054, section 5) 1/dp of it. The optimizer works on a master
copy in fp32 or better. The model's own weights are the decoded ones on every rank, the owner's included, so that
replicas never differ.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hpcbench.comm.feedback import Feedback
from hpcbench.comm.work import Work
from hpcbench.contract.shards import cut_evenly
from hpcbench.parallel.adamw import AdamW, AdamWState
from hpcbench.parallel.buckets import Bucket, Slot
from hpcbench.parallel.buffers import Buffer, residuals, to_tensor
from hpcbench.parallel.offload import HostLink
from hpcbench.parallel.packing import Packing


@dataclass(frozen=True)
class Owned:
    """Elements that this rank updates.

    Attributes
    ----------
    name
        The parameter's name in the whole model.
    start, length
        First element and number of elements, in the parameter's local part, flattened.
    """

    name: str
    start: int
    length: int


@dataclass
class Reduction:
    """The reduction of a bucket: where the piece's sum arrives, and the sent values, which must live until then.

    If messages contain rows, `complete` sums them when they have arrived.
    """

    result: Tensor
    work: Work
    sent: Buffer | None = None
    complete: Callable[[], None] | None = None
    residuals: Feedback | None = None
    """Residuals of a message without zeros, which go back to their places when the sum has arrived."""

    def wait(self) -> None:
        """Return when the sum has arrived."""
        self.work.wait()
        if self.complete:
            self.complete()


@dataclass
class Piece:
    """The part of a bucket that this rank updates."""

    bucket: Bucket
    owned: slice
    master: Tensor
    gradient: Tensor
    """The reduced gradient."""
    adam: AdamWState
    feedback: Feedback | None
    """Residuals of the bucket's messages: those of gradients, or of 1-bit Adam's momenta."""
    to_come: int = 0
    """Number of gradients that the backward pass has not yet added to the bucket."""
    reduction: Reduction | None = None
    """The reduction under way; None if there is none."""
    packing: Packing | None = None
    """The bucket's mask; None if nothing is set to zero."""

    def parts(self) -> Iterator[tuple[Slot, slice, Owned]]:
        """Yield each parameter with elements in the piece.

        The result has its place in the bucket, its elements in the piece, and their place in the parameter.
        """
        for slot, part in self.bucket.parts(self.owned):
            start = self.owned.start + part.start - slot.span.start
            yield slot, part, Owned(slot.shard.name, start, part.stop - part.start)

    def counted(self) -> list[slice]:
        """List the runs of elements that the gradient's norm counts."""
        runs: list[slice] = []
        for slot, part in self.bucket.parts(self.owned):
            if slot.shard.counts_in_norm:
                start = runs.pop().start if runs and runs[-1].stop == part.start else part.start
                runs.append(slice(start, part.stop))
        return runs

    @property
    def in_place(self) -> bool:
        """Whether master weights and reduced gradients lie in the bucket itself."""
        return self.master is self.bucket.values

    @property
    def states(self) -> dict[str, Tensor]:
        """The values that the next update depends on, keyed by their names in checkpoints."""
        return {"master": self.master, "first": self.adam.first, "second": self.adam.second}


def make_piece(
    bucket: Bucket,
    adam: AdamW,
    *,
    part: int,
    parts: int,
    feedback: bool,
    link: HostLink | None = None,
    in_place: bool = False,
) -> Piece:
    """Make piece `part` of `parts` of a bucket. Its states lie on the host if there is a `link`.

    A piece that is the whole bucket may be `in_place`: weights in fp32 or better are their own master weights, and the
    sum of gradients replaces the gradients.
    """
    n = bucket.values.numel()
    owned = cut_evenly(n, parts)[part]
    if in_place and link is None and bucket.values.dtype is bucket.wire_dtype:
        master, gradient = bucket.values, bucket.gradients
    else:
        master = bucket.values[owned].to(bucket.wire_dtype, copy=True)
        if link:
            master = link.keep(master)
        gradient = torch.zeros_like(master) if link is None else link.keep(torch.zeros_like(master))
    matrices = [span for slot, span in bucket.parts(owned) if len(slot.shard.shape) > 1]
    errors = residuals(n, like=bucket.values) if feedback else None
    return Piece(bucket, owned, master, gradient, AdamWState(adam, master, matrices), errors)


def save(pieces: Iterable[Piece]) -> dict[str, dict[str, Any]]:
    """Return master weights and moments by parameter name, for a checkpoint.

    ``master``, ``first`` and ``second`` hold the elements that this rank updates. ``start`` is the place of the first
    one in the parameter's local part, flattened.
    """
    return {
        owned.name: {
            "start": owned.start,
            **{name: values[part].to("cpu", copy=True) for name, values in piece.states.items()},
        }
        for piece in pieces
        for _, part, owned in piece.parts()
    }


def save_weights(pieces: Iterable[Piece]) -> dict[str, dict[str, Any]]:
    """Return master weights by parameter name, without moments, as ``values`` in the dtype of the model's weights."""
    return {
        owned.name: {"start": owned.start, "values": piece.master[part].to("cpu", piece.bucket.values.dtype, copy=True)}
        for piece in pieces
        for _, part, owned in piece.parts()
    }


def load(pieces: Iterable[Piece], saved: dict[str, dict[str, Any]], *, updates: int) -> None:
    """Load a state that `save` made after `updates` steps, in the same layout.

    Raises
    ------
    KeyError
        A parameter that this rank updates has no state.
    ValueError
        The state belongs to other elements.
    """
    for piece in pieces:
        piece.adam.updates = updates
        for _, part, owned in piece.parts():
            state = saved[owned.name]
            if state["start"] != owned.start:
                raise ValueError(f"{owned.name}: the optimizer's state begins at element {state['start']}")
            for name, values in piece.states.items():
                values[part] = state[name].to(values.device)


def save_residuals(pieces: Iterable[Piece]) -> dict[str, dict[str, Tensor]]:
    """Return residuals by parameter name, for a checkpoint: ``sent`` and ``summed``, in the parameter's local shape.

    ``sent`` is this rank's own. ``summed`` is zero except for elements whose sum this rank owned. Added up over the
    ranks it is whole, and every rank may load it.
    """
    return {
        slot.shard.name: {
            kind: to_tensor(values[slot.span]).view(slot.parameter.shape).to("cpu", copy=True)
            for kind, values in (("sent", piece.feedback.sent), ("summed", piece.feedback.summed))
        }
        for piece in pieces
        if piece.feedback
        for slot in piece.bucket.slots
    }


def load_residuals(pieces: Iterable[Piece], saved: dict[str, dict[str, Tensor]]) -> None:
    """Load residuals of `save_residuals`. The parameters may now lie in other buckets.

    Raises
    ------
    KeyError
        A parameter of this rank has no residuals.
    """
    for piece in pieces:
        if piece.feedback:
            piece.feedback.forget()
            for slot in piece.bucket.slots:
                for kind, values in (("sent", piece.feedback.sent), ("summed", piece.feedback.summed)):
                    to_tensor(values)[slot.span] = saved[slot.shard.name][kind].reshape(-1)
