"""Time the all-reduce of NCCL and of hpcbench, on the ranks that started this program (mpiexec -n 2).

mpiexec -n 2 python benchmarks/gpu/all_reduce.py [--dry] [--mib 1 4 16 64 256] [--schemes none bf16 int8:256]

`--dry` runs the same code on host arrays over MPI. Rank 0 prints one JSON object per size and scheme: the median time
of the slowest rank in milliseconds, and the bytes that a rank sends. If ranks share a GPU, no link is measured.
"""

import argparse
import json
import time
from statistics import median
from typing import Any

import numpy as np
from mpi4py import MPI

from hpcbench.codecs.registry import get_codec
from hpcbench.comm import nccl
from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.comm.places import Places
from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase

WARM_UP, TIMES = 3, 10


def channel(codec: str, algorithm: Algorithm) -> Channel:
    """Return a gradient channel."""
    return Channel(Dimension.DP, Phase.BACKWARD, MessageKind.GRAD, get_codec(codec), algorithm)


def measure(group: Group, x: Any, how: Channel, synchronize: Any) -> float:
    """Return the median time of an all-reduce on the slowest rank, in seconds."""
    seconds = []
    for _ in range(WARM_UP + TIMES):
        MPI.COMM_WORLD.Barrier()
        begin = time.perf_counter()
        group.all_reduce(x, channel=how).wait()
        synchronize()
        seconds.append(MPI.COMM_WORLD.allreduce(time.perf_counter() - begin, MPI.MAX))
    return median(seconds[WARM_UP:])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--mib", type=float, nargs="+", default=[1, 4, 16, 64, 256])
    parser.add_argument("--schemes", nargs="+", default=["none", "bf16", "int8:256", "fp8e4m3", "zfp:8"])
    options = parser.parse_args()
    places = Places() if options.dry else Places(nccl=nccl.connect)
    group = Group(MPI.COMM_WORLD.Dup(), Progress(Wait.GIVE_WAY), places=places)
    for size in options.mib:
        n = int(size * (1 << 20)) // 4
        if options.dry:
            x, synchronize = np.zeros(n, np.float32), int
        else:
            import cupy

            x, synchronize = cupy.zeros(n, cupy.float32), cupy.cuda.Device().synchronize
        ways = [("the library's own", channel("none", Algorithm.NATIVE))]
        ways += [(codec, channel(codec, Algorithm.TWO_SHOT)) for codec in options.schemes]
        for name, how in ways:
            seconds = measure(group, x, how, synchronize)
            if group.rank == 0:
                sent = how.counters.wire_bytes // (WARM_UP + TIMES)
                row = {"mib": size, "ranks": group.size, "scheme": name, "ms": round(seconds * 1e3, 3), "sent": sent}
                print(json.dumps(row), flush=True)
    group.free()


if __name__ == "__main__":
    main()
