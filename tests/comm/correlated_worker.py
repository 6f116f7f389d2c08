"""Worker that sums gradients with every kind of rounding, and prints JSON lines."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
from ranks import WORLD, channel, tell

from hpcbench.comm import execute
from hpcbench.comm.correlated import SEED_BITS, make_shared_seed
from hpcbench.comm.group import Group
from hpcbench.comm.progress import Progress
from hpcbench.comm.steps import PeerSpan, PlanStep
from hpcbench.comm.topology import Topology
from hpcbench.comm.wait import Wait
from hpcbench.contract.traffic import Algorithm

N, CALLS = 1 << 12, 60
CODECS = ("int4:32", "int8:64", "int4:32/256:nonuniform")
PLACES = {
    Algorithm.TWO_SHOT: Topology.flat(4),
    Algorithm.HIERARCHICAL_ENCODED: Topology.regular(2, 2),
    Algorithm.RING: Topology.flat(4),
}


def measure(algorithm: Algorithm, codec: str) -> dict[str, Any]:
    """Return the error of a sum, and the error of the mean over many calls relative to that of unbiased sums."""
    group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY))
    group.topology = PLACES[algorithm]
    common = np.random.default_rng(1).standard_normal(N)
    noise = np.random.default_rng(2 + WORLD.rank).standard_normal(N)
    values = (0.6 * common + 0.8 * noise).astype(np.float32)
    exact = WORLD.allreduce(values.astype(np.float64))[WORLD.rank * N // 4 : (WORLD.rank + 1) * N // 4]
    through, out = channel(codec, algorithm), np.empty(N // 4, np.float32)
    total, square = np.zeros(N // 4), 0.0
    for _ in range(CALLS):
        group.reduce_scatter(values.copy(), out, channel=through).wait()
        total += out
        square += float(np.mean((out - exact) ** 2)) / CALLS
    mean_square = float(np.mean((total / CALLS - exact) ** 2))
    group.free()
    return {"error": float(np.sqrt(square)), "bias": float(np.sqrt(mean_square * CALLS / square))}


def own_noise(first: int, step: PlanStep, part: PeerSpan, rank: int, topology: Topology) -> int:
    """Round with random numbers of each rank."""
    return make_shared_seed(first + (rank << 40), step, part, rank, topology)


def same_noise(first: int, step: PlanStep, part: PeerSpan, rank: int, topology: Topology) -> int:
    """Round with the same noise on all ranks, instead of evenly spaced noises."""
    return make_shared_seed(first, step, part, rank, topology) % (1 << SEED_BITS)


def one_stage(first: int, step: PlanStep, part: PeerSpan, rank: int, topology: Topology) -> int:
    """Round partial sums with the random numbers of the values that they contain."""
    return make_shared_seed(first, replace(step, stage=0), part, rank, topology)


FAULTS = {own_noise: Algorithm.TWO_SHOT, same_noise: Algorithm.TWO_SHOT, one_stage: Algorithm.HIERARCHICAL_ENCODED}


def main() -> None:
    for codec in CODECS:
        for algorithm in PLACES:
            for how in ("", ":stochastic", ":correlated"):
                line = {"codec": codec, "algorithm": algorithm.value, "how": how, "fault": None}
                tell([{**line, **measure(algorithm, codec + how)}])
    for fault, algorithm in FAULTS.items():
        with patch.object(execute, "make_shared_seed", fault):
            line = {"codec": CODECS[0], "algorithm": algorithm.value, "how": ":correlated", "fault": fault.__name__}
            tell([{**line, **measure(algorithm, CODECS[0] + ":correlated")}])


if __name__ == "__main__":
    main()
