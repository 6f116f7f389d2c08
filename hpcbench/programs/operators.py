"""Handlers of c10d operators.

A handler receives the group's calls, the plain operator, and the operator's arguments. The plain operator takes the
first argument and, optionally, a group that replaces the program's group. The handler returns the same values as the
operator: a `Work` handle, and tensors if the schema includes them. If the handler returns None, as for most calls,
PyTorch makes the call.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._distributed_c10d import ProcessGroup, Work

from hpcbench.comm.plan import Operation
from hpcbench.contract.call_treatment import CallKind
from hpcbench.programs import messages
from hpcbench.programs.account import Account
from hpcbench.programs.call_carrier import Begin
from hpcbench.programs.groups import AVERAGE, GroupCalls
from hpcbench.programs.worker import make_handle

Tensors = Sequence[torch.Tensor]
Plain = Callable[..., Any]
InGroup = Callable[[ProcessGroup], Work]
"""Function that starts PyTorch's own call in a group."""


class Operators:
    """The handlers, keyed by operator name.

    Parameters
    ----------
    account
        Counts of sent messages.
    """

    def __init__(self, account: Account) -> None:
        self._account = account
        self.handlers: dict[str, Callable[..., Any]] = {
            "allreduce_": self._allreduce,
            "allreduce_coalesced_": self._allreduce_coalesced,
            "_allgather_base_": self._allgather_base,
            "allgather_into_tensor_coalesced_": self._allgather_coalesced,
            "allgather_": self._allgather_list,
            "_reduce_scatter_base_": self._reduce_scatter_base,
            "reduce_scatter_tensor_coalesced_": self._reduce_scatter_coalesced,
            "reduce_scatter_": self._reduce_scatter_list,
            "alltoall_base_": self._alltoall_base,
            "alltoall_": self._alltoall_list,
            "send": self._send,
            "recv_": self._received,
            "recv_any_source_": self._received_from_any,
        }

    def _allreduce(
        self, calls: GroupCalls, plain: Plain, tensors: Tensors, _group: Any, op: Any, sparse: Any, *_rest: Any
    ) -> Any:
        # several tensors belong to several devices of a rank, and gloo also sums over them
        work = None if sparse is not None or len(tensors) != 1 else self._sum_in_place(calls, plain, tensors, op)
        return None if work is None else (tensors, work)

    def _allreduce_coalesced(
        self, calls: GroupCalls, plain: Plain, tensors: Tensors, _group: Any, op: Any, *_rest: Any
    ) -> Any:
        return self._sum_in_place(calls, plain, tensors, op)

    def _sum_in_place(self, calls: GroupCalls, plain: Plain, tensors: Tensors, op: Any) -> Any:
        row, channel, decision, _ = calls.choose(CallKind.ALL_REDUCE, tensors, op=op)
        if channel is None or decision is None:
            return None

        def prepare() -> Begin:
            average = op.op() == AVERAGE
            return decision.carrier.reduce(Operation.ALL_REDUCE, tensors, tensors, channel, row, average=average)

        return calls.carry_out(decision, list(tensors), prepare, _in_group(plain, tensors)).boxed()

    def _allgather_base(
        self, calls: GroupCalls, plain: Plain, out: torch.Tensor, src: torch.Tensor, *_rest: Any
    ) -> Any:
        work = self._gather(calls, CallKind.ALL_GATHER, _in_group(plain, out), [out], [src])
        return None if work is None else (out, work)

    def _allgather_coalesced(self, calls: GroupCalls, plain: Plain, outs: Tensors, srcs: Tensors, *_rest: Any) -> Any:
        return self._gather(calls, CallKind.FUNCTIONAL_GATHER, _in_group(plain, outs), outs, srcs)

    def _gather(self, calls: GroupCalls, call: CallKind, plain: InGroup, outs: Tensors, srcs: Tensors) -> Any:
        row, channel, decision, _ = calls.choose(call, outs)
        if channel is None or decision is None or not _fit(outs, srcs, calls.size):
            return None

        def prepare() -> Begin:
            return decision.carrier.all_gather(outs, srcs, channel, row)

        return calls.carry_out(decision, list(outs), prepare, plain).boxed()

    def _allgather_list(
        self, calls: GroupCalls, plain: Plain, outs: Sequence[Tensors], srcs: Tensors, *_rest: Any
    ) -> Any:
        like = _like_all(outs[0]) if len(outs) == 1 and _are_alike(outs[0]) else None
        if like is None:
            calls.exact("all-gather of lists", srcs)
            return None
        row, channel, decision, _ = calls.choose(CallKind.ALL_GATHER, [like])
        if channel is None or decision is None:
            return None

        def prepare() -> Begin:
            joined = like.contiguous()  # separate memory, which the decision does not need
            gather = decision.carrier.all_gather([joined], srcs, channel, row)
            return lambda plans: _then(gather(plans), lambda: _split(joined, outs[0]), outs)

        return outs, calls.carry_out(decision, outs, prepare, _in_group(plain, outs)).boxed()

    def _reduce_scatter_base(
        self, calls: GroupCalls, plain: Plain, out: torch.Tensor, src: torch.Tensor, _group: Any, op: Any, *_rest: Any
    ) -> Any:
        work = self._scatter(calls, _in_group(plain, out), [out], [src], op)
        return None if work is None else (out, work)

    def _reduce_scatter_coalesced(
        self, calls: GroupCalls, plain: Plain, outs: Tensors, srcs: Tensors, _group: Any, op: Any, *_rest: Any
    ) -> Any:
        return self._scatter(calls, _in_group(plain, outs), outs, srcs, op)

    def _scatter(self, calls: GroupCalls, plain: InGroup, outs: Tensors, srcs: Tensors, op: Any) -> Any:
        row, channel, decision, _ = calls.choose(CallKind.REDUCE_SCATTER, srcs, op=op)
        if channel is None or decision is None or not _fit(srcs, outs, calls.size):
            return None

        def prepare() -> Begin:
            average = op.op() == AVERAGE
            return decision.carrier.reduce(Operation.REDUCE_SCATTER, outs, srcs, channel, row, average=average)

        return calls.carry_out(decision, list(outs), prepare, plain).boxed()

    def _reduce_scatter_list(
        self,
        calls: GroupCalls,
        plain: Plain,
        outs: Tensors,
        srcs: Sequence[Tensors],
        _group: Any,
        op: Any,
        *_rest: Any,
    ) -> Any:
        if len(srcs) != 1 or not _are_alike(srcs[0]):
            calls.exact("reduce-scatter of lists", outs)
            return None
        row, channel, decision, _ = calls.choose(CallKind.REDUCE_SCATTER, [_like_all(srcs[0])], op=op)
        if channel is None or decision is None:
            return None

        def prepare() -> Begin:
            joined, average = torch.cat([part.reshape(-1) for part in srcs[0]]), op.op() == AVERAGE
            return decision.carrier.reduce(Operation.REDUCE_SCATTER, outs, [joined], channel, row, average=average)

        return outs, calls.carry_out(decision, list(outs), prepare, _in_group(plain, outs)).boxed()

    def _alltoall_base(
        self,
        calls: GroupCalls,
        _: Plain,
        out: torch.Tensor,
        src: torch.Tensor,
        _group: Any,
        got: Sequence[int],
        sent: Sequence[int],
        *_rest: Any,
    ) -> Any:
        row, channel, _decision, least = calls.choose(CallKind.ALL_TO_ALL, [src], ragged=True)
        if channel is None:
            return None
        counts = _elements(src, sent, calls.size), _elements(out, got, calls.size)
        return calls.carriers.of(src).all_to_all(out, src, counts, channel, row, min_bytes=least).boxed()

    def _alltoall_list(self, calls: GroupCalls, _: Plain, outs: Tensors, srcs: Tensors, *_rest: Any) -> Any:
        row, channel, _decision, least = calls.choose(CallKind.ALL_TO_ALL, srcs, ragged=True)
        if channel is None:
            return None
        joined = torch.cat([part.reshape(-1) for part in srcs])
        there = joined.new_empty(sum(part.numel() for part in outs))
        counts = [part.numel() for part in srcs], [part.numel() for part in outs]
        work = calls.carriers.of(joined).all_to_all(there, joined, counts, channel, row, min_bytes=least)
        return outs, _then(work, lambda: _split(there, outs), outs).boxed()

    def _send(self, calls: GroupCalls, plain: Plain, tensors: Tensors, _group: Any, peer: int, *_rest: Any) -> Any:
        row, channel, *_ = calls.choose(CallKind.MESSAGE, tensors, peer=peer)
        if channel is None or len(tensors) != 1:
            return None
        return plain([messages.encode_message(tensors[0], channel.codec, calls.next_seed(), self._account, row)])

    def _received(
        self, calls: GroupCalls, plain: Plain, tensors: Tensors, _group: Any, peer: int | None, *_rest: Any
    ) -> Any:
        row, channel, *_ = calls.choose(CallKind.MESSAGE, tensors, peer=peer)
        if channel is None or len(tensors) != 1:
            return None

        def receive(inbox: torch.Tensor) -> Work:
            return Work.unbox(plain([inbox]))

        return messages.receive_message(tensors[0], channel.codec, receive, self._account, row).boxed()

    def _received_from_any(self, calls: GroupCalls, plain: Plain, tensors: Tensors, group: Any, *_rest: Any) -> Any:
        return self._received(calls, plain, tensors, group, None)


def _in_group(plain: Plain, first: Any) -> InGroup:
    def begin(group: ProcessGroup) -> Work:
        done = plain(first, group)
        return Work.unbox(done[-1] if isinstance(done, (tuple, list)) else done)

    return begin


def _fit(wholes: Tensors, parts: Tensors, ranks: int) -> bool:
    """Return whether each complete vector is as large as all ranks' parts together. If not, PyTorch raises an error."""
    return len(wholes) == len(parts) and all(
        vector.numel() == ranks * part.numel() and vector.dtype == part.dtype
        for vector, part in zip(wholes, parts, strict=True)
    )


def _are_alike(parts: Tensors) -> bool:
    return bool(parts) and all(t.numel() == parts[0].numel() and t.dtype == parts[0].dtype for t in parts)


def _like_all(parts: Tensors) -> torch.Tensor:
    """Return a tensor with the total size and dtype of all parts, without allocating memory."""
    return parts[0].new_zeros(1).expand(len(parts) * parts[0].numel())


def _elements(tensor: torch.Tensor, splits: Sequence[int], ranks: int) -> list[int]:
    """Return the element count of each rank's part. Splits count rows. Without splits, all parts are equal."""
    if not splits:
        return [tensor.numel() // ranks] * ranks
    width = 1
    for size in tensor.shape[1:]:
        width *= size
    return [split * width for split in splits]


def _split(joined: torch.Tensor, parts: Tensors) -> None:
    at = 0
    for part in parts:
        part.copy_(joined[at : at + part.numel()].view(part.shape))
        at += part.numel()


def _then(work: Work, copy: Callable[[], None], result: Any) -> Work:
    """Return the handle of a copy that runs after the work."""

    def after(future: Any) -> Any:
        future.wait()
        copy()
        return result

    return make_handle(work.get_future().then(after))
