"""Worker that runs every operation on real ranks in groups of all sizes. The worker prints one JSON line per case and
rank."""

import sys
from typing import Any

import numpy as np
from collective_cases import LOSSLESS, SLICING, Case, Told, cases, digest, exchanged, parts_of, planned, topologies
from mpi4py import MPI
from plan_cases import POISON, Array, contribution, inputs
from ranks import WORLD, channel, communicators, tell
from simulate import roundtrip

from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.comm.plan import Operation
from hpcbench.comm.progress import Progress
from hpcbench.comm.topology import Topology
from hpcbench.comm.wait import Wait
from hpcbench.contract.shards import count_elements, cut_evenly
from hpcbench.contract.traffic import Algorithm

BOTH = (Algorithm.ENCODED, Algorithm.NATIVE)


def perform(group: Group, case: Case, ch: Channel) -> tuple[Array, bool]:
    """Return the result on this rank, and whether read-only arguments are unmodified."""
    mine = cut_evenly(case.n, group.size)[group.rank]
    values = inputs(planned(case, group.topology), case.dtype, integers=False)[group.rank]
    if case.operation is Operation.ALL_REDUCE:
        group.all_reduce(values, channel=ch).wait()
        return values, True
    if case.operation is Operation.BROADCAST:
        group.broadcast(values, case.root, channel=ch).wait()
        return values, True
    if case.operation is Operation.REDUCE:
        at_root = group.rank == case.root
        dst = np.full(case.n, POISON, case.dtype) if at_root else None
        before = values.copy()
        group.reduce(values, dst, case.root, channel=ch).wait()
        return values if dst is None else dst, at_root or values.tobytes() == before.tobytes()
    if case.operation is Operation.REDUCE_SCATTER:
        src, dst = values, np.full(count_elements(mine), POISON, case.dtype)
        before = src.copy()
        group.reduce_scatter(src, dst, channel=ch).wait()
    else:
        src, dst = values[mine].copy(), np.full(case.n, POISON, case.dtype)
        before = src.copy()
        group.all_gather(src, dst, channel=ch).wait()
    return dst, src.tobytes() == before.tobytes()


def run(group: Group, name: str, case: Case, index: int) -> dict[str, Any]:
    ch = channel(case.codec, case.algorithm, slices=case.slices)
    result, intact = perform(group, case, ch)
    counted = ch.counters
    report = Told(digest(result), counted.message_bytes, counted.wire_bytes, counted.network_bytes)
    line = {"comm": name, "case": index, "rank": group.rank, "ranks": group.size, "told": report, "intact": intact}
    plain = planned(case, group.topology).algorithm is Algorithm.NATIVE
    # the MPI library does not specify the bits of a sum
    line["samples_error"] = counted.sampled_square > 0
    return {**line, "plain_calls": counted.plain_calls, "values": result[:2000].tolist() if plain else None}


def collectives() -> None:
    lines = []
    for place, topology in enumerate(topologies(WORLD.size)):
        group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY), SLICING)
        group.topology = topology
        todo = enumerate(cases(topology, few=place > 0))
        lines += [run(group, f"world {place}", case, index) for index, case in todo]
    for name, comm in communicators().items():
        group = Group(comm, Progress(Wait.SPIN if comm.size < 3 else Wait.GIVE_WAY), SLICING)
        flat = Topology.flat(comm.size)
        lines += [run(group, name, case, index) for index, case in enumerate(cases(flat, few=True))]
    tell(lines)


def exchanges() -> None:
    """Check all-to-all, shifts and messages.

    Received values were encoded exactly once, and a rank's own part is exact.
    """
    lines: list[dict[str, Any]] = []
    for name, comm in {"world": WORLD.Dup(), **communicators()}.items():
        group = Group(comm, Progress(Wait.GIVE_WAY))
        for codec in ("none", "zfp:8", "int8:256", "xpk"):
            for algorithm in BOTH if codec == "none" else BOTH[:1]:
                for dtype in ("float32", "float64") if codec in LOSSLESS else ("float32",):
                    lines += [exchange(group, name, codec, algorithm, dtype, seed) for seed in range(2)]
                    lines += [shifted(group, name, codec, algorithm, dtype, by) for by in (0, 1, -1, 2, group.size)]
    tell(lines)


def compared(what: str, name: str, codec: str, got: Array, want: Array, ch: Channel, wire: int) -> dict[str, Any]:
    right = got.tobytes() == want.tobytes()
    return {"what": what, "comm": name, "codec": codec, "right": right, "wire": ch.counters.wire_bytes, "want": wire}


def exchange(group: Group, name: str, codec: str, algorithm: Algorithm, dtype: str, seed: int) -> dict[str, Any]:
    ch, rank = channel(codec, algorithm), group.rank
    counts = parts_of(group.size, seed)
    parts = exchanged(rank, counts, dtype)
    src, dst = np.concatenate(parts), np.full(counts[:, rank].sum(), POISON, dtype)
    group.all_to_all(src, dst, (counts[rank].tolist(), counts[:, rank].tolist()), channel=ch).wait()
    assert src.tobytes() == np.concatenate(parts).tobytes()
    came = [exchanged(peer, counts, dtype)[rank] for peer in range(group.size)]
    want = [part if peer == rank else roundtrip(ch.codec, part)[1] for peer, part in enumerate(came)]
    wire = sum(roundtrip(ch.codec, part)[0].nbytes for peer, part in enumerate(parts) if peer != rank)
    return compared("all-to-all", name, codec, dst, np.concatenate(want), ch, wire)


def shifted(group: Group, name: str, codec: str, algorithm: Algorithm, dtype: str, by: int) -> dict[str, Any]:
    ch, away = channel(codec, algorithm), by % group.size != 0
    src = contribution(group.rank, 1001, dtype)
    dst = np.full_like(src, POISON)
    work = group.shift(src, dst, by=by, channel=ch)
    src[...] = POISON  # the message has been encoded, so the caller may reuse the buffer
    work.wait()
    want = contribution((group.rank - by) % group.size, 1001, dtype)
    wire = roundtrip(ch.codec, contribution(group.rank, 1001, dtype))[0].nbytes if away else 0
    return compared(f"shift by {by}", name, codec, dst, roundtrip(ch.codec, want)[1] if away else want, ch, wire)


def messages() -> None:
    """Check messages in both directions, with both wait modes.

    Several messages are in flight, and they are received out of order.
    """
    lines = []
    for wait in Wait:
        group = Group(WORLD.Dup(), Progress(wait))
        for codec in ("none", "zfp:8", "zfp:16", "int4:32", "mpc:1", "xpk", "fp16"):
            for algorithm in BOTH if codec == "none" else BOTH[:1]:
                lines += message(group, codec, algorithm)
    tell(lines)


def message(group: Group, codec: str, algorithm: Algorithm) -> list[dict[str, Any]]:
    ch = channel(codec, algorithm)
    sent = [contribution(5, n, "float32") for n in (1, 3, 7, 64, 1001, 4096, 100_000)]
    if group.rank == 0:
        sendings = [group.send(x, 1, tag=i, channel=ch) for i, x in enumerate(sent)]
        for x in sent:
            x[...] = POISON
        for sending in sendings:
            sending.wait()
        wire = sum(roundtrip(ch.codec, contribution(5, x.size, "float32"))[0].nbytes for x in sent)
        return [compared("sent", "world", codec, np.empty(0), np.empty(0), ch, wire)]
    if group.rank == 1:
        got = [np.full_like(x, POISON) for x in sent]
        for i in reversed(range(len(sent))):
            group.recv(got[i], 0, tag=i, channel=ch).wait()
        want = [roundtrip(ch.codec, x)[1] for x in sent]
        return [compared("message", "world", codec, np.concatenate(got), np.concatenate(want), ch, 0)]
    return []


def non_finite() -> None:
    """Check that a NaN or infinity on one rank reaches every rank."""
    lines = []
    for ranked in topologies(WORLD.size)[:1]:
        group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY))
        group.topology = ranked
        for codec in ("none", "zfp:8", "int8:256", "sign:1024", "topk:0.01", "mpc:1"):
            for algorithm in Algorithm:
                homomorphic = algorithm is Algorithm.HOMOMORPHIC
                if (algorithm is Algorithm.NATIVE and codec != "none") or (homomorphic and codec != "int8:256"):
                    continue
                for value in (np.nan, np.inf, -np.inf):
                    for place in (0, 1000):
                        buf = contribution(group.rank, 1001, "float32")
                        if group.rank == WORLD.size - 1:
                            buf[place] = value
                        group.all_reduce(buf, channel=channel(codec, algorithm)).wait()
                        lines.append({"what": [codec, algorithm.value, str(value), place, int(WORLD.rank)]})
                        lines[-1]["finite"] = bool(np.isfinite(buf[place]))
    tell(lines)


def refusals() -> None:
    """Check that invalid requests are rejected before anything is sent."""
    group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY))
    messages = []
    for dtype, ch, op in (
        (np.float16, channel("none", Algorithm.TWO_SHOT), MPI.SUM),
        (np.float32, channel("zfp:8", Algorithm.TWO_SHOT), MPI.MAX),
        (np.float64, channel("zfp:8", Algorithm.TWO_SHOT), MPI.SUM),
    ):
        try:
            group.all_reduce(np.ones(10, dtype), channel=ch, op=op).wait()
        except (ValueError, TypeError) as error:
            messages.append(str(error))
    ch, dst = channel("none", Algorithm.DOUBLING), np.empty(10 // WORLD.size, np.float32)
    group.reduce_scatter(np.ones(10, np.float32), dst, channel=ch).wait()
    tell([{"said": messages, "instead": ch.counters.algorithms, "sums": dst.tolist()}])


if __name__ == "__main__":
    globals()[sys.argv[1]]()
