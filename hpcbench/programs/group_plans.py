"""Plans of a group's calls, except where gloo's own collective is faster.

Ranks must agree on each plan. Therefore, plans depend only on data that is the same on all ranks, or on exchanged
times.
"""

from collections.abc import Callable, Sequence
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
from hpcbench.programs.link_speed import GUESS, add_gloo_times, measure_links
from hpcbench.programs.second_group import SecondGroup
from hpcbench.programs.tensors import TORCH_TYPES
from hpcbench.programs.trial import Plain, Vectors, is_faster, tried_size
from hpcbench.programs.worker import JobThread

SUMS = (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER)


BeginTrial = Callable[[Vectors, Plan, Channel], Work]
"""Function that starts an encoded call without counting it."""


class GroupPlans:
    """The plans of one group.

    Parameters
    ----------
    rank, size
        Rank of this process in the group, and number of ranks.
    second
        Group that carries the encoded messages.
    worker
        Thread that executes encoded operations.
    begin
        Function that starts an encoded call to measure its time.
    """

    def __init__(self, rank: int, size: int, second: SecondGroup, worker: JobThread, begin: BeginTrial) -> None:
        self._size, self._second, self._worker, self._begin = size, second, worker, begin
        self.choice = Choice(rank, second.topology(), GUESS)
        self._by_guess = Choice(rank, second.topology(), add_gloo_times(GUESS, size))
        self._measured_links = False
        self._is_faster: dict[tuple[object, ...], bool] = {}

    def lay(self, operation: Operation, n: int, dtype: np.dtype[Any], channel: Channel) -> Plan | None:
        """Return the plan of a call without communicating, or None to use the library's own collective.

        With `auto`, the plan is based on assumed link speeds.
        """
        choice = self._by_guess if channel.algorithm is Algorithm.AUTO else self.choice
        return lay_with(choice, operation, n, dtype, channel)

    def decide(self, operation: Operation, sizes: Sequence[int], dtype: np.dtype[Any], channel: Channel) -> list[Plan]:
        """Choose the plans of a call's vectors for `auto`, using measurements by all ranks.

        If the list is empty, the call is left to gloo. This method may block until all ranks make this call.

        Parameters
        ----------
        sizes
            Number of elements of each vector.
        """
        plans: list[Plan | None] = []

        def job() -> None:
            self._second.gloo()  # connects the ranks: the call uses gloo regardless of the decision
            plans.extend(self._decide(operation, n, dtype, channel) for n in sizes)

        self._second.reporting(job)()
        return [plan for plan in plans if plan is not None] if None not in plans else []

    def _decide(self, operation: Operation, n: int, dtype: np.dtype[Any], channel: Channel) -> Plan | None:
        if self.choice.topology.nodes > 1:
            self._measure_links()
            return lay_with(self.choice, operation, n, dtype, channel)
        channel = replace(channel, algorithm=Algorithm.ENCODED)
        tried = tried_size(n, dtype.itemsize, self._size)
        key = operation, tried, dtype, channel.codec.name, channel.feedback
        if key not in self._is_faster:
            plan = lay_with(self.choice, operation, tried, dtype, channel)
            self._is_faster[key] = plan is not None and self._try(plan, channel)
        return lay_with(self.choice, operation, n, dtype, channel) if self._is_faster[key] else None

    def _try(self, plan: Plan, channel: Channel) -> bool:
        without_residuals = replace(channel, feedback=False)  # residuals belong to the program's calls
        gloo = cast(Plain, self._second.gloo())
        vectors = Vectors(plan.operation, plan.n, TORCH_TYPES[plan.dtype], self.choice.rank, self._size)
        self._worker.submit(lambda: None, None).wait()  # calls in flight would be measured, too
        plain = partial(vectors.begin_plain, gloo)
        return is_faster(gloo, plain, lambda: self._begin(vectors, plan, without_residuals), vectors.renew)

    def _measure_links(self) -> None:
        """Measure the links between nodes on the first call that needs them."""
        if self._measured_links:
            return
        exchange = partial(self._second.exchange, "seconds")
        links = measure_links(self._second.carrier(), self.choice.topology, exchange)
        self.choice.links = add_gloo_times(links, self._size)
        self._measured_links = True


def lay_with(choice: Choice, operation: Operation, n: int, dtype: np.dtype[Any], channel: Channel) -> Plan | None:
    """Return the plan of a call, or None to use the library's own collective."""
    kind = np.dtype(np.float32) if operation in SUMS else dtype
    like: Array = np.broadcast_to(np.zeros((), kind), (n,))  # only its size and dtype matter
    plan = choice.plan(operation, like, channel, feedback=channel.feedback and operation in SUMS)
    return None if plan is None or plan.algorithm is Algorithm.NATIVE else plan
