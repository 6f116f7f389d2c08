"""The encoded operations of one group: the same plans that MPI carries out, over messages of a gloo group of its own.

The caller's own calls must not get between the messages of a plan. So they travel over a second group with the same
ranks, which is made at the first encoded call: all ranks of the group make that call.
"""

import os
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import accumulate, pairwise
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import Work
from torch.distributed import distributed_c10d

from hpcbench.codecs.types import Array
from hpcbench.comm import steps
from hpcbench.comm.channel import Channel
from hpcbench.comm.choice import Choice
from hpcbench.comm.execute import STAGES, Call, carry_out
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.links import Link, Links
from hpcbench.comm.memory import Tally
from hpcbench.comm.places import HostPlace
from hpcbench.comm.plan import Operation, Plan
from hpcbench.comm.rounding import narrow, widen
from hpcbench.comm.scratch import Scratch
from hpcbench.comm.topology import Topology
from hpcbench.comm.vector import Exchanged, InPlace, Reduced, Vector
from hpcbench.contract.shards import Span, shards
from hpcbench.contract.traffic import Algorithm
from hpcbench.torch.account import Account, Row
from hpcbench.torch.gloo_carrier import GlooCarrier, PointToPoint, drive
from hpcbench.torch.residuals import Residuals
from hpcbench.torch.tensors import array
from hpcbench.torch.worker import Job, Worker

LINKS = Links(Link(500e-6, 1e9), Link(500e-6, 1e9))
"""Speeds that plans over gloo are chosen by: a message costs tens of microseconds, in Python and in gloo's threads."""
_TAGS = 64
"""Slices with tags of their own. More of them are never under way."""
_SUMS = (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER)


_made: Counter[str] = Counter()
"""How often encoded operations were made for the group of a name: the same on all of its ranks."""


class EncodedGroup:
    """A group's encoded operations. Making one is a collective call.

    Parameters
    ----------
    group
        The group whose calls are encoded.
    account
        Is told what was sent.
    """

    def __init__(self, group: dist.ProcessGroup, account: Account) -> None:
        self._account = account
        self._name = f"group {group.group_desc}" if group.group_desc else "a group"
        self.rank, self.size = group.rank(), group.size()
        store = distributed_c10d._get_process_group_store(group)
        _made[group.group_name] += 1  # the keys of an earlier group lead to its closed connections
        self._store = c10d.PrefixStore(f"hpcbench {_made[group.group_name]}", store)
        self._timeout = _timeout(group)
        self.choice = Choice(self.rank, _topology(self._store, self.rank, self.size), LINKS)
        self.worker = Worker(f"hpcbench {group.group_desc}")
        self._carrier: GlooCarrier | None = None
        self._scratch = Scratch()
        self._place = HostPlace(self._scratch)
        self._residuals = Residuals()
        self._calls = 0

    def stepped(self) -> None:
        """The program's optimizer has taken a step."""
        self._residuals.stepped()

    def plan(self, operation: Operation, n: int, dtype: np.dtype[Any], channel: Channel) -> Plan | None:
        """The plan of a call; None if the library's own collective is to carry it."""
        kind = np.dtype(np.float32) if operation in _SUMS else dtype
        like: Array = np.broadcast_to(np.zeros((), kind), (n,))  # its size and type are all that counts
        found = self.choice.plan(operation, like, channel, feedback=channel.feedback and operation in _SUMS)
        return None if found is None or found.algorithm is Algorithm.NATIVE else found

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

        def job() -> None:
            for out, src, plan, seed in zip(outs, srcs, plans, seeds, strict=True):
                target = out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)
                values = array(target)
                values[shards(values.size, self.size)[self.rank]] = array(src.contiguous())
                self._drive(self.choice.steps(plan), channel, plan.dtype, InPlace(values), None, seed, row, plan)
                if target is not out:
                    out.copy_(target)

        return self.worker.later(self._told(job), list(outs))

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

        return self.worker.later(self._told(job), [out])

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

        def job() -> None:
            for out, src, plan, feedback, seed in zip(outs, srcs, plans, residuals, seeds, strict=True):
                lent: list[Array] = []
                self._sum(out, src, plan, channel, feedback, seed, row, average, lent)
                for buffer in lent:
                    self._scratch.give_back(buffer)

        return self.worker.later(self._told(job), list(outs))

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
    ) -> None:
        tally = Tally()
        codec = channel.codec if plan is None else plan.codec
        call = Call(self._carried(), self.choice.topology, self._place, codec, dtype, vector, seed, feedback, tally)
        drive(
            carry_out(replace(call, seed=call.seed + (k << 14)), todo, k % _TAGS * STAGES)
            for k, todo in enumerate(slices)
        )
        self._account.sent(row, tally)

    def _told(self, job: Job) -> Job:
        """A job that tells the other ranks why it failed: they see only that messages do not come."""

        def run() -> None:
            try:
                job()
            except Exception as error:
                raise RuntimeError(self._reason(error)) from error

        return run

    def _reason(self, error: Exception) -> str:
        """The words of an error, and of the rank that failed first if that was another one."""
        words = f"hpcbench, rank {self.rank} of {self._name}: {type(error).__name__}: {error}"
        try:
            if self._store.check(["failed"]):
                return f"{words}; before that, {self._store.get('failed').decode()}"
            self._store.set("failed", words)
        except RuntimeError:
            return words  # the rank that holds the store is gone
        return words

    def _carried(self) -> GlooCarrier:
        if self._carrier is None:
            group = dist.ProcessGroupGloo(self._store, self.rank, self.size, timeout=self._timeout)
            self._carrier = GlooCarrier(cast(PointToPoint, group), self.rank, self.size)
        return self._carrier

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


def _timeout(group: dist.ProcessGroup) -> timedelta:
    """How long the group itself waits."""
    options = getattr(group._get_backend(torch.device("cpu")), "options", None)
    timeout: timedelta = getattr(options, "_timeout", distributed_c10d.default_pg_timeout)
    return timeout


def _topology(store: c10d.Store, rank: int, size: int) -> Topology:
    """The nodes of a group's ranks. Ranks of one agent of torchrun are on one node."""
    store.set(f"node {rank}", f"{socket.gethostname()} {os.environ.get('GROUP_RANK', '')}")
    return Topology.by_label([store.get(f"node {peer}").decode() for peer in range(size)])
