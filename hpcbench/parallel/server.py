"""A shard of the parameter server: the workers' clocks, and the updates of its weights. No messages.

A worker's clock is the number of gradients that it has pushed. It may read the weights for its next gradient if the
slowest worker is at most ``bound`` behind (stale synchronous parallel, SSP). With a bound of 0 all wait for each other
in each step (BSP). Without a bound no worker waits (ASP).

An update takes n pushes of any workers, the number of workers, in the order of arrival, and sums them by worker and
clock. So all three methods make the same number of updates, of the same number of samples, with the same learning rate;
they differ in the age of the weights that gradients were computed with. With a bound of 0 the pushes of an update are
those of one clock, and their sum has the bits of an all-reduce in rank order.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hpcbench.errors import TransitError
from hpcbench.parallel.buffers import Buffer

MOST_RECORDED = 4000
"""Largest number of entries of a trace: pulls and pushes of several hundred steps of a few workers."""


class Push(NamedTuple):
    """A gradient of one worker."""

    worker: int
    clock: int
    version: int
    """Version of its weights: the number of updates before."""
    report: tuple[float, ...]
    """The worker's report: numbers that are summed over an update."""
    gradients: list[Buffer]


class TraceEntry(NamedTuple):
    """An entry of the trace."""

    what: str
    """``pull`` or ``push``."""
    worker: int
    clock: int
    version: int
    """Version that was read; of a push, the version that the gradient was computed with."""
    updates: int
    """Number of updates of the shard when it came."""


class Update(NamedTuple):
    """An update, for an observer of the training."""

    number: int
    report: tuple[float, ...]
    """Sums of the reports of its pushes."""


@dataclass
class ServerShard:
    """The clocks of the workers, and the pushes that wait for an update.

    Attributes
    ----------
    workers
        Number of workers.
    bound
        Number of clocks that a worker may be ahead of the slowest one; None for any number.
    apply
        Function that changes the weights by summed gradients; takes the number of updates before it.
    updates
        Number of updates so far.
    clocks
        Pushes of each worker so far.
    staleness
        Gradients by the number of updates between the weights they were computed with and those they changed.
    trace
        The first `MOST_RECORDED` pulls and pushes.
    left_out
        Pulls and pushes after those.
    on_update
        Callback, called after each update.
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
        """Return whether a worker with this clock may have the weights for its next gradient."""
        return self.bound is None or min(self.clocks) >= clock - self.bound

    def pull(self, worker: int, clock: int) -> int:
        """Record that a worker reads the weights, and return their version."""
        self._record(TraceEntry("pull", worker, clock, self.updates, self.updates))
        return self.updates

    def push(self, push: Push) -> None:
        """Take a gradient, and change the weights if it is the last one of an update.

        Raises
        ------
        TransitError
            A push of the worker was lost, or has arrived twice.
        """
        if push.clock != self.clocks[push.worker]:
            raise TransitError(
                f"worker {push.worker} pushes its gradient {push.clock}, and {self.clocks[push.worker]} have come: a "
                "push was lost or has come twice; this run's results are void"
            )
        self.clocks[push.worker] += 1
        self._record(TraceEntry("push", push.worker, push.clock, push.version, self.updates))
        self._waiting.append(push)
        if len(self._waiting) == self.workers:
            self._update()

    @property
    def waiting(self) -> int:
        """Pushes that no update has taken."""
        return len(self._waiting)

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
    """Permissions to begin another gradient. The first shard grants them, so that all shards get the same pushes.

    Attributes
    ----------
    workers
        Number of workers.
    shared
        Whether workers share their work: a fast one takes work that a slow one has not begun (ASP).
    given
        Gradients that each worker has been allowed to begin.
    until
        Steps up to which tickets are given; a step has as many as there are workers.
    opened
        Step with which the present round was to end when it was opened.
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
        """Return whether a worker may begin another gradient, which then counts as given."""
        some_left = sum(self.given) < self.workers * self.until if self.shared else self.given[worker] < self.until
        self.given[worker] += some_left
        return some_left

    def end_early(self) -> int:
        """Give only the tickets of the steps that have begun, and return the last step."""
        begun = -(-sum(self.given) // self.workers) if self.shared else max(self.given)
        self.until = min(self.until, max(begun, 0))
        return self.until
