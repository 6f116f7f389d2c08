"""Worker that sums gradients with random rounding, and prints the number of different results among the ranks."""

from unittest.mock import patch

import numpy as np
from collective_cases import ALGORITHMS, topologies
from ranks import WORLD, channel, tell

from hpcbench.comm.execute import SliceRun
from hpcbench.comm.group import Group
from hpcbench.comm.plan import Operation
from hpcbench.comm.planner import refusal
from hpcbench.comm.progress import Progress
from hpcbench.comm.steps import PeerSpan, PlanStep
from hpcbench.comm.topology import Topology
from hpcbench.comm.wait import Wait
from hpcbench.contract.traffic import Algorithm

CODECS = ("int8:256:stochastic", "int4:32/256:nonuniform:stochastic", "int4:32:correlated")
SLICES, N = 3, 5000


def count_results(algorithm: Algorithm, codec: str, topology: Topology) -> int:
    """Return the number of different results of two all-reduces, divided by two. Without a fault, this is 1."""
    group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY))
    group.topology = topology
    through, results = channel(codec, algorithm, slices=SLICES), set[bytes]()
    for call in range(2):
        values = np.random.default_rng([call, WORLD.rank]).standard_normal(N).astype(np.float32)
        group.all_reduce(values, channel=through).wait()
        results.update(WORLD.allgather(values.tobytes()))
    group.free()
    return len(results) // 2


def use_own_seed(self: SliceRun, step: PlanStep, part: PeerSpan) -> int:
    """Round equal partial sums with different random numbers."""
    return self._call.next_seed()


def main() -> None:
    for topology in topologies(WORLD.size):
        for algorithm in ALGORITHMS:
            if refusal(Operation.ALL_REDUCE, algorithm, topology):
                continue
            for codec in CODECS:
                line = {"topology": str(topology), "algorithm": algorithm.value, "codec": codec}
                tell([{**line, "results": count_results(algorithm, codec, topology)}])
    with patch.object(SliceRun, "_find_shared_seed", use_own_seed):
        tell([{"fault": count_results(Algorithm.DOUBLING, CODECS[0], Topology.flat(WORLD.size))}])


if __name__ == "__main__":
    main()
