"""Weights that exist only while they are used (ZeRO-3, arXiv 1910.02054, section 5.3).

Hooks on the units of a model (its blocks, and the parts before and after them) gather the buckets of a unit before its
forward and before its backward pass, and those of the next unit while it computes. A bucket's memory is freed when the
forward pass leaves the last unit in a row that uses it, and when all its gradients have been added. Hooks and autograd
see every use under every schedule, including evaluation and recomputation.

With a second copy within each node (hpZ of arXiv 2306.10209, section 3.2) the backward pass gathers from that copy.
Each rank of a node keeps its part of the weights that the first forward pass after an update gathered.
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
    """A bucket whose weights are gathered when they are needed."""

    bucket: Bucket
    source: Tensor
    """Part that this rank sends to the others: its piece of the master weights, on the model's device."""
    piece: Piece
    """Piece that this rank owns, with the mask of zero weights."""
    arriving: tuple[Buffer, Work] | None = None
    copy: Tensor | None = None
    """Part of its node's copy that this rank keeps, in the dtype of the weights."""
    fresh: bool = False
    """Whether the copy holds the weights after the last update."""


@dataclass(eq=False)
class Unit:
    """A part of the model that is entered and left as a whole."""

    entries: list[GatheredBucket] = field(default_factory=list)
    before: "Unit | None" = None
    after: "Unit | None" = None


def units(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the parts of a stack in the order of their use: its children, or each block of a list of blocks."""
    for child in module.children():
        yield from child.children() if isinstance(child, (nn.ModuleDict, nn.ModuleList)) else [child]


class OnDemand:
    """Weights that are gathered ahead of their use.

    Parameters
    ----------
    pieces
        The pieces that this rank owns.
    stacks
        The modules that use the weights, each entered unit by unit.
    mesh
        Mesh whose `Mesh.replicas` hold the pieces.
    policy
        Policy that gives the channels: (ZERO, FORWARD, PARAM) and (ZERO, BACKWARD, PARAM).
    overlap
        Whether to gather the next unit's weights while one computes.
    node_copy
        Whether to keep a second copy within each node.

    Raises
    ------
    ValueError
        A parameter belongs to no unit, so it would never be gathered. Or a bucket holds parameters of two stacks, which
        schedules run at different times, so the time to free it is undefined.
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
                f"{next(iter(missed.values()))} belongs to no unit of the model, so it would never be gathered"
            )
        for entry in self._entries.values():
            users = [stack for stack in stacks if any(homes[id(p)] is entry for p in stack.parameters())]
            if len(users) > 1 and len(entry.bucket.slots) > 1:
                raise ValueError("a bucket holds parameters of two stacks: make separate buckets for each stack")

    def give(self, piece: Piece, source: Tensor) -> None:
        """Let the next gather send `source`."""
        entry = self._entries[id(piece)]
        if entry.arriving:
            entry.arriving[1].wait()  # the received weights are those before the update
        entry.arriving = None
        entry.bucket.free_values()
        entry.source, entry.fresh = source, False

    def settle(self) -> None:
        """Do nothing, because weights are sent when they are needed."""

    def release(self, piece: Piece) -> None:
        """Note that the backward pass is done with the bucket's weights."""
        piece.bucket.free_values()

    def held_bytes(self, *, sources: bool) -> int:
        """Count the bytes that last from step to step: the nodes' copies, and the sources if `sources` is set."""
        return sum(
            (entry.copy.nbytes if entry.copy is not None else 0) + (entry.source.nbytes if sources else 0)
            for entry in self._entries.values()
        )

    def weights(self) -> Iterator[tuple[Slot, Tensor]]:
        """Yield every parameter's values, exactly as its owners have them. At most one bucket of them takes memory.

        Each bucket is a collective call, so that every replica must take them all.
        """
        for entry in self._entries.values():
            gathered = entry.bucket.room()
            group = self._mesh.replicas(entry.bucket.ep)
            group.all_gather(to_buffer(entry.source), gathered, channel=self._exact).wait()
            values = from_buffer(gathered, entry.bucket.values)
            for slot in entry.bucket.slots:
                yield slot, values[slot.span].view(slot.parameter.shape)

    def _entered(self, unit: Unit, module: nn.Module, arguments: Any) -> None:
        # within a backward pass this is recomputation: the backward pass needs the same weights right after it
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
        """Gather the weights of a unit, and begin to gather those of the next one."""
        for entry in unit.entries:
            self._fetch(entry, phase)
        for entry in unit.entries:
            self._arrive(entry)
        coming = unit.after if phase is Phase.FORWARD else unit.before
        if self._overlap and coming:
            for entry in coming.entries:
                self._fetch(entry, phase)

    def _fetch(self, entry: GatheredBucket, phase: Phase) -> None:
        """Begin to gather, unless the weights have arrived or are under way."""
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
    """Return whether autograd's engine is at work in this thread. PyTorch's own checkpointing asks in the same way."""
    return bool(torch._C._current_graph_task_id() != -1)
