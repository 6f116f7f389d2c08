"""Execution of one slice of a plan on one rank.

A slice is a generator, which yields the requests that it waits for, and resumes with their statuses. One thread
can therefore run many slices and operations concurrently: while messages of one slice are on the wire, values of
another slice are encoded.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np

from hpcbench.codecs.base import Codec
from hpcbench.comm.carrier import Carrier
from hpcbench.comm.correlated import make_shared_seed
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.memory import Memory, Message, Slice, Tally
from hpcbench.comm.places import Place
from hpcbench.comm.steps import Combine, PeerSpan, PlanStep
from hpcbench.comm.topology import Topology
from hpcbench.comm.vector import Vector
from hpcbench.contract.shards import ElementRange

STAGES = 16
"""Number of stages of a plan that have distinct tags. Later stages reuse tags, and MPI preserves their order."""
SUMS = (Combine.SUM, Combine.SUM_DECODED)
"""Modes in which received parts are added."""


@dataclass
class Call:
    """Values shared by all slices of one operation."""

    carrier: Carrier
    topology: Topology
    place: Place
    codec: Codec
    dtype: np.dtype[np.generic]
    """Dtype in which values are sent. The dtype of `vector` may differ."""
    vector: Vector
    seed: int
    feedback: Feedback | None = None
    tally: Tally = field(default_factory=Tally)

    def count(self, part: PeerSpan, wire_bytes: int, *, coded: bool) -> None:
        """Count an outgoing message."""
        message_bytes = part.span.size * self.dtype.itemsize
        self.tally.message_bytes += message_bytes
        self.tally.coded_bytes += message_bytes if coded and self.codec.name != "none" else 0
        self.tally.wire_bytes += wire_bytes
        if not self.topology.near(self.carrier.rank, part.peer):
            self.tally.network_bytes += wire_bytes

    def next_seed(self) -> int:
        """Return the next seed of stochastic rounding.

        Seeds differ between messages and ranks, but are the same in every run.
        """
        self.seed += 1
        return self.seed * self.carrier.size + self.carrier.rank


def carry_out(call: Call, steps: Sequence[PlanStep], tag: int) -> Slice:
    """Execute the steps of one slice.

    Parameters
    ----------
    call
        Values shared by all slices of the operation.
    steps
        Steps of this rank.
    tag
        First of the slice's `STAGES` tags.
    """
    # no checksum within a node: messages stay in memory, and a checksum costs several percent of a fast codec's call
    sealed = call.topology.nodes > 1
    return SliceRun(call, tag, call.place.memory(call.codec, call.dtype, call.tally, sealed=sealed)).run(steps)


class SliceRun:
    """Execution of one slice.

    Parameters
    ----------
    call, tag
        As in `carry_out`.
    memory
        Memory of the slice.
    """

    def __init__(self, call: Call, tag: int, memory: Memory) -> None:
        self._call, self._tag, self._memory = call, tag, memory
        self._first_seed = call.seed
        self._sent: list[Any] = []
        self._forms: dict[ElementRange, Message] = {}
        """Received messages that are forwarded unchanged."""
        self._undecoded: list[tuple[ElementRange, Message]] = []

    def run(self, steps: Sequence[PlanStep]) -> Slice:
        """Execute the steps, and yield the work that the slice waits for."""
        # receives are posted before any sends, so that messages arrive directly in their final location
        arrivals = {id(step): [self._expect(step, part) for part in step.receives] for step in steps if step.coded}
        for step in steps:
            if not step.coded or step.combine in SUMS:
                self._decode_all()
            sent = []
            for part, message in zip(step.sends, self._begin(step), strict=True):
                if message.pending is not None:
                    yield message.pending
                sent.append(self._send(step, part, message))
            posted = arrivals.get(id(step)) or [self._expect(step, part) for part in step.receives]
            yield from (self._sum if step.combine in SUMS else self._replace)(step, posted)
            if step.coded:
                self._sent += sent
            elif sent:
                yield sent  # after this point, the values may change
        self._decode_all()
        if self._sent:
            yield self._sent
        unfinished = self._memory.finish()
        if unfinished is not None:
            yield unfinished
        self._memory.give_back()

    def _expect(self, step: PlanStep, part: PeerSpan) -> tuple[Any, Any]:
        call = self._call
        if part.peer == call.carrier.rank:
            return None, None
        if not step.coded and step.combine not in SUMS:
            inbox = self._memory.inbox_of(call.vector.into(part.span))
        else:
            inbox = self._memory.inbox(part.span.size, coded=step.coded)
        tag, varies = self._tag + step.stage % STAGES, self._varies(step)
        return call.carrier.receive(inbox, part.peer, tag, varies=varies), inbox

    def _begin(self, step: PlanStep) -> Iterable[Message]:
        """Start the messages of a step, in the order of its sends."""
        messages = map(self._message, repeat(step), step.sends)
        return list(messages) if self._memory.ahead else messages

    def _send(self, step: PlanStep, part: PeerSpan, message: Message) -> Any:
        self._call.count(part, message.wire_bytes, coded=step.coded)
        tag = self._tag + step.stage % STAGES
        return self._call.carrier.send(message.content, part.peer, tag, varies=self._varies(step))

    def _varies(self, step: PlanStep) -> bool:
        return step.coded and not self._call.codec.fixed_size

    def _message(self, step: PlanStep, part: PeerSpan) -> Message:
        """Create the message for a part.

        If the part replaces values on other ranks, the sender stores the decoded values too, as the receivers do.
        """
        span = part.span
        if not step.coded:
            values = self._call.vector.read(span)
            if step.combine is Combine.REPLACE:
                self._memory.round_in_place(values)  # receivers only get the rounded values, and replicas must agree
            return self._memory.plain(values)
        if step.combine is Combine.DELIVER:
            return self._encode(span, None)
        if step.combine is Combine.SUM:
            residual = self._call.feedback.worker(span) if self._call.feedback else None
            return self._encode(span, residual, self._find_shared_seed(step, part))
        if span not in self._forms:
            replaces = step.combine is Combine.REPLACE
            residual = self._call.feedback.server(span) if self._call.feedback and replaces else None
            self._forms[span] = self._encode(span, residual, self._find_shared_seed(step, part))
            if replaces:
                self._undecoded.append((span, self._forms[span]))
        return self._forms[span]

    def _find_shared_seed(self, step: PlanStep, part: PeerSpan) -> int | None:
        """Return the seed of a message that is rounded with common random numbers, or None if its rank rounds alone."""
        correlated = step.combine is Combine.SUM and self._call.codec.name.endswith(":correlated")
        if not correlated and step.combine is not Combine.SUM_DECODED:
            return None
        return make_shared_seed(self._first_seed, step, part, self._call.carrier.rank, self._call.topology)

    def _encode(self, span: ElementRange, residual: Any, shared_seed: int | None = None) -> Message:
        seed = self._call.next_seed()
        return self._memory.encode(self._call.vector.read(span), residual, seed if shared_seed is None else shared_seed)

    def _replace(self, step: PlanStep, posted: list[tuple[Any, Any]]) -> Slice:
        for part, (request, inbox) in zip(step.receives, posted, strict=True):
            assert request is not None
            (status,) = yield [request]
            if step.coded:
                message = self._memory.arrived(inbox, self._call.carrier.count(status), part.peer)
                if step.combine is Combine.REPLACE:
                    self._forms[part.span] = message
                self._undecoded.append((part.span, message))
            else:
                self._memory.unpack(inbox, self._call.vector.into(part.span))

    def _sum(self, step: PlanStep, posted: list[tuple[Any, Any]]) -> Slice:
        """Add the parts in rank order, independent of their order of arrival."""
        memory = self._memory
        by_span: dict[ElementRange, list[tuple[PeerSpan, Any, Any]]] = {}
        for part, (request, inbox) in zip(step.receives, posted, strict=True):
            by_span.setdefault(part.span, []).append((part, request, inbox))
        for span, arrivals in by_span.items():
            total = self._call.vector.total(span, memory)
            mine_at = next(k for k, (part, _, _) in enumerate(arrivals) if part.peer == self._call.carrier.rank)
            if step.combine is Combine.SUM_DECODED:
                memory.decode(self._forms.pop(span), total)
            # a + b and b + a are bitwise identical: no copy is needed if this rank's part is one of the first two
            if mine_at < 2:
                arrivals.insert(0, arrivals.pop(mine_at))
            mine = memory.copy(total) if mine_at > 1 else total
            for k, (part, request, inbox) in enumerate(arrivals):
                if request is None:
                    if k:
                        memory.add(total, mine)
                    continue
                (status,) = yield [request]
                if step.coded:
                    message = memory.arrived(inbox, self._call.carrier.count(status), part.peer)
                    memory.decode(message, total, accumulate=k > 0)
                else:
                    memory.unpack(inbox, total, accumulate=k > 0)

    def _decode_all(self) -> None:
        """Decode received messages only after they have been forwarded, so that no rank waits for decoding."""
        for span, message in self._undecoded:
            self._memory.decode(message, self._call.vector.into(span))
        self._undecoded.clear()
