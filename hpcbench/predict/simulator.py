"""Discrete-event simulation of one step with all pipeline stages and the networks that they share.

One rank of each stage is simulated, because its tensor- and data-parallel peers behave identically. Concurrent
transfers on a node's network share the bandwidth evenly.
"""

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hpcbench.predict.operations import BackgroundTransfer, BlockingTransfer, Compute, StageOperation, WaitForTransfer
from hpcbench.predict.shared_resource import SharedResource


class CoreUse(NamedTuple):
    """Cores that are unavailable to computing stages, in units of a stage's cores."""

    waiting: float
    """Cores that a waiting stage uses, because it wakes up repeatedly to test its messages."""
    driving: float
    """Cores that a stage's progress threads use while the stage computes."""
    networks: float
    """Cores that all busy networks use, because the kernel processes each packet of virtual links."""


@dataclass
class StageState:
    """Progress and times of one stage."""

    operations: Sequence[StageOperation]
    network: int
    at: int = 0
    time: float = 0.0
    busy: float = 0.0
    """Seconds that the stage spent computing or processing calls."""
    computed: float = 0.0
    """Part of `busy` that a log counts as computation."""
    computes: float = 1.0
    """Fraction of the current operation that a log counts as computation."""
    shared: float = 0.0
    """Part of `busy` that was lost to other stages on the same cores."""
    waited: dict[str, float] = field(default_factory=dict)
    """Waiting time in seconds for each kind of `BlockingTransfer` and `WaitForTransfer`."""


_CORES = -1
"""Number that represents the cores as a resource."""


class DeadlockError(ValueError):
    """Deadlock in which stages wait for each other forever."""


_Crossing = tuple[int, BackgroundTransfer | None, float, float]
"""Stage number, background transfer (None if the stage is blocked), seconds alone on the network, and seconds after the
transfer.
"""


class Simulation:
    """Simulation of the stages of a pipeline.

    Parameters
    ----------
    programs
        Operations of each stage.
    networks
        Index of the network of each stage's node.
    cores
        Number of stages that can compute at full speed at the same time, or None if each stage has its own cores.
    takes
        Other uses of these cores.
    """

    def __init__(
        self,
        programs: Sequence[Sequence[StageOperation]],
        networks: Sequence[int],
        cores: float | None = None,
        takes: CoreUse | None = None,
    ) -> None:
        self.stages = [StageState(program, network) for program, network in zip(programs, networks, strict=True)]
        self._resources: dict[int, SharedResource[_Crossing]] = {number: SharedResource() for number in networks}
        self._shares_cores, self._cores = cores is not None, cores or 0.0
        self._takes = takes if takes and cores is not None and any(takes) else None
        if cores is not None:
            self._resources[_CORES] = SharedResource(cores)
        self._events: list[tuple[float, int, str, Any]] = []
        self._count = 0
        self._there: dict[object, float] = {}
        self._waiting: dict[object, int] = {}
        self._queues: dict[tuple[int, str], list[tuple[BackgroundTransfer, float]]] = {}
        self._begun: dict[int, tuple[float, str]] = {}
        self._driven: Counter[int] = Counter()

    def run(self) -> float:
        """Simulate all operations, and return the seconds until the last stage ends.

        Raises
        ------
        DeadlockError
            A stage waits for a transfer that no stage starts.
        """
        for number in range(len(self.stages)):
            self._advance_stage(number, 0.0)
        events = self._events
        while events:
            now, _, what, payload = heapq.heappop(events)
            if what == "drain":
                self._drain(payload, now)
            elif what == "go":
                self._advance_stage(payload, now)
            elif what == "enter":
                self._enter(payload, now)
            else:
                self._receive(payload, now)
        for number, stage in enumerate(self.stages):
            if stage.at < len(stage.operations):
                raise DeadlockError(f"stage {number} waits forever before {stage.operations[stage.at]}")
        return max(stage.time for stage in self.stages)

    def _push(self, time: float, what: str, payload: Any) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, what, payload))

    def _advance_stage(self, number: int, now: float) -> None:
        """Run operations of a stage until the stage must wait."""
        stage = self.stages[number]
        operations = stage.operations
        while stage.at < len(operations):
            operation = operations[stage.at]
            if type(operation) is Compute and self._shares_cores:
                stage.at += 1
                if operation.seconds > 0:
                    stage.shared -= operation.seconds
                    stage.computes = operation.computes
                    self._begun[number] = now, ""
                    self._join(_CORES, (number, None, operation.seconds, 0.0), now)
                    return
            elif type(operation) is Compute:
                stage.busy += operation.seconds
                stage.computed += operation.seconds * operation.computes
                now += operation.seconds
                stage.at += 1
                if stage.at < len(operations) and type(operations[stage.at]) is not Compute:
                    self._push(now, "go", number)  # Earlier events of other stages come first.
                    stage.time = now
                    return
            elif type(operation) is BackgroundTransfer:
                stage.at += 1
                self._post(number, operation, now)
            elif type(operation) is WaitForTransfer:
                if operation.key not in self._there:
                    self._waiting[operation.key] = number
                    self._begin_waiting(number, operation.kind, now)
                    return
                stage.at += 1
            else:
                assert type(operation) is BlockingTransfer
                stage.at += 1
                self._begin_waiting(number, operation.kind, now)
                self._push(now + operation.before, "enter", (number, None, operation.network, 0.0))
                return
        stage.time = max(stage.time, now)

    def _begin_waiting(self, number: int, kind: str, now: float) -> None:
        self._begun[number] = now, kind
        self._leave_cores(now)

    def _leave_cores(self, now: float) -> None:
        """Update the number of cores that waiting stages, threads and networks leave to computing stages."""
        if self._takes is None:
            return
        waiting = {number for number, (_, kind) in self._begun.items() if kind}
        driving = set(+self._driven) - waiting  # A waiting rank tests its messages itself.
        networks = [bool(resource.flows) for number, resource in self._resources.items() if number != _CORES]
        taken = len(waiting) * self._takes.waiting + len(driving) * self._takes.driving
        taken += sum(networks) / len(networks) * self._takes.networks
        resource = self._resources[_CORES]
        resource.advance(now)
        resource.capacity = max(self._cores - taken, 0.1 * self._cores)
        self._schedule_drain(_CORES)

    def _post(self, number: int, post: BackgroundTransfer, now: float) -> None:
        self._count_driven(number, post, 1, now)
        if post.queue is not None:
            queue = self._queues.setdefault((number, post.queue), [])
            queue.append((post, now))
            if len(queue) > 1:
                return
        self._push(now + post.before, "enter", (number, post, post.network, post.after))

    def _count_driven(self, number: int, post: BackgroundTransfer, more: int, now: float) -> None:
        if post.driven:
            self._driven[number] += more
            self._leave_cores(now)

    def _enter(self, payload: _Crossing, now: float) -> None:
        number, post, work, after = payload
        if work <= 0:
            self._finish(number, post, after, now)
            return
        self._join(self.stages[number].network, payload, now)

    def _join(self, number: int, payload: _Crossing, now: float) -> None:
        resource = self._resources[number]
        resource.advance(now)
        self._count += 1
        heapq.heappush(resource.flows, (resource.virtual + payload[2], self._count, payload))
        self._schedule_drain(number)
        if number != _CORES and len(resource.flows) == 1:
            self._leave_cores(now)

    def _schedule_drain(self, number: int) -> None:
        """Schedule the event for the end of a resource's first flow."""
        resource = self._resources[number]
        resource.version += 1
        if resource.flows:
            self._push(resource.find_end(), "drain", (number, resource.version))

    def _drain(self, payload: tuple[int, int], now: float) -> None:
        number, version = payload
        resource = self._resources[number]
        if version != resource.version:
            return
        resource.advance(now)
        _, _, (stage, post, _, after) = heapq.heappop(resource.flows)
        self._schedule_drain(number)
        if number != _CORES and not resource.flows:
            self._leave_cores(now)
        self._finish(stage, post, after, now)

    def _finish(self, number: int, post: BackgroundTransfer | None, after: float, now: float) -> None:
        if post is None:
            self._resume(number, now)
            return
        self._push(now + after, "arrived", post.key)
        self._count_driven(number, post, -1, now)
        if post.queue is not None:
            queue = self._queues[number, post.queue]
            queue.pop(0)
            if queue:
                following = queue[0][0]
                self._push(now + following.before, "enter", (number, following, following.network, following.after))

    def _receive(self, key: object, now: float) -> None:
        self._there[key] = now
        if key in self._waiting:
            self._resume(self._waiting.pop(key), now)

    def _resume(self, number: int, now: float) -> None:
        """Resume a stage whose transfer or computation has ended."""
        stage = self.stages[number]
        begun, kind = self._begun.pop(number)
        if kind:
            stage.waited[kind] = stage.waited.get(kind, 0.0) + now - begun
            self._leave_cores(now)
        else:
            stage.busy += now - begun
            stage.computed += (now - begun) * stage.computes
            stage.shared += now - begun
        if stage.at < len(stage.operations):
            following = stage.operations[stage.at]
            stage.at += isinstance(following, WaitForTransfer) and following.key in self._there
        stage.time = max(stage.time, now)
        self._advance_stage(number, now)
