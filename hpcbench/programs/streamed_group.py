"""Encoded operations of one group, executed with whole-group collectives (collective_carrier.py)."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from hpcbench.comm import steps
from hpcbench.comm.channel import Channel
from hpcbench.comm.choice import Choice
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.plan import Operation, Plan
from hpcbench.comm.topology import Topology
from hpcbench.contract.shards import ElementRange
from hpcbench.contract.traffic import Algorithm
from hpcbench.programs.account import Account, CallCounts
from hpcbench.programs.call_carrier import Begin, CallCarrier
from hpcbench.programs.collective_carrier import CollectiveCall, CollectiveCarrier, Collectives, resolve_sent_type
from hpcbench.programs.group_plans import lay_with
from hpcbench.programs.link_speed import GUESS
from hpcbench.programs.residuals import Residuals
from hpcbench.programs.stream_order import StreamOrder

ALGORITHMS = (Algorithm.ENCODED, Algorithm.TWO_SHOT)
"""Scheme algorithms that this carrier supports."""


class StreamedGroup(CallCarrier):
    """Encoded operations of one group. The caller's thread enqueues the operations on a private stream.

    Parameters
    ----------
    name
        Group name for error messages.
    rank, topology
        Rank of this process in the group, and the nodes of all ranks.
    order
        Order of device work.
    connect
        Function that returns the backend of a private group. The function is called on the first operation.
    account
        Counts of sent messages.
    """

    def __init__(
        self,
        name: str,
        rank: int,
        topology: Topology,
        order: StreamOrder,
        connect: Callable[[], Collectives],
        account: Account,
    ) -> None:
        self._name, self._rank, self._topology, self._order = name, rank, topology, order
        self._connect, self._account = connect, account
        self._choice = Choice(rank, topology, GUESS)
        self._residuals = Residuals()
        self._carrier: CollectiveCarrier | None = None
        self._calls = 0
        self._lock = threading.Lock()

    def lay(self, operation: Operation, n: int, dtype: np.dtype[Any], channel: Channel) -> Plan | None:
        """Return a two-shot plan with one slice for a call, independent of link speeds."""
        return lay_with(self._choice, operation, n, dtype, replace(channel, algorithm=Algorithm.TWO_SHOT, slices=1))

    def begin(self, call: Callable[[], Work], result: Any, *, decided: bool) -> Work:
        """Start a call immediately, because no decisions are pending."""
        return call()

    def plain_group(self) -> dist.ProcessGroup:
        """Raise an error, because this carrier leaves no planned call to PyTorch."""
        raise NotImplementedError("calls that use whole collectives are decided without the other ranks")

    def all_gather(
        self, outs: Sequence[torch.Tensor], srcs: Sequence[torch.Tensor], channel: Channel, row: CallCounts
    ) -> Begin:
        """Prepare to gather each source from all ranks into its target."""

        def carry_one(k: int, plan: Plan, call: CollectiveCall) -> None:
            out = _Target(outs[k])
            call.all_gather(plan, srcs[k].detach().reshape(-1), out.flat)
            out.finish()

        return self._prepare("all-gather", outs, srcs, channel, [None] * len(outs), row, carry_one)

    def reduce(
        self,
        operation: Operation,
        outs: Sequence[torch.Tensor],
        srcs: Sequence[torch.Tensor],
        channel: Channel,
        row: CallCounts,
        *,
        average: bool,
    ) -> Begin:
        """Prepare to sum each source over the ranks.

        If source and target are the same tensor, the tensor receives the full sum. Otherwise, the target receives this
        rank's piece.
        """
        # only the caller's thread can see whether autograd is active
        residuals = [self._residuals.of(operation.value, src) if channel.feedback else None for src in srcs]
        share = 1 / self._topology.ranks

        def carry_one(k: int, plan: Plan, call: CollectiveCall) -> None:
            values, out = srcs[k].detach().reshape(-1), _Target(outs[k])
            if operation is Operation.ALL_REDUCE:
                if average:  # before the sum, which might overflow
                    values = values.float() * share
                call.all_reduce(plan, values, out.flat)
            else:
                total = call.reduce(plan, values)
                out.flat.copy_(total.mul_(share) if average else total)
            out.finish()

        return self._prepare(operation.value, outs, srcs, channel, residuals, row, carry_one)

    def all_to_all(
        self,
        out: torch.Tensor,
        src: torch.Tensor,
        counts: tuple[Sequence[int], Sequence[int]],
        channel: Channel,
        row: CallCounts,
        *,
        min_bytes: int,
    ) -> Work:
        """Start to send part i of `src` to rank i. Short parts are not encoded."""
        sends, receives = ([ElementRange(*b) for b in pairwise(accumulate(part, initial=0))] for part in counts)
        width = src.element_size()
        todo = steps.all_to_all(self._rank, sends, receives, coded=lambda part: part.span.size * width >= min_bytes)

        def submit(seed: int) -> list[CollectiveCall]:
            call = self._connect_once().begin(channel.codec.name, src.dtype, seed, None)
            target = _Target(out)
            call.all_to_all(todo, src.detach().reshape(-1), sends, target.flat, receives)
            target.finish()
            return [call]

        return self._submit("all-to-all", [out], [src], row, submit)

    def stepped(self) -> None:
        """Start a new step after a step of the program's optimizer."""
        self._residuals.stepped()

    def stop(self, patience_s: float) -> None:
        """Release tensors of finished calls. Unfinished calls keep their tensors."""
        with self._lock:
            self._order.release_finished()

    def _prepare(
        self,
        name: str,
        outs: Sequence[torch.Tensor],
        srcs: Sequence[torch.Tensor],
        channel: Channel,
        residuals: Sequence[Feedback | None],
        row: CallCounts,
        carry_one: Callable[[int, Plan, CollectiveCall], None],
    ) -> Begin:
        def begin(plans: Sequence[Plan]) -> Work:
            def submit(seed: int) -> list[CollectiveCall]:
                calls = []
                for k, plan in enumerate(plans):
                    call = self._connect_once().begin(
                        plan.codec.name, resolve_sent_type(plan), seed + (k << 20), residuals[k]
                    )
                    carry_one(k, plan, call)
                    calls.append(call)
                return calls

            return self._submit(name, outs, [*srcs, residuals], row, submit, len(outs))

        return begin

    def _submit(
        self,
        name: str,
        outs: Sequence[torch.Tensor],
        sources: Sequence[object],
        row: CallCounts,
        submit: Callable[[int], list[CollectiveCall]],
        vectors: int = 1,
    ) -> Work:
        """Enqueue an operation after the caller's work.

        The operation's tensors stay alive until the device has finished.
        """
        self._refuse_capture(name)
        with self._lock, torch.no_grad(), torch._C._AutoDispatchBelowAutograd():
            self._order.release_finished()
            first, self._calls = self._calls, self._calls + vectors
            with self._order.follow_caller():
                calls = submit(first << 20)
                handle = self._order.make_handle(outs)

                def count() -> None:
                    for call in calls:
                        call.times.add_to(call.tally)
                        self._account.add_times(row, call.tally)

                for call in calls:
                    self._account.sent(row, call.tally)
                self._order.keep([*outs, *sources], count)
        return handle

    def _connect_once(self) -> CollectiveCarrier:
        if self._carrier is None:
            self._carrier = CollectiveCarrier(self._connect(), self._rank, self._topology, self._order)
        return self._carrier

    def _refuse_capture(self, name: str) -> None:
        if self._order.is_capturing():
            raise RuntimeError(
                f"hpcbench: {name} of {self._name} was called during CUDA graph capture, which is not supported: "
                "run the program without CUDA graphs, or exclude the group with `groups: [{match: ..., "
                "dimension: EXACT}]`"
            )


class _Target:
    """A contiguous result vector for a tensor with any strides."""

    def __init__(self, out: torch.Tensor) -> None:
        self._out = out.detach()
        contiguous = (
            self._out if out.is_contiguous() else torch.empty_like(self._out, memory_format=torch.contiguous_format)
        )
        self._result = contiguous
        self.flat = contiguous.view(-1)

    def finish(self) -> None:
        """Copy the result to the tensor, unless they share memory."""
        if self._result is not self._out:
            self._out.copy_(self._result)
