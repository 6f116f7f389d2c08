"""Execution of single-slice plans with byte collectives of the whole group, for NCCL.

NCCL orders the messages of a communicator by call, and launches a kernel per call. Therefore, each step of a plan is
one collective with the messages of all ranks, instead of one message per pair of ranks:

    all-reduce      encode -> all-to-all -> decode, sum in fp32, encode -> all-gather -> decode      (two-shot)
    reduce-scatter  encode -> all-to-all -> decode, sum in fp32
    all-gather      encode -> all-gather -> decode
    all-to-all      encode -> all-to-all -> decode

Every rank calls the same collectives in program order, in a separate group. All sizes are computed from the plan. Ranks
exchange no lengths, so the codec's output must have a fixed size. Seeds, parts and summation order follow the plan
(comm/steps.py), so all carriers give bitwise identical results. The pieces of a gather are padded to the size of the
longest piece. `count_padding` counts these bytes.

The code is device-independent. Over gloo with host tensors, collectives block (HostOrder). Over NCCL, nothing blocks,
because all work is enqueued on the current stream (stream_order.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Protocol

import torch
from torch._C import _distributed_c10d as c10d

from hpcbench.comm.feedback import Feedback
from hpcbench.comm.memory import Tally
from hpcbench.comm.plan import Operation, Plan
from hpcbench.comm.steps import PeerSpan, PlanStep
from hpcbench.comm.topology import Topology
from hpcbench.contract.shards import ElementRange
from hpcbench.programs.kernel_operators import add_encode, count_wire_bytes, decode, encode
from hpcbench.programs.stream_order import StreamOrder, StreamPoint
from hpcbench.programs.tensors import TORCH_TYPES


class Submitted(Protocol):
    """Handle of a PyTorch collective."""

    def wait(self) -> Any:
        """Make the current stream wait for the collective. On the host, block until the collective has completed."""


class Collectives(Protocol):
    """Byte collectives that both the gloo and NCCL backends provide."""

    def alltoall_base(
        self, out: torch.Tensor, src: torch.Tensor, received: list[int], sent: list[int], options: Any, /
    ) -> Submitted:
        """Start an all-to-all with parts of the given sizes."""

    def _allgather_base(self, out: torch.Tensor, src: torch.Tensor, options: Any, /) -> Submitted:
        """Start an all-gather of equal parts."""


def count_longest_piece(plan: Plan) -> int:
    """Return the size in bytes of a gather's longest encoded piece."""
    return max(plan.codec.wire_bytes(piece.size, plan.dtype) for piece in plan.slices[0])


def count_padding(plan: Plan, rank: int) -> int:
    """Count a rank's padding bytes, which make all parts of a gather equally long."""
    if plan.operation is Operation.REDUCE_SCATTER or not plan.n:
        return 0
    n = plan.slices[0][rank].size
    return (plan.topology.ranks - 1) * (count_longest_piece(plan) - (plan.codec.wire_bytes(n, plan.dtype) if n else 0))


@dataclass
class CodecPoints:
    """Marks on the stream before and after each piece of the codec's work in one operation."""

    encode: list[tuple[StreamPoint, StreamPoint]] = field(default_factory=list)
    decode: list[tuple[StreamPoint, StreamPoint]] = field(default_factory=list)

    def add_to(self, tally: Tally) -> None:
        """Add the seconds between the marks. The stream must have passed all marks."""
        tally.encode_s += sum(end.since(begin) for begin, end in self.encode)
        tally.decode_s += sum(end.since(begin) for begin, end in self.decode)


@dataclass
class CollectiveCarrier:
    """Byte collectives of one group, for one call at a time. All methods enqueue work on the current stream.

    Attributes
    ----------
    backend
        Backend of a separate group.
    rank, topology
        Rank of this process, and the nodes of all ranks.
    order
        Order of device work.
    """

    backend: Collectives
    rank: int
    topology: Topology
    order: StreamOrder

    def begin(self, codec: str, sent: torch.dtype, seed: int, feedback: Feedback | None) -> "CollectiveCall":
        """Start a call that encodes values with dtype `sent`."""
        return CollectiveCall(self, codec, sent, seed, feedback)

    def exchange(self, received: list[int], sent: list[int], wire: torch.Tensor) -> torch.Tensor:
        """Send consecutive parts of `wire` to all ranks, and return the received parts."""
        out = wire.new_empty(sum(received))
        self.backend.alltoall_base(out, wire, received, sent, c10d.AllToAllOptions()).wait()
        return out

    def gather(self, wire: torch.Tensor) -> torch.Tensor:
        """Gather the bytes of all ranks. All ranks contribute the same number of bytes."""
        out = wire.new_empty(self.topology.ranks * wire.numel())
        self.backend._allgather_base(out, wire, c10d.AllgatherOptions()).wait()
        return out


class CollectiveCall:
    """One carrier operation, which counts its own messages."""

    def __init__(
        self, carrier: CollectiveCarrier, codec: str, sent: torch.dtype, seed: int, feedback: Feedback | None
    ) -> None:
        self._carrier, self._codec, self._sent, self._seed, self._feedback = carrier, codec, sent, seed, feedback
        self._ranks = carrier.topology.ranks
        self.tally, self.times = Tally(), CodecPoints()

    def reduce(self, plan: Plan, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of this rank's piece in fp32."""
        return self._sum(self._exchange_contributions(plan, values), plan, values)

    def all_reduce(self, plan: Plan, values: torch.Tensor, out: torch.Tensor) -> None:
        """Write the sums of all pieces to `out`. `out` may share memory with `values`."""
        piece, received = plan.slices[0][self._carrier.rank], self._exchange_contributions(plan, values)
        wire = self._new_piece(plan, values)
        begin = self._carrier.order.mark()
        if self._ranks == 2 and piece.size and self._sent is torch.float32 and self._feedback is None:
            # one kernel: a + b and b + a are bitwise identical; with more ranks, values are summed in rank order
            local = values[piece.start : piece.stop]
            add_encode(
                received[: self._count(piece)], local, wire[: self._count(piece)], self._codec, self._next_seed()
            )
        elif piece.size:
            total = self._sum(received, plan, values)
            self._encode(total, wire, self._residual("server", piece))
        self.times.encode.append((begin, self._carrier.order.mark()))
        self._gather(plan, wire, out)

    def all_gather(self, plan: Plan, values: torch.Tensor, out: torch.Tensor) -> None:
        """Write the decoded pieces of all ranks to `out`. `values` is this rank's piece."""
        wire = self._new_piece(plan, values)
        begin = self._carrier.order.mark()
        self._encode(values, wire, None)
        self.times.encode.append((begin, self._carrier.order.mark()))
        self._gather(plan, wire, out)

    def all_to_all(
        self,
        steps: Sequence[PlanStep],
        values: torch.Tensor,
        sends: Sequence[ElementRange],
        out: torch.Tensor,
        receives: Any,
    ) -> None:
        """Send each rank its part of `values`, and write the parts of all ranks to `out`.

        `steps` contains both encoded and unencoded parts for other ranks. One collective sends all parts.
        """
        rank, coded = self._carrier.rank, {}
        sent, received = [0] * self._ranks, [0] * self._ranks
        for step in steps:
            for part in step.sends:
                sent[part.peer] = self._size(part, step.coded)
                coded[part.peer] = step.coded
            for part in step.receives:
                received[part.peer] = self._size(part, step.coded)
        wire = torch.empty(sum(sent), dtype=torch.uint8, device=values.device)
        at = _starts(sent)
        begin = self._carrier.order.mark()
        for step in steps:
            for part in step.sends:
                target = wire[at[part.peer] : at[part.peer] + sent[part.peer]]
                self._write_part(values[slice(*part.span)], target, step.coded)
                self._count_sent(part, sent[part.peer], coded=step.coded)
        self.times.encode.append((begin, self._carrier.order.mark()))
        came, at = self._carrier.exchange(received, sent, wire), _starts(received)
        out[slice(*receives[rank])].copy_(values[slice(*sends[rank])])
        begin = self._carrier.order.mark()
        for step in steps:
            for part in step.receives:
                source = came[at[part.peer] : at[part.peer] + received[part.peer]]
                target = out[slice(*part.span)]
                if step.coded:
                    decode(source, target, self._codec, self._sent, False)
                else:
                    target.view(torch.uint8).copy_(source)
        self.times.decode.append((begin, self._carrier.order.mark()))

    def _exchange_contributions(self, plan: Plan, values: torch.Tensor) -> torch.Tensor:
        """Encode and send every owner's piece. Return the other ranks' encoded contributions to this rank's piece."""
        carrier, pieces = self._carrier, plan.slices[0]
        sent = [0 if rank == carrier.rank else self._count(piece) for rank, piece in enumerate(pieces)]
        received = [0 if rank == carrier.rank else self._count(pieces[carrier.rank]) for rank in range(self._ranks)]
        wire, at = torch.empty(sum(sent), dtype=torch.uint8, device=values.device), _starts(sent)
        begin = carrier.order.mark()
        for part in plan.steps(carrier.rank, 0)[0].sends:
            target = wire[at[part.peer] : at[part.peer] + sent[part.peer]]
            self._encode(values[slice(*part.span)], target, self._residual("worker", part.span))
            self._count_sent(part, sent[part.peer], coded=True)
        self.times.encode.append((begin, carrier.order.mark()))
        return carrier.exchange(received, sent, wire)

    def _sum(self, received: torch.Tensor, plan: Plan, values: torch.Tensor) -> torch.Tensor:
        """Add all contributions to this rank's piece in rank order. The rank's own contribution stays exact."""
        rank, piece = self._carrier.rank, plan.slices[0][self._carrier.rank]
        nbytes = self._count(piece)
        others = [received[k * nbytes : (k + 1) * nbytes] for k in range(self._ranks - 1)] if piece.size else []
        contributions: list[torch.Tensor | None] = [*others[:rank], None, *others[rank:]]  # None: this rank's own
        if rank == 1:
            contributions[:2] = contributions[1::-1]  # a + b and b + a are bitwise identical, so no copy is needed
        mine = values[slice(*piece)]
        total = torch.empty(piece.size, dtype=torch.float32, device=values.device)
        begin = self._carrier.order.mark()
        for k, wire in enumerate(contributions):
            if wire is not None:
                decode(wire, total, self._codec, self._sent, k > 0)
            elif k:
                total.add_(mine)
            else:
                total.copy_(mine)
        self.times.decode.append((begin, self._carrier.order.mark()))
        return total

    def _gather(self, plan: Plan, wire: torch.Tensor, out: torch.Tensor) -> None:
        """Send this rank's encoded piece to all ranks. Decode all pieces, so that replicas are bitwise identical."""
        rank = self._carrier.rank
        for peer in range(self._ranks):
            if peer != rank:
                self._count_sent(PeerSpan(peer, plan.slices[0][rank]), wire.numel(), coded=True)
        came = self._carrier.gather(wire)
        begin = self._carrier.order.mark()
        for rank, piece in enumerate(plan.slices[0]):
            if piece.size:
                source = came[rank * wire.numel() :][: self._count(piece)]
                decode(source, out[slice(*piece)], self._codec, self._sent, False)
        self.times.decode.append((begin, self._carrier.order.mark()))

    def _new_piece(self, plan: Plan, values: torch.Tensor) -> torch.Tensor:
        return torch.empty(count_longest_piece(plan), dtype=torch.uint8, device=values.device)

    def _write_part(self, values: torch.Tensor, target: torch.Tensor, coded: bool) -> None:
        if coded:
            self._encode(values, target, None)
        else:
            target.copy_(values.view(torch.uint8))

    def _encode(self, values: torch.Tensor, wire: torch.Tensor, residual: torch.Tensor | None) -> None:
        encode(values, wire, residual, self._codec, self._sent, self._next_seed())

    def _next_seed(self) -> int:
        """Return the next seed for stochastic rounding, as in `comm.execute.Call`."""
        self._seed += 1
        return self._seed * self._ranks + self._carrier.rank

    def _residual(self, which: str, span: ElementRange) -> torch.Tensor | None:
        if self._feedback is None:
            return None
        return torch.as_tensor(getattr(self._feedback, which)(span))

    def _count(self, span: ElementRange) -> int:
        return count_wire_bytes(self._codec, span.size, self._sent) if span.size else 0

    def _size(self, part: PeerSpan, coded: bool) -> int:
        return self._count(part.span) if coded else part.span.size * self._sent.itemsize

    def _count_sent(self, part: PeerSpan, nbytes: int, *, coded: bool) -> None:
        message = part.span.size * self._sent.itemsize
        self.tally.message_bytes += message
        self.tally.wire_bytes += nbytes
        self.tally.coded_bytes += message if coded and self._codec != "none" else 0
        if not self._carrier.topology.near(self._carrier.rank, part.peer):
            self.tally.network_bytes += nbytes


def _starts(sizes: Sequence[int]) -> list[int]:
    return [0, *accumulate(sizes)]


def resolve_sent_type(plan: Plan) -> torch.dtype:
    """Return the dtype in which a plan's values are sent."""
    return TORCH_TYPES[plan.dtype]
