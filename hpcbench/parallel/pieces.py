"""Pieces that a rank owns: the elements that the rank updates, with master weights and optimizer states.

A piece is a whole bucket or, with ZeRO (arXiv 1910.02054, section 5), 1/dp of a bucket. The optimizer updates a master
copy in fp32 or better. The model weights are the decoded values on every rank, including the owner, so replicas never
differ.
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
        Name of the parameter in the whole model.
    start, length
        First element and number of elements in the flattened local part of the parameter.
    """

    name: str
    start: int
    length: int


@dataclass
class Reduction:
    """A reduction of a bucket, with the buffer for the sum of the piece.

    The sent values are kept alive until the reduction has finished. If messages contain rows, `complete` sums the rows
    after their arrival.
    """

    result: Tensor
    work: Work
    sent: Buffer | None = None
    complete: Callable[[], None] | None = None
    residuals: Feedback | None = None
    """Residuals of a message that omits masked values, which are unpacked when the sum has arrived."""

    def wait(self) -> None:
        """Block until the sum has arrived."""
        self.work.wait()
        if self.complete:
            self.complete()


@dataclass
class Piece:
    """Part of a bucket that this rank updates."""

    bucket: Bucket
    owned: slice
    master: Tensor
    gradient: Tensor
    """Reduced gradient."""
    adam: AdamWState
    feedback: Feedback | None
    """Residuals of gradient messages, or of momentum messages of 1-bit Adam."""
    to_come: int = 0
    """Number of gradients that the backward pass has yet to add to the bucket."""
    reduction: Reduction | None = None
    """Reduction in progress, or None."""
    packing: Packing | None = None
    """Mask of the bucket, or None for dense weights."""

    def parts(self) -> Iterator[tuple[Slot, slice, Owned]]:
        """Yield each parameter that has elements in the piece.

        Each result contains the slot of the parameter in the bucket, the slice of its elements in the piece, and the
        position of these elements in the parameter.
        """
        for slot, part in self.bucket.parts(self.owned):
            start = self.owned.start + part.start - slot.span.start
            yield slot, part, Owned(slot.shard.name, start, part.stop - part.start)

    def counted(self) -> list[slice]:
        """List the slices of elements that the gradient norm includes."""
        runs: list[slice] = []
        for slot, part in self.bucket.parts(self.owned):
            if slot.shard.counts_in_norm:
                start = runs.pop().start if runs and runs[-1].stop == part.start else part.start
                runs.append(slice(start, part.stop))
        return runs

    @property
    def in_place(self) -> bool:
        """Whether the bucket itself contains the master weights and the reduced gradients."""
        return self.master is self.bucket.values

    @property
    def states(self) -> dict[str, Tensor]:
        """State of the optimizer, keyed by its names in checkpoints."""
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
    """Create piece `part` of `parts` pieces of a bucket. With a `link`, the states are in host memory.

    A piece that is the whole bucket may be `in_place`. In this case, weights in fp32 or better serve as master weights,
    and reduced gradients overwrite local gradients.
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
    """Return master weights and moments for a checkpoint, keyed by parameter name.

    ``master``, ``first`` and ``second`` contain the elements that this rank updates. ``start`` is the offset of the
    first element in the flattened local part of the parameter.
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
    """Return master weights as ``values`` in the dtype of the model weights, keyed by parameter name."""
    return {
        owned.name: {"start": owned.start, "values": piece.master[part].to("cpu", piece.bucket.values.dtype, copy=True)}
        for piece in pieces
        for _, part, owned in piece.parts()
    }


def load(pieces: Iterable[Piece], saved: dict[str, dict[str, Any]], *, updates: int) -> None:
    """Load a state that was saved with `save` after `updates` steps in the same layout.

    Raises
    ------
    KeyError
        The state of a parameter that this rank updates is missing.
    ValueError
        The state belongs to different elements.
    """
    for piece in pieces:
        piece.adam.updates = updates
        for _, part, owned in piece.parts():
            state = saved[owned.name]
            if state["start"] != owned.start:
                raise ValueError(
                    f"{owned.name}: the optimizer's state begins at element {state['start']}, not {owned.start}"
                )
            for name, values in piece.states.items():
                values[part] = state[name].to(values.device)


def save_residuals(pieces: Iterable[Piece]) -> dict[str, dict[str, Tensor]]:
    """Return the residuals for a checkpoint, keyed by parameter name.

    ``sent`` and ``summed`` have the local shape of the parameter. ``sent`` contains this rank's own residuals.
    ``summed`` is zero except for elements whose sum this rank owned. The sum of ``summed`` over the ranks is complete,
    and every rank may load it.
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
    """Load residuals that were saved with `save_residuals`. The parameters may be in different buckets now.

    Raises
    ------
    KeyError
        The saved residuals of one of this rank's parameters are missing.
    """
    for piece in pieces:
        if piece.feedback:
            piece.feedback.forget()
            for slot in piece.bucket.slots:
                for kind, values in (("sent", piece.feedback.sent), ("summed", piece.feedback.summed)):
                    to_tensor(values)[slot.span] = saved[slot.shard.name][kind].reshape(-1)
