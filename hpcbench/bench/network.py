"""Speed of links, codecs and the MPI library with all ranks active. Plans are chosen from the results."""

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from hpcbench.bench.collectives import Bench, find_slowest
from hpcbench.bench.options import format_size
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
"""Message sizes in bytes. Small messages are left out, because a token bucket would not delay them."""
_LATENCY_BYTES, _LATENCY_TURNS = 8, 20
_FEW = 64
"""Number of values in a message that is so small that the codec time is pure overhead."""


@dataclass(frozen=True)
class Level:
    """Message times within or between nodes."""

    latency_s: float
    seconds: dict[int, float]
    """Time in seconds until every rank has sent and received a message, keyed by message size in bytes."""
    senders: int
    """Number of ranks that share the link. Between nodes, the largest number of ranks on any node is used."""

    def rate(self, nbytes: int) -> float:
        """Return the link bandwidth in bytes per second."""
        return self.senders * nbytes / self.seconds[nbytes]

    @property
    def link(self) -> Link:
        """Latency, and the bandwidth measured with the largest messages."""
        return Link(self.latency_s, self.rate(max(self.seconds)))


@dataclass(frozen=True)
class MeasuredNetwork:
    """Network measurements of a machine.

    Attributes
    ----------
    within, between
        Message times within and between nodes. `within` is None if every node has one rank. `between` is None on a
        single node.
    codecs
        Speed of each codec on the slowest rank, by name.
    native
        Library collectives as (operation, bytes, seconds), with the time of the library's faster call.
    blocking
        Cases (operation, bytes) in which the blocking call was faster.
    softirq_cores
        Number of cores that this machine's kernel used for packets while all nodes sent messages, or 0 on a single
        node.
    of_a_core
        Speed of each codec in processor time, as a mean over ranks. On shared cores, elapsed time includes work of
        other ranks.
    """

    within: Level | None
    between: Level | None
    codecs: dict[str, Speed]
    native: list[tuple[str, int, float]]
    blocking: list[tuple[str, int]]
    softirq_cores: float = 0.0
    of_a_core: Mapping[str, Speed] = field(default_factory=dict)

    def to_links(self) -> dict[str, Any]:
        """Return the measurements in the format of `hpcbench.comm.links.load`."""
        levels = {"within": self.within, "between": self.between}
        return {
            "transport": "mpi",
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
) -> MeasuredNetwork:
    """Measure links, codecs and collectives one after another, on all ranks at once.

    Parameters
    ----------
    comm, progress
        Communicator of all ranks, and progress engine.
    bench
        Measurement of the library's collectives on these ranks.
    names
        Codec names, written as in a study.
    x
        float32 values for the codecs, shape (n,).
    sizes
        Sizes of the library's collectives in bytes.
    repeats
        Number of timed repeats.
    show
        Callback before each measurement.

    Raises
    ------
    UserError
        A codec does not exist or does not accept float32.
    """
    todo = 2 + len(names) + len(Operation) * len(sizes)
    topology = Topology.of(comm)
    show(0, todo, "within nodes")
    within = _measure_level(comm, progress, _list_peers_within(topology), 1, repeats)
    show(1, todo, "between nodes")
    with _Softirq() as softirq:
        between = _measure_level(comm, progress, _list_peers_between(topology), topology.per_node, repeats)
    codecs: dict[str, Speed] = {}
    of_a_core: dict[str, Speed] = {}
    for k, name in enumerate(names):
        show(2 + k, todo, name)
        codec, *speeds = _measure_codec(comm, name, x, repeats, lambda: progress.complete([comm.Ibarrier()]))
        codecs[codec], of_a_core[codec] = speeds
    native, blocking = [], []
    cases = [(operation.value, nbytes) for operation in Operation for nbytes in sizes]
    for k, (operation, nbytes) in enumerate(cases):
        show(2 + len(names) + k, todo, f"{operation} {format_size(nbytes)}")
        seconds, blocks = bench.measure_native(operation, nbytes, repeats)
        native.append((operation, nbytes, seconds))
        if blocks:
            blocking.append((operation, nbytes))
    show(todo, todo, "")
    return MeasuredNetwork(within, between, codecs, native, blocking, softirq.cores if between else 0.0, of_a_core)


class _Softirq:
    """Context manager that measures how many cores this machine's kernel uses for packets."""

    def __enter__(self) -> "_Softirq":
        self._begin, self.cores = (time.perf_counter(), self._read_seconds()), 0.0
        return self

    def __exit__(self, *_: object) -> None:
        begin, before = self._begin
        self.cores = max(self._read_seconds() - before, 0.0) / (time.perf_counter() - begin)

    @staticmethod
    def _read_seconds() -> float:
        """Return the softirq seconds of all cores since boot on Linux, or 0 on other systems."""
        try:
            first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
        except OSError:
            return 0.0
        return int(first[7]) / os.sysconf("SC_CLK_TCK")


def _list_peers_within(topology: Topology) -> list[int]:
    """For each rank, list the next rank on the same node, or the rank itself if it is the only one."""
    peers = list(range(topology.ranks))
    for members in topology.members:
        for place, rank in enumerate(members):
            peers[rank] = members[(place + 1) % len(members)]
    return peers


def _list_peers_between(topology: Topology) -> list[int]:
    """For each rank, list the rank with the same local index on the next node."""
    peers = list(range(topology.ranks))
    for node, members in enumerate(topology.members):
        after = topology.members[(node + 1) % topology.nodes]
        for place, rank in enumerate(members):
            peers[rank] = after[place % len(after)]
    return peers


def _measure_level(comm: MPI.Comm, progress: Progress, peers: list[int], senders: int, repeats: int) -> Level | None:
    """Measure messages that all ranks send to their peers concurrently, or return None if there are no peers."""
    rank = comm.rank
    sources = [source for source, peer in enumerate(peers) if peer == rank != source]
    if not any(peer != source for source, peer in enumerate(peers)):
        return None

    def time_exchange(nbytes: int, turns: int) -> float:
        out = np.zeros(nbytes, np.uint8)
        received = [np.zeros(nbytes, np.uint8) for _ in sources]

        def exchange() -> None:
            requests = [comm.Irecv(buf, source) for buf, source in zip(received, sources, strict=True)]
            requests += [comm.Isend(out, peers[rank])] if peers[rank] != rank else []
            progress.complete(requests)

        subject = Subject("exchange", {"call": exchange})
        (times,) = time_in_turns([subject], turns, ready=lambda: progress.complete([comm.Ibarrier()]))
        return find_slowest(comm, times["call"]).median

    latency = time_exchange(_LATENCY_BYTES, repeats * _LATENCY_TURNS)
    return Level(latency, {nbytes: time_exchange(nbytes, repeats) for nbytes in MESSAGES}, senders)


def _measure_codec(
    comm: MPI.Comm, name: str, x: Array, repeats: int, ready: Callable[[], object]
) -> tuple[str, Speed, Speed]:
    """Measure encoding, and decoding with accumulation, of messages with a frame, as used in collectives.

    The first returned speed is computed from the slowest rank's elapsed time, the second from the mean processor time
    over all ranks.
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
    (times_of_rank,) = time_in_turns([Subject(codec.name, calls)], repeats, ready=ready)
    ratio = (message.size - frame.BYTES) / x.nbytes
    by_the_clock = {what: find_slowest(comm, times).median for what, times in times_of_rank.items()}
    computed = {what: comm.allreduce(call.median) / comm.size for what, call in calls.items()}
    return codec.name, _make_speed(by_the_clock, x.nbytes, ratio), _make_speed(computed, x.nbytes, ratio)


class _Computing:
    """A call timed with the processor time of all threads in the process. The first call is not counted."""

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


def _make_speed(seconds: Mapping[str, float], nbytes: int, ratio: float) -> Speed:
    return Speed(
        encode_bytes_per_s=nbytes / seconds["encode"],
        decode_bytes_per_s=nbytes / seconds["decode"],
        call_s=(seconds["encode few"] + seconds["decode few"]) / 2,
        ratio=ratio,
    )
