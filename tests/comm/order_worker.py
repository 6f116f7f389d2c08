"""Worker that runs the same operations in and out of order. Results must be bitwise identical."""

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from collective_cases import LARGE, SLICES, SLICING, digest
from plan_cases import POISON, Array, contribution
from ranks import WORLD, Hooked, channel, tell

from hpcbench.comm.group import Group
from hpcbench.comm.progress import Progress
from hpcbench.comm.topology import Topology
from hpcbench.comm.wait import Wait
from hpcbench.comm.work import Work
from hpcbench.contract.shards import count_elements, cut_evenly
from hpcbench.contract.traffic import Algorithm


class Todo(NamedTuple):
    group: int
    what: str
    algorithm: Algorithm
    codec: str
    n: int


MIXED = [
    Todo(group, what, algorithm, codec, n)
    for group in range(3)
    for what, algorithm, codec, n in (
        ("all_reduce", Algorithm.TWO_SHOT, "zfp:8", 70_000),
        ("all_reduce", Algorithm.TWO_SHOT, "int8:256:stochastic", 140_000),
        ("reduce_scatter", Algorithm.RING, "none", 9000),
        ("all_reduce", Algorithm.HOMOMORPHIC, "int8:256", 5000),
        ("all_reduce", Algorithm.DOUBLING, "int4:32", 9000),
        ("all_reduce", Algorithm.HOMOMORPHIC, "int8:256", 20_000),
        ("all_reduce", Algorithm.NATIVE, "none", 3000),
        ("all_gather", Algorithm.HIERARCHICAL, "xpk", 70_000),
        ("all_reduce", Algorithm.HIERARCHICAL, "zfp:16", 70_000),
        ("broadcast", Algorithm.ENCODED, "zfp:8", 70_000),
        ("shift", Algorithm.ENCODED, "fp16", 9000),
    )
]
CROWD = [
    Todo(0, "all_reduce", *((Algorithm.DOUBLING, "zfp:8", 300 + k) if k % 32 else (Algorithm.TWO_SHOT, "zfp:8", n)))
    for k, n in enumerate([2_000_000, *[0] * 31, 300_000, *[0] * 31, 200_000])
]
"""Concurrent operations on one group. There are more operations than distinct tags, and the first operation is slow."""


def groups(background: bool) -> list[Group]:
    progress = Progress(Wait.GIVE_WAY, background=background)
    both = [Group(WORLD.Dup(), progress, SLICING) for _ in range(2)]
    both.append(Group(WORLD.Split(WORLD.rank % 2, WORLD.rank), progress, SLICING))
    both[1].topology = Topology.regular(WORLD.size, 1)
    return both


def begin(group: Group, todo: Todo, before: Callable[[], None]) -> tuple[Work, Array]:
    """Start an operation, and return the array that will hold its result."""
    hooked = todo.algorithm not in (Algorithm.NATIVE, Algorithm.HOMOMORPHIC)
    codec = Hooked(todo.codec, before) if hooked else todo.codec
    ch = channel(codec, todo.algorithm, slices=SLICES if todo.n >= max(LARGE) else None)
    buf, mine = contribution(group.rank, todo.n, "float32"), cut_evenly(todo.n, group.size)[group.rank]
    if todo.what == "all_reduce":
        return group.all_reduce(buf, channel=ch), buf
    if todo.what == "broadcast":
        return group.broadcast(buf, 1 % group.size, channel=ch), buf
    dst = np.full(count_elements(mine) if todo.what == "reduce_scatter" else todo.n, POISON, "float32")
    if todo.what == "reduce_scatter":
        return group.reduce_scatter(buf, dst, channel=ch), dst
    if todo.what == "all_gather":
        return group.all_gather(buf[mine], dst, channel=ch), dst
    return group.shift(buf, dst, by=1, channel=ch), dst


def calm(todo: list[Todo]) -> list[str]:
    pair, results = groups(False), []
    for item in todo:
        work, result = begin(pair[item.group], item, lambda: None)
        work.wait()
        results.append(digest(result))
    return results


def disorder(todo: list[Todo], *, background: bool, seed: int) -> list[str]:
    """Run the operations, with each rank sleeping at random points and waiting in its own order."""
    random = np.random.default_rng([WORLD.rank, seed])
    sleeping = np.random.default_rng([WORLD.rank, seed, 1])  # also called by the thread

    def sleep() -> None:
        if sleeping.random() < 0.1:
            time.sleep(sleeping.exponential(1e-3))

    pair, started = groups(background), []
    for item in todo:
        if random.random() < 0.5:
            time.sleep(random.exponential(3e-3))
        started.append(begin(pair[item.group], item, sleep))
    for k in random.permutation(len(started)):
        started[k][0].wait()
        sleep()
    return [digest(result) for _, result in started]


def order() -> None:
    lines: list[dict[str, Any]] = []
    for name, todo in (("mixed", MIXED), ("crowd", CROWD)):
        expected = calm(todo)
        for background in (False, True):
            for seed in range(2):
                got = disorder(todo, background=background, seed=seed)
                for item, want, result in zip(todo, expected, got, strict=True):
                    what = {"todo": name, "background": background, "seed": seed, "item": item, "rank": WORLD.rank}
                    lines.append({**what, "same": result == want})
    tell(lines)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
