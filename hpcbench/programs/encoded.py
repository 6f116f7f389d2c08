"""Encoded operations of one group over gloo. The operations use the same plans as over MPI."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from hpcbench.codecs.types import Array
from hpcbench.comm import steps
from hpcbench.comm.channel import Channel
from hpcbench.comm.execute import STAGES, Call, carry_out
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.memory import Tally
from hpcbench.comm.places import HostPlace, Place
from hpcbench.comm.plan import Operation, Plan
from hpcbench.comm.rounding import narrow, widen
from hpcbench.comm.scratch import Scratch
from hpcbench.comm.vector import Exchanged, InPlace, Reduced, Vector
from hpcbench.contract.shards import ElementRange, cut_evenly
from hpcbench.programs.account import Account, CallCounts
from hpcbench.programs.call_carrier import Begin, CallCarrier
from hpcbench.programs.call_order import CallOrder
from hpcbench.programs.device_calls import DeviceCalls, Prepared
from hpcbench.programs.gloo_carrier import drive
from hpcbench.programs.group_plans import GroupPlans
from hpcbench.programs.residuals import Residuals
from hpcbench.programs.second_group import SecondGroup
from hpcbench.programs.tensors import array
from hpcbench.programs.trial import Vectors
from hpcbench.programs.worker import Job, JobThread

_TAGS = 64
"""Number of slices with distinct tags, and maximum number of slices in flight."""


class EncodedGroup(CallCarrier):
    """Encoded operations of one group over gloo.

    Parameters
    ----------
    group
        Group whose calls are encoded.
    account
        Counts of sent messages.
    """

    def __init__(self, group: dist.ProcessGroup, account: Account) -> None:
        self._account = account
        self.rank, self.size = group.rank(), group.size()
        self._second = SecondGroup(group)
        self._worker = JobThread(f"hpcbench {group.group_desc}")
        self._order = CallOrder(f"hpcbench decisions {group.group_desc}")
        self.plans = GroupPlans(self.rank, self.size, self._second, self._worker, self._begin_trial)
        self._choice = self.plans.choice
        self._scratch = Scratch()
        self._place = HostPlace(self._scratch)
        self._device = DeviceCalls(self.rank, self.size)
        self._residuals = Residuals()
        self._calls = 0

    def stepped(self) -> None:
        """Begin a new step, after the program's optimizer has made a step."""
        self._residuals.stepped()

    def stop(self, patience_s: float) -> None:
        """Stop the threads."""
        self._order.stop(patience_s)
        self._worker.stop(patience_s)

    def lay(self, operation: Operation, n: int, dtype: np.dtype[Any], channel: Channel) -> Plan | None:
        """Return the plan of a call without communicating, or None to use gloo's own collective."""
        return self.plans.lay(operation, n, dtype, channel)

    def begin(self, call: Callable[[], Work], result: Any, *, decided: bool) -> Work:
        """Start a call after all earlier calls that wait for a decision of the ranks."""
        return self._order.begin(call, result) if decided else self._order.queue(call, result)

    def plain_group(self) -> dist.ProcessGroup:
        """Return the second gloo group."""
        return self._second.process_group()

    def _begin_trial(self, vectors: Vectors, plan: Plan, channel: Channel) -> Work:
        calls, outs, srcs = self._calls, [vectors.out], [vectors.src]
        if plan.operation is Operation.ALL_GATHER:
            begin = self.all_gather(outs, srcs, channel, CallCounts())
        else:
            begin = self.reduce(plan.operation, outs, srcs, channel, CallCounts(), average=False)
        work = begin([plan])
        self._calls = calls  # the program's calls use the same seeds with and without trials
        return work

    def all_gather(
        self, outs: Sequence[torch.Tensor], srcs: Sequence[torch.Tensor], channel: Channel, row: CallCounts
    ) -> Begin:
        """Prepare to gather each source from all ranks into its target."""
        if outs[0].device.type != "cpu":
            ready = [self._device.gathered(out, src) for out, src in zip(outs, srcs, strict=True)]
            return self._prepare_on_device(outs, ready, channel, [None] * len(outs), row)

        def begin(plans: Sequence[Plan]) -> Work:
            seeds = self._seeds(len(outs))

            def job() -> None:
                for out, src, plan, seed in zip(outs, srcs, plans, seeds, strict=True):
                    target = _contiguous(out)
                    values = array(target)
                    values[cut_evenly(values.size, self.size)[self.rank]] = array(src.contiguous())
                    self._drive(self._choice.steps(plan), channel, plan.dtype, InPlace(values), None, seed, row, plan)
                    if target is not out:
                        out.copy_(target)

            return self._do(job, outs)

        return begin

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
        """Start to send part i of `src` to rank i.

        `counts` contains the numbers of elements sent to each rank and received from each rank.
        """
        sends, receives = ([ElementRange(*b) for b in pairwise(accumulate(part, initial=0))] for part in counts)
        width = src.element_size()
        todo = steps.all_to_all(self.rank, sends, receives, coded=lambda part: part.span.size * width >= min_bytes)

        def begin() -> Work:
            (seed,) = self._seeds(1)

            def job() -> None:
                source, target = array(src.contiguous()), _contiguous(out)
                values = array(target)
                values[slice(*receives[self.rank])] = source[slice(*sends[self.rank])]
                self._drive([todo], channel, source.dtype, Exchanged(source, values), None, seed, row)
                if target is not out:
                    out.copy_(target)

            return self._do(job, [out])

        return self._order.begin(begin, [out])

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

        If source and target are the same tensor, this tensor receives the full sum. Otherwise, the target receives this
        rank's piece.
        """
        # only the caller's thread can see whether autograd is active
        residuals = [self._residuals.of(operation.value, src) if channel.feedback else None for src in srcs]
        if outs[0].device.type != "cpu":
            ready = [self._device.total(out, src, average=average) for out, src in zip(outs, srcs, strict=True)]
            return self._prepare_on_device(outs, ready, channel, residuals, row)

        def begin(plans: Sequence[Plan]) -> Work:
            seeds = self._seeds(len(outs))

            def job() -> None:
                for out, src, plan, feedback, seed in zip(outs, srcs, plans, residuals, seeds, strict=True):
                    lent: list[Array] = []
                    self._sum(out, src, plan, channel, feedback, seed, row, average, lent)
                    for buffer in lent:
                        self._scratch.give_back(buffer)

            return self._do(job, outs)

        return begin

    def _prepare_on_device(
        self,
        outs: Sequence[torch.Tensor],
        ready: Sequence[Prepared],
        channel: Channel,
        residuals: Sequence[Feedback | None],
        row: CallCounts,
    ) -> Begin:
        def begin(plans: Sequence[Plan]) -> Work:
            seeds = self._seeds(len(outs))

            def job() -> None:
                self._device.use(outs[0])
                for call, plan, feedback, seed in zip(ready, plans, residuals, seeds, strict=True):
                    todo = self._choice.steps(plan)
                    self._drive(todo, channel, plan.dtype, call.vector, feedback, seed, row, plan, call.place)
                    call.finish()

            return self._do(job, outs)

        return begin

    def _do(self, job: Job, outs: Sequence[torch.Tensor]) -> Work:
        return self._worker.submit(self._second.reporting(job), list(outs))

    def _sum(
        self,
        out: torch.Tensor,
        src: torch.Tensor,
        plan: Plan,
        channel: Channel,
        feedback: Feedback | None,
        seed: int,
        row: CallCounts,
        average: bool,
        lent: list[Array],
    ) -> None:
        """Sum a tensor in fp32. Half-precision values are sent unchanged."""

        def room(n: int) -> Array:
            lent.append(self._scratch.take(4 * n))
            values: Array = lent[-1][: 4 * n].view(np.float32)
            return values

        source, share = array(src.contiguous()), np.float32(1 / self.size)
        values = source
        if source.dtype != np.float32:
            values = room(source.size)
            widen(source, values)
        if src is out:
            if average:
                values *= share  # before the sum, which might overflow
            total = values
            vector: Vector = InPlace(values)
        else:
            piece = cut_evenly(values.size, self.size)[self.rank]
            total = room(piece.stop - piece.start)
            vector = Reduced(values, total, ElementRange(piece.start, piece.stop))
        self._drive(self._choice.steps(plan), channel, plan.dtype, vector, feedback, seed, row, plan)
        if average and src is not out:
            total *= share
        _write(total, out)

    def _drive(
        self,
        slices: Sequence[Sequence[steps.PlanStep]],
        channel: Channel,
        dtype: np.dtype[Any],
        vector: Vector,
        feedback: Feedback | None,
        seed: int,
        row: CallCounts,
        plan: Plan | None = None,
        place: Place | None = None,
    ) -> None:
        tally, place = Tally(), place or self._place
        codec = channel.codec if plan is None else plan.codec
        call = Call(self._second.carrier(), self._choice.topology, place, codec, dtype, vector, seed, feedback, tally)
        drive(
            carry_out(replace(call, seed=call.seed + (k << 14)), todo, k % _TAGS * STAGES)
            for k, todo in enumerate(slices)
        )
        self._account.sent(row, tally)

    def _seeds(self, count: int) -> list[int]:
        """Return one seed per tensor for stochastic rounding."""
        first, self._calls = self._calls, self._calls + count
        return [(first + k) << 20 for k in range(count)]


def _write(values: Array, out: torch.Tensor) -> None:
    """Round values to the dtype of a tensor with any strides. Do nothing if the values share memory with the tensor."""
    target = _contiguous(out)
    rounded = array(target)
    if rounded.dtype != values.dtype or rounded.ctypes.data != values.ctypes.data:
        narrow(values, rounded)
    if target is not out:
        out.copy_(target)


def _contiguous(out: torch.Tensor) -> torch.Tensor:
    """Return the tensor if it is contiguous, otherwise an uninitialized contiguous tensor with the same shape."""
    return out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)
