"""Weights that are allocated only while they are used (ZeRO-3, arXiv 1910.02054, section 5.3).

The units of a model are its blocks and the parts before and after the blocks. Hooks gather the buckets of a unit before
its forward pass and before its backward pass. The buckets of the next unit are gathered during the computation of a
unit. In the forward pass, the memory of a bucket is freed after the last of consecutive units that use the bucket. In
the backward pass, the memory is freed when all gradients of the bucket have been added. Hooks and autograd detect every
use of the weights under every schedule, including evaluation and recomputation.

With a second copy within each node (hpZ of arXiv 2306.10209, section 3.2), the backward pass gathers weights from this
copy. Each rank of a node keeps a part of the weights gathered in the first forward pass after an update.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hpcbench.comm.policy import Policy
from hpcbench.comm.work import Work
from hpcbench.contract.shards import cut_evenly
from hpcbench.contract.traffic import Dimension, MessageKind, Phase
from hpcbench.parallel.buckets import Bucket, Slot
from hpcbench.parallel.buffers import Buffer, from_buffer, to_buffer
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.pieces import Piece
from hpcbench.parallel.weights import arrived, to_send


@dataclass(eq=False)
class GatheredBucket:
    """A bucket whose weights are gathered on demand."""

    bucket: Bucket
    source: Tensor
    """Part that this rank sends to other ranks: its piece of the master weights, on the device of the model."""
    piece: Piece
    """Piece that this rank owns, including the mask of zero weights."""
    arriving: tuple[Buffer, Work] | None = None
    copy: Tensor | None = None
    """Part of the node-local copy on this rank, in the dtype of the weights."""
    fresh: bool = False
    """Whether the copy contains the weights of the last update."""


@dataclass(eq=False)
class Unit:
    """A part of the model whose weights are gathered and freed together."""

    entries: list[GatheredBucket] = field(default_factory=list)
    before: "Unit | None" = None
    after: "Unit | None" = None


def units(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the children of a stack in the order of use. The blocks of a list are yielded instead of the list."""
    for child in module.children():
        yield from child.children() if isinstance(child, (nn.ModuleDict, nn.ModuleList)) else [child]


class OnDemand:
    """Weights that are gathered ahead of their use.

    Parameters
    ----------
    pieces
        Pieces that this rank owns.
    stacks
        Modules that use the weights and are executed unit by unit.
    mesh
        Mesh whose groups `Mesh.replicas` hold the pieces.
    policy
        Policy that provides the channels (ZERO, FORWARD, PARAM) and (ZERO, BACKWARD, PARAM).
    overlap
        Whether the weights of the next unit are gathered during the computation of a unit.
    node_copy
        Whether a second copy is kept within each node.

    Raises
    ------
    ValueError
        A parameter belongs to no unit, so it would never be gathered. The error is also raised if a bucket contains
        parameters of two stacks, which run at different times, because the bucket could not be freed at the right
        time.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        stacks: Sequence[nn.Module],
        *,
        mesh: Mesh,
        policy: Policy,
        overlap: bool,
        node_copy: bool,
    ) -> None:
        self._mesh, self._overlap = mesh, overlap
        self._node = mesh.dp.within_node() if node_copy else None
        self._exact = policy.exact
        self._channels = {
            phase: policy.channel(Dimension.ZERO, phase, MessageKind.PARAM) for phase in (Phase.FORWARD, Phase.BACKWARD)
        }
        self._entries = {id(piece): GatheredBucket(piece.bucket, piece.master, piece) for piece in pieces}
        homes = {id(slot.parameter): entry for entry in self._entries.values() for slot in entry.bucket.slots}
        missed = {id(slot.parameter): slot.shard.name for piece in pieces for slot in piece.bucket.slots}
        for stack in stacks:
            before = None
            for module in units(stack):
                used = [homes[id(parameter)] for parameter in module.parameters()]
                unit = Unit(list(dict.fromkeys(used)), before)
                if before:
                    before.after = unit
                before = unit
                module.register_forward_pre_hook(partial(self._entered, unit))
                module.register_forward_hook(partial(self._left, unit))
                for parameter in module.parameters():
                    missed.pop(id(parameter), None)
        if missed:
            raise ValueError(
                f"{next(iter(missed.values()))} does not belong to any unit of the model, so it would never be gathered"
            )
        for entry in self._entries.values():
            users = [stack for stack in stacks if any(homes[id(p)] is entry for p in stack.parameters())]
            if len(users) > 1 and len(entry.bucket.slots) > 1:
                raise ValueError("a bucket contains parameters of two stacks: create separate buckets for each stack")

    def give(self, piece: Piece, source: Tensor) -> None:
        """Set the tensor that this rank sends in the next gather."""
        entry = self._entries[id(piece)]
        if entry.arriving:
            entry.arriving[1].wait()  # the received weights are older than the update
        entry.arriving = None
        entry.bucket.free_values()
        entry.source, entry.fresh = source, False

    def settle(self) -> None:
        """Do nothing, because weights are sent on demand."""

    def release(self, piece: Piece) -> None:
        """Record that the backward pass no longer needs the weights of the bucket."""
        piece.bucket.free_values()

    def held_bytes(self, *, sources: bool) -> int:
        """Count the bytes that persist between steps: the copies within nodes, and the sources if `sources` is set."""
        return sum(
            (entry.copy.nbytes if entry.copy is not None else 0) + (entry.source.nbytes if sources else 0)
            for entry in self._entries.values()
        )

    def weights(self) -> Iterator[tuple[Slot, Tensor]]:
        """Yield the values of every parameter without compression. At most one bucket is allocated at a time.

        Each bucket requires a collective call, so every replica must exhaust the iterator.
        """
        for entry in self._entries.values():
            gathered = entry.bucket.room()
            group = self._mesh.replicas(entry.bucket.ep)
            group.all_gather(to_buffer(entry.source), gathered, channel=self._exact).wait()
            values = from_buffer(gathered, entry.bucket.values)
            for slot in entry.bucket.slots:
                yield slot, values[slot.span].view(slot.parameter.shape)

    def _entered(self, unit: Unit, module: nn.Module, arguments: Any) -> None:
        # in a backward pass this is recomputation, and the backward pass needs the same weights immediately afterwards
        self._need(unit, Phase.BACKWARD if in_backward() else Phase.FORWARD)

    def _left(self, unit: Unit, module: nn.Module, arguments: Any, output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(partial(self._backward, unit))  # type: ignore[no-untyped-call]
        if in_backward():
            return
        staying = unit.after.entries if unit.after else []
        for entry in unit.entries:
            if entry not in staying:
                entry.bucket.free_values()

    def _backward(self, unit: Unit, gradient: Tensor) -> None:
        self._need(unit, Phase.BACKWARD)

    def _need(self, unit: Unit, phase: Phase) -> None:
        """Gather the weights of a unit, and start to gather the weights of the next unit."""
        for entry in unit.entries:
            self._fetch(entry, phase)
        for entry in unit.entries:
            self._arrive(entry)
        coming = unit.after if phase is Phase.FORWARD else unit.before
        if self._overlap and coming:
            for entry in coming.entries:
                self._fetch(entry, phase)

    def _fetch(self, entry: GatheredBucket, phase: Phase) -> None:
        """Start to gather a bucket, unless its weights have arrived or are in transit."""
        if entry.arriving or entry.bucket.has_values:
            return
        group = self._mesh.replicas(entry.bucket.ep)
        packing, owned = entry.piece.packing, entry.piece.owned
        source, gathered = to_send(entry.source, entry.bucket, packing)
        if phase is Phase.BACKWARD and self._node and entry.copy is not None and entry.fresh:
            group, source = self._node, entry.copy
            owned = cut_evenly(entry.bucket.values.numel(), group.size)[group.rank]
        tensors = None if packing else partial(entry.bucket.list_message_parts, owned)
        channel = self._channels[phase].describe(tensors)
        work = group.all_gather(to_buffer(source), gathered, channel=channel)
        entry.arriving = gathered, work.in_background() if self._overlap else work

    def _arrive(self, entry: GatheredBucket) -> None:
        if entry.arriving is None:
            return
        gathered, work = entry.arriving
        entry.arriving = None
        work.wait()
        entry.bucket.fill_values(arrived(gathered, entry.bucket, entry.piece.packing))
        if self._node and not entry.fresh:
            mine = cut_evenly(entry.bucket.values.numel(), self._node.size)[self._node.rank]
            entry.copy, entry.fresh = entry.bucket.values[mine].clone(), True


def in_backward() -> bool:
    """Return whether the autograd engine is running in this thread. PyTorch's checkpointing uses the same test."""
    return bool(torch._C._current_graph_task_id() != -1)
