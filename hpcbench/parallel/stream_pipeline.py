"""Execution of one stage of a pipeline without flush. Micro-batches stay in flight between steps.

Each activation is preceded by a header, which contains the number of the micro-batch and the weight version of its
first stage. With vertical sync or with two versions, a stage uses the version in the header. Otherwise, the stage uses
its newest version.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from hpcbench.comm.policy import Policy
from hpcbench.contract.traffic import Dimension, MessageKind, Phase
from hpcbench.errors import TransitError
from hpcbench.parallel.phases import Phases
from hpcbench.parallel.pipeline import Alive, MicroBatch, Pipeline
from hpcbench.parallel.schedule import Action
from hpcbench.parallel.stream import Stream
from hpcbench.parallel.versions import Versions


class Flight(NamedTuple):
    """A micro-batch that waits for its backward pass."""

    alive: Alive
    version: int
    """Weight version of the forward pass."""
    calls: dict[str, int]
    """Call counts of the channels before the forward pass, which a resumed run needs to repeat the pass exactly."""


class Arrived(NamedTuple):
    """An activation that was received ahead of its action."""

    i: int
    entered: int
    values: Tensor


class StreamPipeline(Pipeline):
    """One stage of a pipeline without flush.

    Parameters
    ----------
    stream
        Schedule of actions and versions.
    versions
        Weight versions of the stage.
    policy
        Policy that provides the channels. Headers use the channel without compression.
    others
        Keyword arguments that are passed to `Pipeline`.

    Attributes
    ----------
    delays : Counter
        Number of backward passes, keyed by staleness (the number of updates since the version of the weights).
    used : list of (int, int)
        Micro-batch and version of each forward pass, recorded while `keeps_record` is set.
    """

    def __init__(self, *arguments: Any, stream: Stream, versions: Versions, policy: Policy, **others: Any) -> None:
        super().__init__(*arguments, policy=policy, **others)
        self._stream, self._versions, self._policy = stream, versions, policy
        self._header_channel = policy.channel(Dimension.EXACT, Phase.FORWARD, MessageKind.ACT)
        self._flights: dict[int, Flight] = {}
        self._next = 0
        """Micro-batch of the next forward pass."""
        self._arrived: Arrived | None = None
        self.delays: Counter[int] = Counter()
        self.keeps_record = False
        self.used: list[tuple[int, int]] = []

    def advance(
        self, actions: Iterable[Action], batch: Callable[[int], MicroBatch], *, phases: Phases | None = None
    ) -> list[float]:
        """Execute the actions of one step.

        Parameters
        ----------
        actions
            Actions from `Stream.actions`.
        batch
            Function that returns the micro-batch with the given number in the run.
        phases
            Phases to which the times are added.

        Returns
        -------
        On the last stage, the mean loss of each micro-batch of the step in nats. On other stages, an empty list.
        """
        losses: list[Tensor] = []
        times = self._phases = phases or Phases(clock=self._phases.clock)
        begin = times.clock.mark()
        for work, i, _ in actions:
            self.collect_sendings()
            if work == "forward":
                self._enter(i, batch(i), losses)
            else:
                self._leave(i)
            end = times.clock.mark()
            times.count(work, begin, end, of=(i, 0))
            begin = end
        if self._next == self._stream.total and not self._flights:  # the run ends, so no message may remain
            self._wait_for_sendings()
        return [float(loss) for loss in losses]

    def needed_from(self) -> int:
        """Return the oldest version that later passes use."""
        needed = [flight.version for flight in self._flights.values()]
        if self._next < self._stream.total:
            needed.append(self._stream.version(self._stage, self._next))
        return min(needed, default=self._versions.newest + 1)

    def settle(self) -> None:
        """Receive all activations in transit, and wait until all messages have been sent.

        At the end of a step, an activation is in transit across each boundary. The activation must be received before
        the run ends or other messages are sent across the boundary. All stages must call this method.
        """
        coming = self._next
        if self._stage and coming < self._stream.total and coming and self._arrived is None:
            self._arrived = self._await(coming, self._room)
        self._wait_for_sendings()

    def _wait_for_sendings(self) -> None:
        for sending in self._sendings:
            sending.wait()
        self._sendings = []

    def calls_of_flights(self) -> dict[int, dict[str, int]]:
        """Return the call counts of the channels before the forward pass of each micro-batch in flight."""
        return {i: flight.calls for i, flight in self._flights.items()}

    def repeat(self, step: int, batch: Callable[[int], MicroBatch], calls: dict[int, dict[str, int]]) -> None:
        """Refill the pipeline after `step` steps. `calls` is the result of `calls_of_flights` at that time.

        The weight versions must be restored first.
        """
        self._flights, self._arrived = {}, None
        for i in self._stream.entered(self._stage, step):
            self._next = i
            self._policy.load_calls(calls[i])
            self._enter(i, batch(i), [])
        self._next = self._stream.entered(self._stage, step).stop

    def _enter(self, i: int, batch: MicroBatch, losses: list[Tensor]) -> None:
        """Run the forward pass of micro-batch `i`."""
        calls = self._policy.calls()
        self._room = tuple(batch.inputs.shape)
        source, entered = batch.inputs, self._stream.version(0, i)
        if self._stage:
            arrived = self._arrived or self._await(i, self._room)
            self._arrived = None
            if arrived.i != i:
                raise TransitError(f"stage {self._stage} expects micro-batch {i}, but {arrived.i} has arrived")
            source, entered = arrived.values, arrived.entered
            source.requires_grad_(True)
        follows = self._stream.vertical or self._stream.double
        version = entered if follows else self._stream.version(self._stage, i)
        self._versions.use(version)
        if self.keeps_record:
            self.used.append((i, version))
        result = self._parts[0](source)
        if self._is_last(0):
            loss = self._loss(result, batch.targets)
            losses.append(loss.detach())
            result = loss * (1.0 / self._stream.micro_batches)
        else:
            header = np.array([i, entered], np.float64)
            sending = self._pp.send(header, self._stage + 1, tag=self._header_tag(i), channel=self._header_channel)
            self._sendings.append(sending.in_background())
            self._send(result, i, self._part(0) + 1, forward=True)
        self._flights[i] = Flight(Alive(source, result), version, calls)
        self._next = i + 1
        self.most_alive = max(self.most_alive, len(self._flights))

    def _leave(self, i: int) -> None:
        """Run the backward pass of micro-batch `i` with the version that its forward pass used."""
        flight = self._flights.pop(i)
        self.delays[self._versions.newest - flight.version] += 1
        self._versions.use(flight.version)
        self._backward(flight.alive, i, 0)

    def _await(self, i: int, shape: tuple[int, ...]) -> Arrived:
        """Receive a header and the following activation."""
        header = np.full(2, np.nan)
        self._pp.recv(header, self._stage - 1, tag=self._header_tag(i), channel=self._header_channel).wait()
        values = self._receive(self._shape(*shape), i, self._part(0), forward=True)
        return Arrived(int(header[0]), int(header[1]), values)

    def _header_tag(self, i: int) -> int:
        """Return an MPI tag for headers, from the unused tags of the boundary before the first part."""
        return self._tag(i, 0, forward=True)
