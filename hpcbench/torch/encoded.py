"""The encoded operations of one group: the same plans that MPI carries out, over gloo."""

from collections.abc import Sequence
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
from hpcbench.contract.shards import Span, shards
from hpcbench.torch.account import Account, Row
from hpcbench.torch.device_calls import DeviceCalls, Prepared
from hpcbench.torch.gloo_carrier import drive
from hpcbench.torch.group_plans import GroupPlans
from hpcbench.torch.own_group import OwnGroup
from hpcbench.torch.residuals import Residuals
from hpcbench.torch.tensors import array
from hpcbench.torch.trial import Vectors
from hpcbench.torch.worker import Worker

_TAGS = 64
"""Slices with tags of their own. More of them are never under way."""


class EncodedGroup:
    """A group's encoded operations. All ranks of the group make them, at the same call.

    Parameters
    ----------
    group
        The group whose calls are encoded.
    account
        Is told what was sent.
    """

    def __init__(self, group: dist.ProcessGroup, account: Account) -> None:
        self._account = account
        self.rank, self.size = group.rank(), group.size()
        self._own = OwnGroup(group)
        self.worker = Worker(f"hpcbench {group.group_desc}")
        self._plans = GroupPlans(self.rank, self.size, self._own, self.worker)
        self.choice = self._plans.choice
        self._scratch = Scratch()
        self._place = HostPlace(self._scratch)
        self._device = DeviceCalls(self.rank, self.size)
        self._residuals = Residuals()
        self._calls = 0

    def stepped(self) -> None:
        """The program's optimizer has taken a step."""
        self._residuals.stepped()

    def plan(
        self, operation: Operation, n: int, dtype: np.dtype[Any], channel: Channel, *, on_host: bool = True
    ) -> Plan | None:
        """The plan of a call; None if the library's own collective is to carry it."""
        return self._plans.plan(operation, n, dtype, channel, self._begin_trial if on_host else None)

    def _begin_trial(self, vectors: Vectors, plan: Plan, channel: Channel) -> Work:
        calls, outs, srcs = self._calls, [vectors.out], [vectors.src]
        if plan.operation is Operation.ALL_GATHER:
            work = self.all_gather(outs, srcs, [plan], channel, Row())
        else:
            work = self._reduce(outs, srcs, [plan], channel, Row(), average=False)
        self._calls = calls  # the program's own calls have the seeds that they would have without
        return work

    def all_reduce(
        self, tensors: Sequence[torch.Tensor], plans: Sequence[Plan], channel: Channel, row: Row, *, average: bool
    ) -> Work:
        """Sum each tensor over the ranks, in place. The result is PyTorch's handle."""
        return self._reduce(tensors, tensors, plans, channel, row, average)

    def reduce_scatter(
        self,
        outs: Sequence[torch.Tensor],
        srcs: Sequence[torch.Tensor],
        plans: Sequence[Plan],
        channel: Channel,
        row: Row,
        *,
        average: bool,
    ) -> Work:
        """Sum each source over the ranks, and leave this rank's piece in its target."""
        return self._reduce(outs, srcs, plans, channel, row, average)

    def all_gather(
        self,
        outs: Sequence[torch.Tensor],
        srcs: Sequence[torch.Tensor],
        plans: Sequence[Plan],
        channel: Channel,
        row: Row,
    ) -> Work:
        """Join each source of all ranks in its target."""
        seeds = self._seeds(len(outs))
        if outs[0].device.type != "cpu":
            ready = [self._device.gathered(out, src) for out, src in zip(outs, srcs, strict=True)]
            return self._on_device(outs, ready, plans, channel, [None] * len(outs), seeds, row)

        def job() -> None:
            for out, src, plan, seed in zip(outs, srcs, plans, seeds, strict=True):
                target = out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)
                values = array(target)
                values[shards(values.size, self.size)[self.rank]] = array(src.contiguous())
                self._drive(self.choice.steps(plan), channel, plan.dtype, InPlace(values), None, seed, row, plan)
                if target is not out:
                    out.copy_(target)

        return self.worker.later(self._own.told(job), list(outs))

    def all_to_all(
        self,
        out: torch.Tensor,
        src: torch.Tensor,
        counts: tuple[Sequence[int], Sequence[int]],
        channel: Channel,
        row: Row,
        *,
        min_bytes: int,
    ) -> Work:
        """Send part i of the source to rank i. `counts` are elements to each rank and from each rank."""
        (seed,) = self._seeds(1)
        sends, receives = ([Span(*b) for b in pairwise(accumulate(part, initial=0))] for part in counts)
        width = src.element_size()
        todo = steps.all_to_all(self.rank, sends, receives, coded=lambda part: part.span.size * width >= min_bytes)

        def job() -> None:
            source = array(src.contiguous())
            target = out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)
            values = array(target)
            values[slice(*receives[self.rank])] = source[slice(*sends[self.rank])]
            self._drive([todo], channel, source.dtype, Exchanged(source, values), None, seed, row)
            if target is not out:
                out.copy_(target)

        return self.worker.later(self._own.told(job), [out])

    def _reduce(
        self,
        outs: Sequence[torch.Tensor],
        srcs: Sequence[torch.Tensor],
        plans: Sequence[Plan],
        channel: Channel,
        row: Row,
        average: bool,
    ) -> Work:
        seeds = self._seeds(len(outs))
        # asked for here: whether autograd is at work is known to the caller's thread alone
        residuals = [
            self._residuals.of(plan.operation.value, src) if channel.feedback else None
            for src, plan in zip(srcs, plans, strict=True)
        ]

        if outs[0].device.type != "cpu":
            ready = [self._device.total(out, src, average=average) for out, src in zip(outs, srcs, strict=True)]
            return self._on_device(outs, ready, plans, channel, residuals, seeds, row)

        def job() -> None:
            for out, src, plan, feedback, seed in zip(outs, srcs, plans, residuals, seeds, strict=True):
                lent: list[Array] = []
                self._sum(out, src, plan, channel, feedback, seed, row, average, lent)
                for buffer in lent:
                    self._scratch.give_back(buffer)

        return self.worker.later(self._own.told(job), list(outs))

    def _on_device(
        self,
        outs: Sequence[torch.Tensor],
        ready: Sequence[Prepared],
        plans: Sequence[Plan],
        channel: Channel,
        residuals: Sequence[Feedback | None],
        seeds: Sequence[int],
        row: Row,
    ) -> Work:
        def job() -> None:
            self._device.use(outs[0])
            for one, plan, feedback, seed in zip(ready, plans, residuals, seeds, strict=True):
                steps_ = self.choice.steps(plan)
                self._drive(steps_, channel, plan.dtype, one.vector, feedback, seed, row, plan, one.place)
                one.finish()

        return self.worker.later(self._own.told(job), list(outs))

    def _sum(
        self,
        out: torch.Tensor,
        src: torch.Tensor,
        plan: Plan,
        channel: Channel,
        feedback: Feedback | None,
        seed: int,
        row: Row,
        average: bool,
        lent: list[Array],
    ) -> None:
        """Sum a tensor in fp32. Half-precision values travel as such."""

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
                values *= share  # before the sum, which might not fit the type of its parts
            total = values
            vector: Vector = InPlace(values)
        else:
            own = shards(values.size, self.size)[self.rank]
            total = room(own.stop - own.start)
            vector = Reduced(values, total, Span(own.start, own.stop))
        self._drive(self.choice.steps(plan), channel, plan.dtype, vector, feedback, seed, row, plan)
        if average and src is not out:
            total *= share
        _write(total, out)

    def _drive(
        self,
        slices: Sequence[Sequence[steps.Step]],
        channel: Channel,
        dtype: np.dtype[Any],
        vector: Vector,
        feedback: Feedback | None,
        seed: int,
        row: Row,
        plan: Plan | None = None,
        place: Place | None = None,
    ) -> None:
        tally, place = Tally(), place or self._place
        codec = channel.codec if plan is None else plan.codec
        call = Call(self._own.carrier(), self.choice.topology, place, codec, dtype, vector, seed, feedback, tally)
        drive(
            carry_out(replace(call, seed=call.seed + (k << 14)), todo, k % _TAGS * STAGES)
            for k, todo in enumerate(slices)
        )
        self._account.sent(row, tally)

    def _seeds(self, count: int) -> list[int]:
        """A seed of stochastic rounding for each tensor: all ranks make the same calls, and so have the same seeds."""
        first, self._calls = self._calls, self._calls + count
        return [(first + k) << 20 for k in range(count)]


def _write(values: Array, out: torch.Tensor) -> None:
    """Round values to a tensor of any layout, unless they are in its memory."""
    target = out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)
    there = array(target)
    if there.dtype != values.dtype or there.ctypes.data != values.ctypes.data:
        narrow(values, there)
    if target is not out:
        out.copy_(target)
