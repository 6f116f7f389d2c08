"""A shard of the parameter server: the clocks of the workers, and the weight updates.

The clock of a worker is the number of gradients that the worker has pushed. A worker may read the weights for its next
gradient if the slowest worker is at most ``bound`` clocks behind (stale synchronous parallel, SSP). With a bound of 0,
all workers wait for each other in each step (BSP). Without a bound, no worker waits (ASP).

An update consumes n pushes in the order of arrival, where n is the number of workers. The pushes may come from any
workers and are summed in the order of worker and clock. All three methods therefore make the same number of updates,
with the same number of samples and the same learning rate. The methods differ only in the age of the weights with which
gradients were computed. With a bound of 0, an update contains the pushes of one clock, and their sum is bitwise
identical to an all-reduce in rank order.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hpcbench.errors import TransitError
from hpcbench.parallel.buffers import Buffer

MOST_RECORDED = 4000
"""Maximum number of trace entries, which is enough for several hundred steps of a few workers."""


class Push(NamedTuple):
    """A gradient that a worker pushes."""

    worker: int
    clock: int
    version: int
    """Version of the weights used for the gradient: the number of previous updates."""
    report: tuple[float, ...]
    """Report of the worker: values that are summed over all pushes of an update."""
    gradients: list[Buffer]


class TraceEntry(NamedTuple):
    """A trace entry."""

    what: str
    """Kind of the request: ``pull`` or ``push``."""
    worker: int
    clock: int
    version: int
    """Version of the weights that a pull has read, or with which a pushed gradient was computed."""
    updates: int
    """Number of updates of the shard at the time of the request."""


class Update(NamedTuple):
    """Information about an update, for a callback that observes the training run."""

    number: int
    report: tuple[float, ...]
    """Sum of the reports of all pushes in the update."""


@dataclass
class ServerShard:
    """Server shard with the clocks of the workers and the pending pushes.

    Attributes
    ----------
    workers
        Number of workers.
    bound
        Number of clocks that a worker may be ahead of the slowest worker, or None for no limit.
    apply
        Function that updates the weights with summed gradients. The function's second argument is the number of
        previous updates.
    updates
        Number of updates.
    clocks
        Number of pushes of each worker.
    staleness
        Number of gradients, keyed by staleness. The staleness is the number of updates between the weights used for a
        gradient and the weights that the gradient updated.
    trace
        The first `MOST_RECORDED` pulls and pushes.
    left_out
        Number of pulls and pushes that were not recorded because the trace was full.
    on_update
        Callback that is called after each update.
    """

    workers: int
    bound: int | None
    apply: Callable[[Sequence[Buffer], int], None]
    on_update: Callable[[Update], None] = lambda update: None
    updates: int = 0
    clocks: list[int] = field(default_factory=list)
    staleness: Counter[int] = field(default_factory=Counter)
    trace: list[TraceEntry] = field(default_factory=list)
    left_out: int = 0
    _waiting: list[Push] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clocks = self.clocks or [0] * self.workers

    def may_read(self, clock: int) -> bool:
        """Return whether a worker with this clock may read the weights for its next gradient."""
        return self.bound is None or min(self.clocks) >= clock - self.bound

    def pull(self, worker: int, clock: int) -> int:
        """Record that a worker reads the weights, and return their version."""
        self._record(TraceEntry("pull", worker, clock, self.updates, self.updates))
        return self.updates

    def push(self, push: Push) -> None:
        """Add a gradient. Update the weights if the gradient is the last gradient of an update.

        Raises
        ------
        TransitError
            A push of the worker was lost or arrived twice.
        """
        if push.clock != self.clocks[push.worker]:
            raise TransitError(
                f"worker {push.worker} pushes gradient {push.clock}, but {self.clocks[push.worker]} of its "
                "gradients have arrived: a push was lost or arrived twice, so this run's results are invalid"
            )
        self.clocks[push.worker] += 1
        self._record(TraceEntry("push", push.worker, push.clock, push.version, self.updates))
        self._waiting.append(push)
        if len(self._waiting) == self.workers:
            self._update()

    def _update(self) -> None:
        pushes = sorted(self._waiting, key=lambda push: (push.clock, push.worker))
        self._waiting = []
        sums = pushes[0].gradients
        for push in pushes[1:]:
            for total, gradient in zip(sums, push.gradients, strict=True):
                np.add(total, gradient, out=total)
        self.staleness.update(self.updates - push.version for push in pushes)
        self.apply(sums, self.updates)
        self.updates += 1
        self.on_update(Update(self.updates, tuple(map(sum, zip(*(push.report for push in pushes), strict=True)))))

    def _record(self, entry: TraceEntry) -> None:
        if len(self.trace) < MOST_RECORDED:
            self.trace.append(entry)
        else:
            self.left_out += 1


@dataclass
class Tickets:
    """Permissions to compute another gradient.

    Only the first shard grants permissions, so all shards receive the same pushes.

    Attributes
    ----------
    workers
        Number of workers.
    shared
        Whether fast workers take over work that slow workers have not begun (ASP).
    given
        Number of gradients that each worker was permitted to begin.
    until
        Last step for which tickets are granted. The number of tickets per step is the number of workers.
    opened
        Last step of the current round, as planned when the round was opened.
    """

    workers: int
    shared: bool
    given: list[int] = field(default_factory=list)
    until: int = 0
    opened: int = 0

    def open(self, until: int) -> None:
        """Begin a round up to step `until`."""
        self.opened = self.until = until

    def __post_init__(self) -> None:
        self.given = self.given or [0] * self.workers

    def take(self, worker: int) -> bool:
        """Return whether a worker may begin another gradient, and record the permission if so."""
        some_left = sum(self.given) < self.workers * self.until if self.shared else self.given[worker] < self.until
        self.given[worker] += some_left
        return some_left

    def end_early(self) -> int:
        """Restrict tickets to the steps that have begun, and return the last of these steps."""
        begun = -(-sum(self.given) // self.workers) if self.shared else max(self.given)
        self.until = min(self.until, max(begun, 0))
        return self.until
