"""Single-process simulation of a plan's steps for all ranks: the oracle for plans and for real ranks.

The simulation follows the documentation of `hpcbench.comm.steps`, and is independent of `execute`. The simulation uses
no MPI, no preposted operations and no deferred decoding, and every codec call has its own memory. Each rank is a
generator that pauses at a message that has not been sent yet. Ranks advance in the order that the caller chooses, so
the tests detect results that depend on the order.
"""

from collections import defaultdict, deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpcbench.codecs.base import Codec
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.plan import Plan
from hpcbench.comm.steps import Combine, PlanStep
from hpcbench.contract.shards import ElementRange

Array = npt.NDArray[Any]


class Sent(NamedTuple):
    """A message as received."""

    source: int
    target: int
    stage: int
    coded: bool
    span: ElementRange
    message: int
    """Bytes before encoding."""
    wire: int
    """Bytes after encoding."""


class Mail(NamedTuple):
    stage: int
    coded: bool
    span: ElementRange
    content: Array
    """Encoded bytes or plain values."""


@dataclass
class Outcome:
    """Values of each rank, delivered values, and all messages."""

    values: list[Array]
    delivered: list[Array]
    sent: list[Sent] = field(default_factory=list)

    def bytes_of(self, source: int, what: str = "message") -> int:
        return sum(getattr(sent, what) for sent in self.sent if sent.source == source)


def roundtrip(codec: Codec, values: Array, residual: Array | None = None) -> tuple[Array, Array]:
    """Return the encoded bytes of values, and the decoded values."""
    wire = np.empty(codec.wire_bytes(values.size, values.dtype), np.uint8)
    wire = wire[: codec.encode(np.ascontiguousarray(values), wire, residual=residual)]
    return wire, decoded(codec, wire, values.size, values.dtype)


def decoded(codec: Codec, wire: Array, n: int, dtype: np.dtype[Any]) -> Array:
    values = np.empty(n, dtype)
    codec.decode(wire, values)
    return values


def simulate(
    plan: Plan,
    values: Sequence[Array],
    *,
    feedback: Sequence[Feedback] | None = None,
    order: np.random.Generator | None = None,
) -> Outcome:
    """Execute a plan.

    Parameters
    ----------
    plan
        Plan that does not use the MPI library.
    values
        Values of each rank before the call, shape (n,). The simulation does not modify the values.
    feedback
        Residuals of each rank.
    order
        Order in which ranks advance. By default, the steps are executed rank by rank.

    Raises
    ------
    AssertionError
        A receive has no send, a send has no receive, or the two differ in stage, span or form.
    """
    outcome = Outcome([x.copy() for x in values], [x.copy() for x in values])
    for k in range(len(plan.slices)):
        programs = [plan.steps(rank, k) for rank in range(plan.topology.ranks)]
        exchange(programs, plan.codec, outcome, feedback=feedback, order=order)
    return outcome


def exchange(
    programs: Sequence[Sequence[PlanStep]],
    codec: Codec,
    outcome: Outcome,
    *,
    feedback: Sequence[Feedback] | None = None,
    order: np.random.Generator | None = None,
) -> None:
    """Execute the steps of every rank on the values of `outcome`, in place."""
    mail: dict[tuple[int, int], deque[Mail]] = defaultdict(deque)
    ranks = [_Rank(rank, codec, outcome, mail, feedback[rank] if feedback else None) for rank in range(len(programs))]
    under_way = {rank: ranks[rank].run(steps) for rank, steps in enumerate(programs)}
    before = -1
    while under_way:
        assert len(outcome.sent) + sum(r.begun for r in ranks) != before, f"ranks {sorted(under_way)} wait forever"
        before = len(outcome.sent) + sum(r.begun for r in ranks)
        turns = list(under_way)
        for rank in turns if order is None else order.permutation(turns).tolist():
            if next(under_way[rank], "ended") == "ended":
                del under_way[rank]
    left = {pair: [(m.stage, m.span) for m in queue] for pair, queue in mail.items() if queue}
    assert not left, f"sent and never received: {left}"


@dataclass
class _Rank:
    rank: int
    codec: Codec
    outcome: Outcome
    mail: dict[tuple[int, int], deque[Mail]]
    feedback: Feedback | None
    forms: dict[ElementRange, Array] = field(default_factory=dict)
    begun: int = 0

    def run(self, steps: Sequence[PlanStep]) -> Generator[None, None, None]:
        values = self.outcome.values[self.rank]
        for step in steps:
            self.begun += 1
            self._send(step, values)
            arrived: dict[ElementRange, list[Array]] = defaultdict(list)
            for part in step.receives:
                if part.peer == self.rank:
                    contribution = values[part.span.start : part.span.stop]
                    exact = step.combine is Combine.SUM
                    arrived[part.span].append(contribution.copy() if exact else roundtrip(self.codec, contribution)[1])
                    continue
                queue = self.mail[part.peer, self.rank]
                while not queue:
                    yield
                arrived[part.span].append(self._opened(queue.popleft(), step, part.peer, part.span, values.dtype))
            for span, parts in arrived.items():
                target = self.outcome.delivered[self.rank] if step.combine is Combine.DELIVER else values
                target[span.start : span.stop] = _total(parts)

    def _send(self, step: PlanStep, values: Array) -> None:
        for part in step.sends:
            contribution = values[part.span.start : part.span.stop]
            content = self._form(step.combine, part.span, contribution) if step.coded else contribution.copy()
            self.mail[self.rank, part.peer].append(Mail(step.stage, step.coded, part.span, content))
        if step.combine is Combine.REPLACE and step.coded:
            for part in step.sends:
                held = values[part.span.start : part.span.stop]
                held[...] = decoded(self.codec, self.forms[part.span], held.size, held.dtype)

    def _form(self, combine: Combine, span: ElementRange, contribution: Array) -> Array:
        if combine is not Combine.REPLACE:
            worker = self.feedback.worker(span) if self.feedback and combine is Combine.SUM else None
            return roundtrip(self.codec, contribution, worker)[0]
        if span not in self.forms:
            self.forms[span] = roundtrip(
                self.codec, contribution, self.feedback.server(span) if self.feedback else None
            )[0]
        return self.forms[span]

    def _opened(self, mail: Mail, step: PlanStep, peer: int, span: ElementRange, dtype: np.dtype[Any]) -> Array:
        expected = (step.stage, step.coded, span)
        assert mail[:3] == expected, f"rank {self.rank} expects {expected} of rank {peer}, which sent {mail[:3]}"
        message = span.size * dtype.itemsize
        self.outcome.sent.append(Sent(peer, self.rank, *mail[:3], message, mail.content.nbytes))
        if not mail.coded:
            return mail.content
        if step.combine is Combine.REPLACE:
            self.forms[span] = mail.content
        return decoded(self.codec, mail.content, span.size, dtype)


def _total(parts: list[Array]) -> Array:
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


def homomorphic_sum(values: Sequence[Array], block: int) -> Array:
    """Return the sum of 8-bit integers with a scale shared by all ranks, computed from the vectors of all ranks."""
    n = values[0].size
    padded = np.zeros((len(values), -(-n // block) * block), values[0].dtype)
    padded[:, :n] = values
    padded = padded.reshape(len(values), -1, block)  # [ranks, blocks, block]
    with np.errstate(all="ignore"):
        largest = np.abs(padded).max(axis=(0, 2), initial=0).astype(np.float32)[:, None]
        units = np.where(largest > 0, np.float32(127) / largest, np.float32(0))
        codes = np.nan_to_num(np.rint(padded * units), nan=0).clip(-127, 127)
        total = codes.sum(axis=0) * (largest / np.float32(127))
    total[~np.isfinite(largest[:, 0])] = np.nan
    sums: Array = total.reshape(-1)[:n].astype(values[0].dtype)
    return sums
