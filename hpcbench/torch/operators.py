"""What is done in place of each of c10d's operators.

A handler gets the group's calls, the plain operator with another first argument, and the operator's arguments. It gives
back what the operator would: a handle of the work, with the tensors where the schema says so; None leaves the call to
PyTorch, as it is. That is the way of most calls, so that little is done on it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from hpcbench.contract.decide import Call
from hpcbench.torch import messages
from hpcbench.torch.account import Account
from hpcbench.torch.groups import AVERAGE, GroupCalls
from hpcbench.torch.worker import handle

Tensors = Sequence[torch.Tensor]
Plain = Callable[..., Any]


class Operators:
    """The handlers, by the operators' names.

    Parameters
    ----------
    account
        Is told what was sent.
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
        self, calls: GroupCalls, _: Plain, tensors: Tensors, _group: Any, op: Any, sparse: Any, *_rest: Any
    ) -> Any:
        # several tensors are several devices of a rank, whose values gloo adds up, too
        work = None if sparse is not None or len(tensors) != 1 else self._sum_in_place(calls, tensors, op)
        return None if work is None else (tensors, work)

    def _allreduce_coalesced(
        self, calls: GroupCalls, _: Plain, tensors: Tensors, _group: Any, op: Any, *_rest: Any
    ) -> Any:
        return self._sum_in_place(calls, tensors, op)

    def _sum_in_place(self, calls: GroupCalls, tensors: Tensors, op: Any) -> Any:
        chosen = calls.choose(Call.ALL_REDUCE, tensors, op=op)
        if chosen.channel is None:
            return None
        average = op.op() == AVERAGE
        return calls.encoded.all_reduce(tensors, chosen.plans, chosen.channel, chosen.row, average=average).boxed()

    def _allgather_base(self, calls: GroupCalls, _: Plain, out: torch.Tensor, src: torch.Tensor, *_rest: Any) -> Any:
        row, channel, plans, *_more = calls.choose(Call.ALL_GATHER, [out])
        if channel is None or not _fit([out], [src], calls.size):
            return None
        return out, calls.encoded.all_gather([out], [src], plans, channel, row).boxed()

    def _allgather_coalesced(self, calls: GroupCalls, _: Plain, outs: Tensors, srcs: Tensors, *_rest: Any) -> Any:
        row, channel, plans, *_more = calls.choose(Call.FUNCTIONAL_GATHER, outs)
        if channel is None or not _fit(outs, srcs, calls.size):
            return None
        return calls.encoded.all_gather(outs, srcs, plans, channel, row).boxed()

    def _allgather_list(self, calls: GroupCalls, _: Plain, outs: Sequence[Tensors], srcs: Tensors, *_rest: Any) -> Any:
        whole = _like_all(outs[0]) if len(outs) == 1 and _alike(outs[0]) else None
        if whole is None:
            calls.exact("all-gather of lists", srcs)
            return None
        row, channel, plans, *_more = calls.choose(Call.ALL_GATHER, [whole])
        if channel is None:
            return None
        joined = whole.contiguous()  # memory of its own: the decision needed none
        work = calls.encoded.all_gather([joined], srcs, plans, channel, row)
        return outs, _then(work, lambda: _split(joined, outs[0]), outs)

    def _reduce_scatter_base(
        self, calls: GroupCalls, _: Plain, out: torch.Tensor, src: torch.Tensor, _group: Any, op: Any, *_rest: Any
    ) -> Any:
        work = self._sum_apart(calls, [out], [src], op)
        return None if work is None else (out, work)

    def _reduce_scatter_coalesced(
        self, calls: GroupCalls, _: Plain, outs: Tensors, srcs: Tensors, _group: Any, op: Any, *_rest: Any
    ) -> Any:
        return self._sum_apart(calls, outs, srcs, op)

    def _reduce_scatter_list(
        self, calls: GroupCalls, _: Plain, outs: Tensors, srcs: Sequence[Tensors], _group: Any, op: Any, *_rest: Any
    ) -> Any:
        if len(srcs) != 1 or not _alike(srcs[0]):
            calls.exact("reduce-scatter of lists", outs)
            return None
        row, channel, plans, *_more = calls.choose(Call.REDUCE_SCATTER, [_like_all(srcs[0])], op=op)
        if channel is None:
            return None
        joined = torch.cat([part.reshape(-1) for part in srcs[0]])
        average = op.op() == AVERAGE
        return outs, calls.encoded.reduce_scatter(outs, [joined], plans, channel, row, average=average).boxed()

    def _sum_apart(self, calls: GroupCalls, outs: Tensors, srcs: Tensors, op: Any) -> Any:
        row, channel, plans, *_more = calls.choose(Call.REDUCE_SCATTER, srcs, op=op)
        if channel is None or not _fit(srcs, outs, calls.size):
            return None
        return calls.encoded.reduce_scatter(outs, srcs, plans, channel, row, average=op.op() == AVERAGE).boxed()

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
        row, channel, _plans, least = calls.choose(Call.ALL_TO_ALL, [src], ragged=True)
        if channel is None:
            return None
        counts = _elements(src, sent, calls.encoded.size), _elements(out, got, calls.encoded.size)
        return calls.encoded.all_to_all(out, src, counts, channel, row, min_bytes=least).boxed()

    def _alltoall_list(self, calls: GroupCalls, _: Plain, outs: Tensors, srcs: Tensors, *_rest: Any) -> Any:
        row, channel, _plans, least = calls.choose(Call.ALL_TO_ALL, srcs, ragged=True)
        if channel is None:
            return None
        joined = torch.cat([part.reshape(-1) for part in srcs])
        there = joined.new_empty(sum(part.numel() for part in outs))
        counts = [part.numel() for part in srcs], [part.numel() for part in outs]
        work = calls.encoded.all_to_all(there, joined, counts, channel, row, min_bytes=least)
        return outs, _then(work, lambda: _split(there, outs), outs)

    def _send(self, calls: GroupCalls, plain: Plain, tensors: Tensors, _group: Any, peer: int, *_rest: Any) -> Any:
        row, channel, *_ = calls.choose(Call.MESSAGE, tensors, peer=peer)
        if channel is None or len(tensors) != 1:
            return None
        return plain([messages.encoded(tensors[0], channel.codec, calls.next_seed(), self._account, row)])

    def _received(
        self, calls: GroupCalls, plain: Plain, tensors: Tensors, _group: Any, peer: int | None, *_rest: Any
    ) -> Any:
        row, channel, *_ = calls.choose(Call.MESSAGE, tensors, peer=peer)
        if channel is None or len(tensors) != 1:
            return None

        def receive(inbox: torch.Tensor) -> Work:
            return Work.unbox(plain([inbox]))

        return messages.received(tensors[0], channel.codec, receive, self._account, row).boxed()

    def _received_from_any(self, calls: GroupCalls, plain: Plain, tensors: Tensors, group: Any, *_rest: Any) -> Any:
        return self._received(calls, plain, tensors, group, None)


def _fit(wholes: Tensors, parts: Tensors, ranks: int) -> bool:
    """Whether each whole has room for a part of each rank. PyTorch itself says what is wrong if it has not."""
    return len(wholes) == len(parts) and all(
        whole.numel() == ranks * part.numel() and whole.dtype == part.dtype
        for whole, part in zip(wholes, parts, strict=True)
    )


def _alike(parts: Tensors) -> bool:
    return bool(parts) and all(t.numel() == parts[0].numel() and t.dtype == parts[0].dtype for t in parts)


def _like_all(parts: Tensors) -> torch.Tensor:
    """A tensor of the size and type of all parts together. It has no memory of its own."""
    return parts[0].new_zeros(1).expand(len(parts) * parts[0].numel())


def _elements(tensor: torch.Tensor, splits: Sequence[int], ranks: int) -> list[int]:
    """Elements of each rank's part. Splits count rows; without them, the parts are equal."""
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


def _then(work: Work, copy: Callable[[], None], result: Any) -> Any:
    """The handle of a copy that follows the work."""

    def after(future: Any) -> Any:
        future.wait()
        copy()
        return result

    return handle(work.get_future().then(after)).boxed()
