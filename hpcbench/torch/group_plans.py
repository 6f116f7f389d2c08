"""The plan of each call of a group, or none where gloo's own collective is faster.

The decision depends only on what all ranks know alike, or on times that they have shared.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
from torch._C._distributed_c10d import Work

from hpcbench.codecs.types import Array
from hpcbench.comm.channel import Channel
from hpcbench.comm.choice import Choice
from hpcbench.comm.plan import Operation, Plan
from hpcbench.contract.traffic import Algorithm
from hpcbench.torch.link_speed import GUESS, measured, with_gloo
from hpcbench.torch.own_group import OwnGroup
from hpcbench.torch.tensors import TORCH_TYPES
from hpcbench.torch.trial import Plain, Vectors, pays, tried_size
from hpcbench.torch.worker import Worker

SUMS = (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER)
Begin = Callable[[Vectors, Plan, Channel], Work]
"""Begins an encoded call that nobody counts."""


class GroupPlans:
    """The plans of a group's calls. All ranks of the group make them, at the same call.

    Parameters
    ----------
    rank, size
        Number of this rank in the group, and number of ranks.
    own
        Carries the encoded messages.
    worker
        Does the encoded operations.
    """

    def __init__(self, rank: int, size: int, own: OwnGroup, worker: Worker) -> None:
        self._size, self._own, self._worker = size, own, worker
        self.choice = Choice(rank, own.topology(), GUESS)
        self._asked_links = False
        self._tried: dict[tuple[object, ...], bool] = {}

    def plan(
        self, operation: Operation, n: int, dtype: np.dtype[Any], channel: Channel, begin: Begin | None
    ) -> Plan | None:
        """The plan of a call; None if the library's own collective is to carry it.

        Parameters
        ----------
        begin
            Begins an encoded call, so that it can be tried; None for values on a device.
        """
        if channel.algorithm is not Algorithm.AUTO:
            return self._laid(operation, n, dtype, channel)
        if self.choice.topology.nodes == 1 and begin is not None:
            return self._faster(operation, n, dtype, replace(channel, algorithm=Algorithm.ENCODED), begin)
        if not self._asked_links:
            self._asked_links = True
            self._measure_links()
        return self._laid(operation, n, dtype, channel)

    def _laid(self, operation: Operation, n: int, dtype: np.dtype[Any], channel: Channel) -> Plan | None:
        kind = np.dtype(np.float32) if operation in SUMS else dtype
        like: Array = np.broadcast_to(np.zeros((), kind), (n,))  # its size and type are all that counts
        found = self.choice.plan(operation, like, channel, feedback=channel.feedback and operation in SUMS)
        return None if found is None or found.algorithm is Algorithm.NATIVE else found

    def _faster(
        self, operation: Operation, n: int, dtype: np.dtype[Any], channel: Channel, begin: Begin
    ) -> Plan | None:
        """Our plan if calls of about this size are faster by it. All ranks come here in the same call."""
        tried = tried_size(n, dtype.itemsize, self._size)
        key = operation, tried, dtype, channel.codec.name, channel.feedback
        if key not in self._tried:
            laid = self._laid(operation, tried, dtype, channel)
            self._tried[key] = laid is not None and self._try(laid, channel, begin)
        return self._laid(operation, n, dtype, channel) if self._tried[key] else None

    def _try(self, plan: Plan, channel: Channel, begin: Begin) -> bool:
        found: list[bool] = []
        unkept = replace(channel, feedback=False)  # residuals are the program's own

        def job() -> None:
            group = cast(Plain, self._own.group())
            vectors = Vectors(plan.operation, plan.n, TORCH_TYPES[plan.dtype], self.choice.rank, self._size)
            plain = partial(vectors.plainly, group)
            found.append(pays(group, plain, lambda: begin(vectors, plan, unkept), vectors.renew))

        self._worker.later(lambda: None, None).wait()  # what it does now would be measured, too
        self._own.told(job)()
        return found[0]

    def _measure_links(self) -> None:
        """Measure the links between nodes. All ranks come here in the same call, the first one that is planned."""
        found = [GUESS]

        def job() -> None:
            told = partial(self._own.told_by_all, "seconds")
            found.append(measured(self._own.carrier(), self.choice.topology, told))

        if self.choice.topology.nodes > 1:
            self._worker.later(self._own.told(job), None).wait()
        self.choice.links = with_gloo(found[-1], self._size)
