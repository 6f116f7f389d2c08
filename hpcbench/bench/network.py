"""Measures links, codecs and the MPI library while all ranks work. Plans are chosen by the result."""

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from hpcbench.bench.collectives import Bench, slowest
from hpcbench.bench.options import spelled
from hpcbench.bench.progress import Show
from hpcbench.bench.timing import Subject, time_in_turns
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import Array
from hpcbench.comm import frame
from hpcbench.comm.links import Link, Speed
from hpcbench.comm.plan import Operation
from hpcbench.comm.progress import Progress
from hpcbench.comm.topology import Topology
from hpcbench.errors import UserError

CODECS = ("none", "bf16", "fp8e4m3", "int8:256", "int4:32", "sign:1024", "zfp:8", "zfp:16", "mpc", "xpk")
"""Codecs that are measured by default."""
MESSAGES = (256 * 2**10, 2**20, 4 * 2**20)
"""Sizes of messages in bytes. They are large, because a token bucket lets small messages pass at once."""
_LATENCY_BYTES, _LATENCY_TURNS = 8, 20
_FEW = 64
"""Number of values in a message whose coding is all overhead."""


@dataclass(frozen=True)
class Level:
    """Times of messages within nodes, or between them."""

    latency_s: float
    seconds: dict[int, float]
    """Seconds until every rank has sent and received a message, by its bytes."""
    senders: int
    """Number of ranks that share the link: those of the fullest node, for messages between nodes."""

    def rate(self, nbytes: int) -> float:
        """Bytes a second of the link."""
        return self.senders * nbytes / self.seconds[nbytes]

    @property
    def link(self) -> Link:
        """Speed for the largest messages, which hold for long transfers."""
        return Link(self.latency_s, self.rate(max(self.seconds)))


@dataclass(frozen=True)
class Network:
    """The measured network of a machine.

    Attributes
    ----------
    within, between
        Times of messages within nodes, and between them. None if every node has one rank, or if there is only one node.
    codecs
        Speed of each codec on the slowest rank, by name.
    native
        Seconds of the library's collectives, the faster of its two calls: (operation, bytes, seconds).
    blocking
        The cases (operation, bytes) that were measured with the blocking call.
    softirq_cores
        Cores of this machine that its kernel took for packets while all nodes sent; 0 if there is one node.
    of_a_core
        Speed of each codec in seconds that it computes, the mean over the ranks. Where ranks share cores the clock also
        counts what the others do.
    """

    within: Level | None
    between: Level | None
    codecs: dict[str, Speed]
    native: list[tuple[str, int, float]]
    blocking: list[tuple[str, int]]
    softirq_cores: float = 0.0
    of_a_core: Mapping[str, Speed] = field(default_factory=dict)

    def as_links(self) -> dict[str, Any]:
        """The measurements in the form that hpcbench.comm.links.load reads."""
        levels = {"within": self.within, "between": self.between}
        return {
            **{name: asdict(level.link) if level else None for name, level in levels.items()},
            "codecs": {name: asdict(speed) for name, speed in self.codecs.items()},
            "codecs_of_a_core": {name: asdict(speed) for name, speed in self.of_a_core.items()},
            "native": [list(row) for row in self.native],
            "blocking": [list(row) for row in self.blocking],
            "measured": [],
            "softirq_cores": self.softirq_cores,
            "messages": {name: asdict(level) if level else None for name, level in levels.items()},
        }


def measure(
    comm: MPI.Comm,
    progress: Progress,
    bench: Bench,
    names: Sequence[str],
    x: Array,
    sizes: Sequence[int],
    repeats: int,
    show: Show,
) -> Network:
    """Measure one thing after the other, on all ranks at once.

    Parameters
    ----------
    comm, progress
        Communicator of all ranks, and their way of waiting.
    bench
        Measures the library's collectives on these ranks.
    names
        Codecs as in a study.
    x
        float32 values for the codecs, shape (n,).
    sizes
        Bytes of the library's collectives.
    repeats
        Number of turns that count.
    show
        Called before each measurement.

    Raises
    ------
    UserError
        There is no such codec, or it does not take float32.
    """
    todo = 2 + len(names) + len(Operation) * len(sizes)
    topology = Topology.of(comm)
    show(0, todo, "within nodes")
    within = _level(comm, progress, _within(topology), 1, repeats)
    show(1, todo, "between nodes")
    with _Softirq() as softirq:
        between = _level(comm, progress, _between(topology), topology.per_node, repeats)
    codecs: dict[str, Speed] = {}
    of_a_core: dict[str, Speed] = {}
    for k, name in enumerate(names):
        show(2 + k, todo, name)
        codec, *speeds = _codec(comm, name, x, repeats, lambda: progress.complete([comm.Ibarrier()]))
        codecs[codec], of_a_core[codec] = speeds
    native, blocking = [], []
    cases = [(operation.value, nbytes) for operation in Operation for nbytes in sizes]
    for k, (operation, nbytes) in enumerate(cases):
        show(2 + len(names) + k, todo, f"{operation} {spelled(nbytes)}")
        seconds, blocks = bench.native(operation, nbytes, repeats)
        native.append((operation, nbytes, seconds))
        if blocks:
            blocking.append((operation, nbytes))
    show(todo, todo, "")
    return Network(within, between, codecs, native, blocking, softirq.cores if between else 0.0, of_a_core)


class _Softirq:
    """Cores that the kernel of this machine takes for packets, from the begin of a ``with`` to its end."""

    def __enter__(self) -> "_Softirq":
        self._begin, self.cores = (time.perf_counter(), self._seconds()), 0.0
        return self

    def __exit__(self, *_: object) -> None:
        begin, before = self._begin
        self.cores = max(self._seconds() - before, 0.0) / (time.perf_counter() - begin)

    @staticmethod
    def _seconds() -> float:
        """Seconds of all cores so far, as Linux counts them; 0 elsewhere."""
        try:
            first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
        except OSError:
            return 0.0
        return int(first[7]) / os.sysconf("SC_CLK_TCK")


def _within(topology: Topology) -> list[int]:
    """For each rank the next rank on its node; the rank itself if it is alone."""
    peers = list(range(topology.ranks))
    for members in topology.members:
        for place, rank in enumerate(members):
            peers[rank] = members[(place + 1) % len(members)]
    return peers


def _between(topology: Topology) -> list[int]:
    """For each rank the rank with the same place on the next node. Nodes without this place are left out."""
    peers = list(range(topology.ranks))
    for node, members in enumerate(topology.members):
        after = topology.members[(node + 1) % topology.nodes]
        for place, rank in enumerate(members):
            peers[rank] = after[place % len(after)]
    return peers


def _level(comm: MPI.Comm, progress: Progress, peers: list[int], senders: int, repeats: int) -> Level | None:
    """Times of messages that all ranks send to their peers at once; None if no rank has a peer."""
    rank = comm.rank
    sources = [source for source, peer in enumerate(peers) if peer == rank != source]
    if not any(peer != source for source, peer in enumerate(peers)):
        return None

    def seconds(nbytes: int, turns: int) -> float:
        out = np.zeros(nbytes, np.uint8)
        come = [np.zeros(nbytes, np.uint8) for _ in sources]

        def exchange() -> None:
            requests = [comm.Irecv(buf, source) for buf, source in zip(come, sources, strict=True)]
            requests += [comm.Isend(out, peers[rank])] if peers[rank] != rank else []
            progress.complete(requests)

        subject = Subject("exchange", {"call": exchange})
        (times,) = time_in_turns([subject], turns, ready=lambda: progress.complete([comm.Ibarrier()]))
        return slowest(comm, times["call"]).median

    latency = seconds(_LATENCY_BYTES, repeats * _LATENCY_TURNS)
    return Level(latency, {nbytes: seconds(nbytes, repeats) for nbytes in MESSAGES}, senders)


def _codec(comm: MPI.Comm, name: str, x: Array, repeats: int, ready: Callable[[], object]) -> tuple[str, Speed, Speed]:
    """Speed of encoding, and of decoding with a sum, as the collectives do it: with the frame of a message.

    The first speed is that of the slowest rank by the clock, the second one by the seconds that a rank computes.
    """
    try:
        codec = get_codec(name)
        wire = np.empty(codec.wire_bytes(x.size, x.dtype) + frame.BYTES, np.uint8)
        total = np.zeros_like(x)

        def encode(n: int) -> Array:
            return frame.seal(wire, codec.encode(x[:n], wire[: -frame.BYTES]))

        few = encode(_FEW).copy()
        message = encode(x.size).copy()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise UserError(str(error) if name in str(error) else f"codec {name}: {error}") from None

    def decode(message: Array, n: int) -> None:
        codec.decode(frame.opened(message, comm.rank), total[:n], accumulate=True)

    calls = {
        "encode": _Computing(lambda: encode(x.size)),
        "decode": _Computing(lambda: decode(message, x.size)),
        "encode few": _Computing(lambda: encode(_FEW)),
        "decode few": _Computing(lambda: decode(few, _FEW)),
    }
    (own,) = time_in_turns([Subject(codec.name, calls)], repeats, ready=ready)
    ratio = (message.size - frame.BYTES) / x.nbytes
    by_the_clock = {what: slowest(comm, times).median for what, times in own.items()}
    computed = {what: comm.allreduce(call.median) / comm.size for what, call in calls.items()}
    return codec.name, _speed(by_the_clock, x.nbytes, ratio), _speed(computed, x.nbytes, ratio)


class _Computing:
    """A call, and the seconds of all the process's threads that it computes; the first one is left out."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._seconds: list[float] = []

    def __call__(self) -> None:
        begin = time.process_time()
        self._call()
        self._seconds.append(time.process_time() - begin)

    @property
    def median(self) -> float:
        return statistics.median(self._seconds[1:])


def _speed(seconds: Mapping[str, float], nbytes: int, ratio: float) -> Speed:
    return Speed(
        encode_bytes_per_s=nbytes / seconds["encode"],
        decode_bytes_per_s=nbytes / seconds["decode"],
        call_s=(seconds["encode few"] + seconds["decode few"]) / 2,
        ratio=ratio,
    )
