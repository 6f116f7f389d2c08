"""A model of streams and events that checks the order of memory accesses and collectives, all in one thread.

Operations do not run when they are called. Instead, operations are queued on a stream and run later, in an order
constrained only by events and by collectives. The checks are deterministic, because they compare vector clocks when an
operation is called, regardless of when it runs. `StreamError` names both conflicting calls.

`stream_model` (tests/programs) adds PyTorch's tensors and its caching allocator, and `nccl_model` adds PyTorch's
process groups. `strict_nccl` adds the engine's arrays and NCCL's communicators.
"""

import sys
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Generic, Protocol, TypeVar

_MODELS = ("streams.py", "stream_model.py", "nccl_model.py", "strict_nccl.py", "strict_training.py")
_SKIPPED = (*_MODELS, "accelerator.py", "nccl.py", "stream_order.py", "contextlib.py")
Clock = dict[str, int]
"""Vector clock: the number of preceding operations on each stream."""


class StreamError(AssertionError):
    """Two unordered memory accesses. The message names both calls."""


def find_place(what: str) -> str:
    """Return the operation's name, and the line in hpcbench or in a test that called the operation."""
    frame = sys._getframe(1)
    while frame is not None and (
        Path(frame.f_code.co_filename).name in _SKIPPED or "/torch/" in frame.f_code.co_filename
    ):
        frame = frame.f_back  # type: ignore[assignment]
    return f"{what} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})" if frame else what


def merge(clock: Clock, other: Clock) -> None:
    for stream, count in other.items():
        clock[stream] = max(clock.get(stream, 0), count)


class Stream:
    """A work queue with the vector clock of all preceding work."""

    def __init__(self, streams: "Streams", name: str) -> None:
        self._streams, self.name = streams, name
        self.clock: Clock = {name: 0}
        self.todo: deque[tuple[str, Callable[[], bool]]] = deque()
        self.done = 0
        """Number of operations that have run."""
        streams.streams[name] = self

    def put(self, place: str, run: Callable[[], bool]) -> int:
        """Queue an operation, and return its number. `run` returns whether the operation could run."""
        self.clock[self.name] += 1
        merge(self.clock, self._streams.host)
        self.todo.append((place, run))
        return self.clock[self.name]

    def wait_event(self, event: "Event") -> None:
        merge(self.clock, event.clock)
        stream, count = event.stream, event.clock[event.stream.name]
        self.put(find_place("wait"), lambda: stream.done >= count)

    def wait_stream(self, other: "Stream") -> None:
        self.wait_event(Event(self._streams, other))


class Event:
    """A point in a stream, like torch.cuda.Event."""

    def __init__(self, streams: "Streams", stream: Stream | None = None) -> None:
        self._streams = streams
        if stream is not None:
            self.record(stream)

    def record(self, stream: Stream | None = None) -> None:
        self.stream = stream or self._streams.current
        self.clock = dict(self.stream.clock)

    @property
    def reached(self) -> bool:
        """Whether the stream has reached the point."""
        return self.stream.done >= self.clock[self.stream.name]

    def query(self) -> bool:
        """Return whether the stream has reached the point.

        If so, later work of the host is ordered after this point.
        """
        if self.reached:
            merge(self._streams.host, self.clock)
        return self.reached

    def elapsed_time(self, end: "Event") -> float:
        assert self.query() and end.query(), "times of events that the stream has not reached"
        return 1.0

    def wait(self) -> None:
        self._streams.current.wait_event(self)


class Streams:
    """The streams of all ranks.

    Attributes
    ----------
    host : Clock
        Work that the host has waited for.
    current : Stream
        The stream on which the modeled program queues its work.
    """

    current: Stream

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.host: Clock = {}

    def run(self, seed: int) -> None:
        """Run all queued work. Seed 0 prefers the newest streams, 1 the oldest, and other seeds are random."""
        order = Random(seed)
        while pending := self.pending:
            if not self.run_one(seed, order):
                raise StreamError("no stream can continue: " + "; ".join(s.todo[0][0] for s in pending))

    @property
    def pending(self) -> list[Stream]:
        """Streams with queued work."""
        return [stream for stream in self.streams.values() if stream.todo]

    def run_one(self, seed: int, order: Random) -> bool:
        """Run one operation that is ready, chosen in the same order as in `run`.

        Return False if no operation is ready.
        """
        pending = self.pending
        turns = pending[::-1] if seed == 0 else pending if seed == 1 else order.sample(pending, len(pending))
        for stream in turns:
            if stream.todo[0][1]():
                stream.todo.popleft()
                stream.done += 1
                return True
        return False


@dataclass
class Use:
    """A memory access by an operation: the stream, the number of the operation, and the addresses."""

    stream: str
    count: int
    low: int
    high: int
    writes: bool
    place: str


class Uses:
    """The accesses to a memory, by stream and in the order of each stream."""

    def __init__(self) -> None:
        self._uses: dict[str, list[Use]] = defaultdict(list)

    def __iter__(self) -> Iterator[Use]:
        return (use for uses in self._uses.values() for use in uses)

    def add(self, use: Use, clock: Clock) -> None:
        """Add an access of an operation whose stream has this clock.

        Raises
        ------
        StreamError
            An earlier access by another stream overlaps this access, at least one of them writes, and no event orders
            them.
        """
        for stream, uses in self._uses.items():
            for earlier in uses[bisect_right(uses, clock.get(stream, 0), key=lambda use: use.count) :]:
                if earlier.low < use.high and use.low < earlier.high and (earlier.writes or use.writes):
                    raise StreamError(f"no event orders {use.place} behind {earlier.place}")
        self._uses[use.stream].append(use)


class Part(Protocol):
    """What a rank contributes to a collective."""

    place: str
    reached: bool


P = TypeVar("P", bound=Part)


@dataclass
class Collectives(Generic[P]):
    """The collectives of a communicator, in the order in which each rank calls them."""

    ranks: int
    calls: list[dict[int, P]] = field(default_factory=list)
    """Each collective's parts by rank."""
    _counts: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def join(self, rank: int, part: P, fits: Callable[[P, int], bool]) -> dict[int, P]:
        """Add the part of a rank to its next collective, and return all parts.

        Raises
        ------
        StreamError
            The part does not match that of another rank.
        """
        number = self._counts[rank]
        self._counts[rank] += 1
        if number == len(self.calls):
            self.calls.append({})
        everyone = self.calls[number]
        for peer, other in everyone.items():
            if not fits(other, peer):
                raise StreamError(f"collective {number} differs between ranks: {part.place}, and {other.place}")
        everyone[rank] = part
        return everyone

    def can_run(self, everyone: dict[int, P]) -> bool:
        """Return whether all ranks have called a collective."""
        return len(everyone) == self.ranks and all(part.reached for part in everyone.values())

    def check(self) -> None:
        """Raise an error if a rank has not called a collective that other ranks have called."""
        for everyone in self.calls:
            if len(everyone) < self.ranks:
                lacking = sorted(set(range(self.ranks)) - set(everyone))
                places = ", ".join(part.place for part in everyone.values())
                raise StreamError(f"ranks {lacking} never make the collective of {places}")
