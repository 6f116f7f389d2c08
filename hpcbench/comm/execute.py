"""Carries out the steps of one slice of a plan on one rank.

A slice is a generator: it yields the requests that it waits for and is resumed with their statuses. So one thread can
carry any number of slices and operations side by side, and while the messages of one are on the wire the values of
another are encoded.
"""

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import numpy as np
from mpi4py import MPI

from hpcbench.codecs.base import Codec
from hpcbench.comm import frame
from hpcbench.comm.arrays import Array
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.scratch import Scratch
from hpcbench.comm.shards import Span
from hpcbench.comm.steps import Combine, Part, Step
from hpcbench.comm.topology import Topology
from hpcbench.comm.vector import Vector

Slice = Generator[list[MPI.Request], list[MPI.Status], None]

STAGES = 16
"""That tags tell apart; further ones are kept in order by MPI."""
_SUMS = (Combine.SUM, Combine.SUM_DECODED)


@dataclass
class Tally:
    """What one operation did on this rank. Seconds of all its slices together."""

    message_bytes: int = 0
    wire_bytes: int = 0
    network_bytes: int = 0
    """Wire bytes that left the node."""
    encode_s: float = 0.0
    decode_s: float = 0.0


@dataclass
class Call:
    """What the slices of one operation share."""

    comm: MPI.Comm
    topology: Topology
    codec: Codec
    dtype: np.dtype[np.generic]
    vector: Vector
    scratch: Scratch
    seed: int
    feedback: Feedback | None = None
    tally: Tally = field(default_factory=Tally)

    def next_seed(self) -> int:
        """Of stochastic rounding: another one for each message of each rank, and the same in every run."""
        self.seed += 1
        return self.seed * self.comm.size + self.comm.rank


def carry_out(call: Call, steps: Sequence[Step], tag: int) -> Slice:
    """Run the steps of one slice.

    Parameters
    ----------
    call
        What all slices of the operation share.
    steps
        Of this rank.
    tag
        First of the `STAGES` tags that the slice's messages have.
    """
    return _Run(call, tag).run(steps)


class _Run:
    def __init__(self, call: Call, tag: int) -> None:
        self._call, self._tag = call, tag
        self._sent: list[MPI.Request] = []
        self._lent: list[Array] = []
        self._forms: dict[Span, Array] = {}
        """What is passed on as it came."""
        self._undecoded: list[tuple[Span, Array]] = []

    def run(self, steps: Sequence[Step]) -> Slice:
        # receives are posted before anything is sent: messages find their place when they come
        arrivals = {id(step): [self._expect(step, part) for part in step.receives] for step in steps if step.coded}
        for step in steps:
            if not step.coded or step.combine in _SUMS:
                self._decode_all()
            plain = self._send(step)
            posted = arrivals.get(id(step)) or [self._expect(step, part) for part in step.receives]
            yield from (self._sum if step.combine in _SUMS else self._replace)(step, posted)
            if plain:
                yield plain  # the values may change from here on
        self._decode_all()
        if self._sent:
            yield self._sent
        for buffer in self._lent:
            self._call.scratch.give_back(buffer)

    def _expect(self, step: Step, part: Part) -> tuple[MPI.Request | None, Array]:
        call = self._call
        if part.peer == call.comm.rank:
            return None, np.empty(0, np.uint8)
        if not step.coded and step.combine not in _SUMS:
            memory = call.vector.into(part.span).view(np.uint8)
        elif step.coded:
            memory = self._borrow(call.codec.wire_bytes(part.span.size, call.dtype) + frame.BYTES)
        else:
            memory = self._borrow(part.span.size * call.dtype.itemsize)
        return call.comm.Irecv([memory, MPI.BYTE], part.peer, self._tag + step.stage % STAGES), memory

    def _send(self, step: Step) -> list[MPI.Request]:
        """Start the step's messages; returns the requests of those that read the caller's values themselves."""
        call, plain = self._call, []
        for part in step.sends:
            tag = self._tag + step.stage % STAGES
            nbytes = part.span.size * call.dtype.itemsize
            if step.coded:
                message = self._form(step, part.span)
                self._sent.append(call.comm.Isend([message, MPI.BYTE], part.peer, tag))
                wire = message.size - frame.BYTES
            else:
                values = call.vector.read(part.span).view(np.uint8)
                plain.append(call.comm.Isend([values, MPI.BYTE], part.peer, tag))
                wire = nbytes
            call.tally.message_bytes += nbytes
            call.tally.wire_bytes += wire
            if not call.topology.near(call.comm.rank, part.peer):
                call.tally.network_bytes += wire
        return plain

    def _form(self, step: Step, span: Span) -> Array:
        """The span's message; whoever encodes a part that replaces others' takes it in decoded form like them."""
        if step.combine is Combine.DELIVER:
            return self._encode(span, None)
        if step.combine is Combine.SUM:
            return self._encode(span, self._call.feedback.worker(span) if self._call.feedback else None)
        if span not in self._forms:
            replaces = step.combine is Combine.REPLACE
            residual = self._call.feedback.server(span) if self._call.feedback and replaces else None
            self._forms[span] = self._encode(span, residual)
            if replaces:
                self._undecoded.append((span, self._forms[span][: -frame.BYTES]))
        return self._forms[span]

    def _encode(self, span: Span, residual: Array | None) -> Array:
        call = self._call
        values = call.vector.read(span)
        buffer = self._borrow(call.codec.wire_bytes(span.size, call.dtype) + frame.BYTES)
        start = time.perf_counter()
        used = call.codec.encode(values, buffer[: -frame.BYTES], residual=residual, seed=call.next_seed())
        message = frame.seal(buffer, used)
        call.tally.encode_s += time.perf_counter() - start
        return message

    def _replace(self, step: Step, posted: list[tuple[MPI.Request | None, Array]]) -> Slice:
        for part, (request, memory) in zip(step.receives, posted, strict=True):
            assert request is not None
            (status,) = yield [request]
            if step.coded:
                message = memory[: status.Get_count(MPI.BYTE)]
                if step.combine is Combine.REPLACE:
                    self._forms[part.span] = message
                self._undecoded.append((part.span, frame.opened(message, part.peer)))

    def _sum(self, step: Step, posted: list[tuple[MPI.Request | None, Array]]) -> Slice:
        """Add in the order of the parts, whoever came first."""
        by_span: dict[Span, list[tuple[Part, MPI.Request | None, Array]]] = {}
        for part, (request, memory) in zip(step.receives, posted, strict=True):
            by_span.setdefault(part.span, []).append((part, request, memory))
        for span, arrivals in by_span.items():
            total = self._call.vector.total(span)
            own = next(k for k, (part, _, _) in enumerate(arrivals) if part.peer == self._call.comm.rank)
            if step.combine is Combine.SUM_DECODED:
                self._decode(self._forms.pop(span)[: -frame.BYTES], total)
            # the first two may change places without changing a bit: then the own part needs no copy
            if own < 2:
                arrivals.insert(0, arrivals.pop(own))
            mine = total.copy() if own > 1 else total
            for k, (part, request, memory) in enumerate(arrivals):
                if request is not None:
                    yield from self._add(step, part, request, memory, total, accumulate=k > 0)
                elif k:
                    total += mine

    def _add(
        self, step: Step, part: Part, request: MPI.Request, memory: Array, total: Array, *, accumulate: bool
    ) -> Slice:
        (status,) = yield [request]
        if step.coded:
            self._decode(frame.opened(memory[: status.Get_count(MPI.BYTE)], part.peer), total, accumulate=accumulate)
            return
        values = memory[: total.nbytes].view(total.dtype)
        np.add(total, values, out=total) if accumulate else np.copyto(total, values)

    def _decode_all(self) -> None:
        """Decode what came after it has been passed on, so that nobody waits for it."""
        for span, wire in self._undecoded:
            self._decode(wire, self._call.vector.into(span))
        self._undecoded.clear()

    def _decode(self, wire: Array, out: Array, *, accumulate: bool = False) -> None:
        start = time.perf_counter()
        self._call.codec.decode(wire, out, accumulate=accumulate)
        self._call.tally.decode_s += time.perf_counter() - start

    def _borrow(self, nbytes: int) -> Array:
        buffer = self._call.scratch.take(nbytes)
        self._lent.append(buffer)
        return buffer[:nbytes]
