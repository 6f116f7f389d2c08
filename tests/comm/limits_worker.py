"""Worker that tests size thresholds and rules for traffic between nodes, on four ranks that form one or two nodes."""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
from plan_cases import POISON, Array, contribution
from ranks import WORLD, tell
from simulate import roundtrip

from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import BFLOAT16
from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.comm.progress import Progress
from hpcbench.comm.topology import Topology
from hpcbench.comm.wait import Wait
from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase

N = 4096
TOPOLOGIES = {"two": Topology.regular(2, 2), "one": Topology.flat(4)}
CODEC = "int8:256"


def channel(algorithm: Algorithm = Algorithm.ENCODED, **limits: Any) -> Channel:
    return Channel(Dimension.DP, Phase.BACKWARD, MessageKind.GRAD, get_codec(CODEC), algorithm, slices=1, **limits)


def between() -> Channel:
    return channel(Algorithm.HIERARCHICAL, between_nodes=True)


def collective(group: Group, what: str, ch: Channel) -> Array:
    values = contribution(group.rank, N, "float32")
    mine = slice(group.rank * N // 4, (group.rank + 1) * N // 4)
    if what == "all-reduce":
        group.all_reduce(values, channel=ch).wait()
        return values
    result = np.full(N if what == "all-gather" else N // 4, POISON, np.float32)
    if what == "all-gather":
        group.all_gather(values[mine].copy(), result, channel=ch).wait()
    else:
        group.reduce_scatter(values, result, channel=ch).wait()
    return result


def counted(ch: Channel) -> dict[str, Any]:
    c = ch.counters
    return {
        "bytes": [c.message_bytes, c.wire_bytes, c.network_bytes],
        "plain_calls": c.plain_calls,
        "algorithms": c.algorithms,
        "error": c.error_square,
    }


def collectives() -> Iterator[dict[str, Any]]:
    for name, topology in TOPOLOGIES.items():
        group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY))
        group.topology = topology
        for what in ("all-reduce", "reduce-scatter", "all-gather"):
            cases = {
                "between": between(),
                "at": channel(Algorithm.TWO_SHOT, min_bytes=4 * N),
                "below": channel(Algorithm.TWO_SHOT, min_bytes=4 * N + 1),
                "half": channel(min_bytes=2 * N + 1, dtype=BFLOAT16),
            }
            for case, ch in cases.items():
                result = collective(group, what, ch)
                again = collective(group, what, ch)
                assert result.tobytes() == again.tobytes() or case == "below"
                yield {"what": what, "nodes": name, "case": case, "rank": group.rank, **counted(ch)}
            if what == "all-reduce":
                faulty = channel(Algorithm.TWO_SHOT)  # without the rule's between_nodes
                collective(group, what, faulty)
                collective(group, what, faulty)
                yield {"what": what, "nodes": name, "case": "fault", "rank": group.rank, **counted(faulty)}


def exchanges() -> Iterator[dict[str, Any]]:
    """Check that values sent without encoding are exact, and that all others were encoded exactly once."""
    for name, topology in TOPOLOGIES.items():
        group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY))
        group.topology = topology
        rank = group.rank
        for case in ("between", "threshold", "fault"):
            forgotten = patch.object(Channel, "plain_because", lambda *_, **__: None)
            with forgotten if case == "fault" else nullcontext():
                for by in (1, 2, -1):
                    ch = channel(min_bytes=4 * N + 1) if case == "threshold" else between()
                    src, dst = contribution(rank, N, "float32"), np.full(N, POISON, np.float32)
                    work = group.shift(src, dst, by=by, channel=ch)
                    src[...] = POISON
                    work.wait()
                    sender = (rank - by) % 4
                    plain = case == "threshold" or topology.near(rank, sender)
                    want = expected(ch, contribution(sender, N, "float32"), plain=plain)
                    yield {
                        "what": f"shift by {by}",
                        "nodes": name,
                        "case": case,
                        "rank": rank,
                        "right": dst.tobytes() == want.tobytes(),
                        **counted(ch),
                    }
                ch = channel(min_bytes=4 * 2000) if case == "threshold" else between()
                yield {"what": "all-to-all", "nodes": name, "case": case, "rank": rank, **everyone(group, ch, case)}


def everyone(group: Group, ch: Channel, case: str) -> dict[str, Any]:
    """Exchange different numbers of values between rank i and rank j, some below and some above the limit of 2000."""
    rank, topology = group.rank, group.topology
    counts = [[1000 + 1000 * (2 * i + j) // 2 % 2500 for j in range(4)] for i in range(4)]
    inputs = [contribution(i, sum(counts[i]), "float32") for i in range(4)]

    def part(i: int, j: int) -> Array:
        return inputs[i][sum(counts[i][:j]) : sum(counts[i][: j + 1])]

    def plain(i: int, j: int) -> bool:
        return counts[i][j] < 2000 if case == "threshold" else topology.near(i, j)

    come = [counts[i][rank] for i in range(4)]
    dst = np.full(sum(come), POISON, np.float32)
    group.all_to_all(inputs[rank].copy(), dst, (counts[rank], come), channel=ch).wait()
    want = [expected(ch, part(i, rank), plain=plain(i, rank) or i == rank) for i in range(4)]
    peers = [j for j in range(4) if j != rank]
    wire = {
        j: 4 * counts[rank][j] if plain(rank, j) else ch.codec.wire_bytes(counts[rank][j], inputs[0].dtype)
        for j in peers
    }
    expected_bytes = [sum(4 * counts[rank][j] for j in peers), sum(wire.values())]
    expected_bytes.append(sum(wire[j] for j in peers if not topology.near(rank, j)))
    mixed = {plain(rank, j) for j in peers} | {plain(j, rank) for j in peers}
    return {
        "right": dst.tobytes() == np.concatenate(want).tobytes(),
        "want": expected_bytes,
        "mixed": len(mixed) == 2,
        **counted(ch),
    }


def expected(ch: Channel, values: Array, *, plain: bool) -> Array:
    return values if plain else roundtrip(ch.codec, values)[1]


def messages() -> Iterator[dict[str, Any]]:
    """Print both sides of a message with a threshold of 400 bytes, within a node and between nodes."""
    group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY))
    group.topology = TOPOLOGIES["two"]
    for peer in (1, 2):
        for n in (99, 100):
            for dtype, itemsize in ((None, 4), (BFLOAT16, 2)):
                ch = channel(Algorithm.HIERARCHICAL, between_nodes=True, min_bytes=100 * itemsize, dtype=dtype)
                values, got = contribution(7, n, "float32"), np.full(n, POISON, np.float32)
                if group.rank == 0:
                    group.send(values, peer, tag=3, channel=ch).wait()
                elif group.rank == peer:
                    group.recv(got, 0, tag=3, channel=ch).wait()
                travels = values if dtype is None else values.astype(dtype)
                want = expected(ch, travels, plain=n < 100 or peer == 1).astype(np.float32)
                right = group.rank != peer or got.tobytes() == want.tobytes()
                yield {"rank": group.rank, "peer": peer, "n": n, "itemsize": itemsize, "right": right, **counted(ch)}


def refusals() -> Iterator[dict[str, Any]]:
    group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY))
    messages = []
    for topology, call in (
        (Topology((0, 0, 0, 1)), lambda: group.all_reduce(np.ones(8, np.float32), channel=between())),
        (TOPOLOGIES["two"], lambda: group.broadcast(np.ones(8, np.float32), 0, channel=between())),
        (TOPOLOGIES["two"], lambda: channel(Algorithm.RING, between_nodes=True)),
    ):
        group.topology = topology
        try:
            call()
        except ValueError as error:
            messages.append(str(error))
    yield {"said": messages}


if __name__ == "__main__":
    tell([line for name in sys.argv[1:] for line in ({"test": name, **each} for each in globals()[name]())])
