"""Runs every operation on real ranks, in groups of all sizes; prints what came out, one JSON line a case."""

import json
import sys
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.channel import Algorithm, Channel, Dimension, Kind, Phase
from hpcbench.comm.group import Group
from hpcbench.comm.progress import Progress
from hpcbench.comm.shards import length, shards
from hpcbench.comm.wait import Wait

WORLD = MPI.COMM_WORLD
SIZES = (0, 1, 3, 7, 64, 1001, 4096)
CODECS = ("none", "zfp:8", "zfp:16", "zfp:24", "mpc")
POISON = 7.7e33


def channel(codec: str, algorithm: Algorithm) -> Channel:
    return Channel(Dimension.DP, Phase.BACKWARD, Kind.GRAD, get_codec(codec), algorithm)


def contribution(rank: int, n: int, dtype: str) -> np.ndarray:
    """Not a ramp: values of mixed size and sign, another for each rank."""
    generator = np.random.default_rng([rank, n])
    return (generator.standard_t(2, n) * 1e-3).astype(dtype)


def communicators() -> dict[str, MPI.Comm]:
    """The world, this rank alone, a copy, and splits of sizes that do not match."""
    return {
        "world": WORLD,
        "self": MPI.COMM_SELF.Dup(),
        "dup": WORLD.Dup(),
        "odd-even": WORLD.Split(WORLD.rank % 2, -WORLD.rank),
        "first-three": WORLD.Split(min(WORLD.rank // 3, 1), WORLD.rank),
    }


def all_reduce(group: Group, ch: Channel, n: int, dtype: str) -> np.ndarray:
    buf = contribution(group.rank, n, dtype)
    group.all_reduce(buf, channel=ch).wait()
    return buf


def reduce_scatter(group: Group, ch: Channel, n: int, dtype: str) -> np.ndarray:
    mine = shards(n, group.size)[group.rank]
    dst = np.full(length(mine), POISON, dtype)
    group.reduce_scatter(contribution(group.rank, n, dtype), dst, channel=ch).wait()
    whole = np.full(n, 0, dtype)
    whole[mine] = dst
    return whole


def all_gather(group: Group, ch: Channel, n: int, dtype: str) -> np.ndarray:
    dst = np.full(n, POISON, dtype)
    mine = shards(n, group.size)[group.rank]
    group.all_gather(contribution(99, n, dtype)[mine], dst, channel=ch).wait()
    return dst


def expected(operation: str, group: Group, n: int, dtype: str) -> np.ndarray:
    if operation == "all_gather":
        return contribution(99, n, "float64")
    return np.sum([contribution(rank, n, dtype).astype("float64") for rank in range(group.size)], axis=0)


OPERATIONS: dict[str, Callable[..., np.ndarray]] = {
    "all_reduce": all_reduce,
    "reduce_scatter": reduce_scatter,
    "all_gather": all_gather,
}


def collectives() -> None:
    for name, comm in communicators().items():
        group = Group(comm, Progress(Wait.GIVE_WAY))
        for operation, call in OPERATIONS.items():
            for codec in CODECS:
                for algorithm in (Algorithm.NATIVE, Algorithm.TWO_SHOT):
                    if algorithm is Algorithm.NATIVE and codec != "none":
                        continue
                    for dtype in ("float32", "float64"):
                        if codec.startswith("zfp") and dtype == "float64":
                            continue
                        for n in SIZES:
                            case(comm, group, name, operation, call, codec, algorithm, dtype, n)


def case(comm, group, name, operation, call, codec, algorithm, dtype, n) -> None:
    ch = channel(codec, algorithm)
    result = call(group, ch, n, dtype)
    want = expected(operation, group, n, dtype)
    if operation == "reduce_scatter":
        whole = np.empty_like(result)
        comm.Allreduce(result, whole)
        result = whole
    everyone = comm.gather(result.tobytes())
    counters = comm.gather((ch.counters.message_bytes, ch.counters.wire_bytes))
    holds_first = comm.allreduce(WORLD.rank, MPI.MIN) == 0
    if comm.rank == 0 and holds_first:
        scale = float(np.linalg.norm(want)) or 1.0
        print(
            json.dumps(
                {
                    "comm": name,
                    "ranks": comm.size,
                    "operation": operation,
                    "codec": codec,
                    "algorithm": algorithm.value,
                    "dtype": dtype,
                    "n": n,
                    "error": float(np.linalg.norm(result.astype("float64") - want)) / scale,
                    "replicas": len(set(everyone)),
                    "message": sum(m for m, _ in counters),
                    "wire": sum(w for _, w in counters),
                }
            ),
            flush=True,
        )


def messages() -> None:
    """Point to point, both ways of waiting, more than one message under way."""
    for wait in Wait:
        group = Group(WORLD.Dup(), Progress(wait))
        for codec in CODECS:
            ch = channel(codec, Algorithm.TWO_SHOT)
            sent = [contribution(5, n, "float32") for n in SIZES if n]
            if group.rank == 0:
                sendings = [group.send(x, 1, tag=i, channel=ch) for i, x in enumerate(sent)]
                for x in sent:
                    x[...] = POISON  # the message has been encoded: the caller's buffer is free
                for sending in sendings:
                    sending.wait()
            if group.rank == 1:
                worst = 0.0
                for i in reversed(range(len(sent))):
                    got = np.full_like(sent[i], POISON)
                    group.recv(got, 0, tag=i, channel=ch).wait()
                    worst = max(worst, float(np.linalg.norm(got - sent[i]) / np.linalg.norm(sent[i])))
                WORLD.send((codec, wait.value, worst), 0)
            if group.rank == 0:
                codec_name, way, worst = WORLD.recv(source=1)
                print(
                    json.dumps(
                        {
                            "codec": codec_name,
                            "wait": way,
                            "error": worst,
                            "message": ch.counters.message_bytes,
                            "wire": ch.counters.wire_bytes,
                        }
                    ),
                    flush=True,
                )


def non_finite() -> None:
    """NaN and infinity on one rank reach every rank."""
    group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY))
    for codec in CODECS:
        for value in (np.nan, np.inf, -np.inf):
            for place in (0, 500, 1000):
                buf = contribution(group.rank, 1001, "float32")
                if group.rank == WORLD.size - 1:
                    buf[place] = value
                group.all_reduce(buf, channel=channel(codec, Algorithm.TWO_SHOT)).wait()
                seen = WORLD.gather(bool(np.isfinite(buf[place])))
                if WORLD.rank == 0:
                    print(json.dumps({"codec": codec, "value": str(value), "place": place, "finite": sum(seen)}))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
