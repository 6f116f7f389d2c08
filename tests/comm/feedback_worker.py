"""Worker that tests error feedback on real ranks: the mean of many sums of the same vectors, and the residuals."""

import os
import signal
import sys

import numpy as np
from collective_cases import SLICING, digest
from mpi4py import MPI
from plan_cases import contribution
from ranks import WORLD, Hooked, channel, tell

from hpcbench.comm.feedback import Feedback
from hpcbench.comm.group import Group
from hpcbench.comm.progress import Progress
from hpcbench.comm.topology import Topology
from hpcbench.comm.wait import Wait
from hpcbench.contract.traffic import Algorithm

N, TIMES, FEW = 2000, (100, 200), 5
CODECS = ("sign:64", "topk:0.01", "int4:32")
OWNED = (Algorithm.TWO_SHOT, Algorithm.RING, Algorithm.HIERARCHICAL)


def everywhere(values: np.ndarray) -> np.ndarray:
    """Return the exact sum over all ranks."""
    total = np.empty(values.size)
    WORLD.Allreduce(values.astype(np.float64), total)
    return total


def mean() -> None:
    """Print the error of the mean of many sums.

    Also print the part of the error that the residuals do not explain.
    """
    group, lines = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY)), []
    group.topology = Topology.regular(WORLD.size, 1)
    mine = contribution(WORLD.rank, N, "float32")
    exact = everywhere(mine)
    norm = float(np.linalg.norm(exact))
    for codec in CODECS:
        for algorithm in OWNED:
            for feedback in (Feedback(N), None):
                total, errors = np.zeros(N), []
                ch = channel(codec, algorithm)
                for turn in range(1, TIMES[-1] + 1):
                    buf = mine.copy()
                    group.all_reduce(buf, channel=ch, feedback=feedback).wait()
                    total += buf
                    if turn in TIMES:
                        errors.append(float(np.linalg.norm(total / turn - exact)) / norm)
                line = {"codec": codec, "algorithm": algorithm.value, "feedback": feedback is not None}
                if feedback is not None:
                    lack = everywhere(feedback.sent) + everywhere(feedback.summed)
                    line["unexplained"] = float(np.linalg.norm(total + lack - turn * exact)) / norm / turn
                lines.append({**line, "errors": errors})
    tell(lines if WORLD.rank == 0 else [])


def residuals() -> None:
    """Print results and residuals of the first sums, and of a sum after `forget`."""
    group, lines = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY), SLICING), []
    for codec in CODECS:
        ch, feedback = channel(codec, Algorithm.TWO_SHOT), Feedback(N)
        for turn in range(FEW + 1):
            if turn == FEW:
                feedback.forget()
            buf = contribution(WORLD.rank, N, "float32")
            group.all_reduce(buf, channel=ch, feedback=feedback).wait()
            digests = [digest(x) for x in (buf, feedback.sent, feedback.summed)]
            lines.append({"codec": codec, "turn": turn, "rank": WORLD.rank, "told": digests})
    tell(lines)


def stale() -> None:
    """Plant residuals that belong to another call, so that the mean does not converge."""
    group, mine = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY)), contribution(WORLD.rank, N, "float32")
    exact, total, ch = everywhere(mine), np.zeros(N), channel("int4:32", Algorithm.TWO_SHOT)
    for _ in range(TIMES[-1]):
        buf, feedback = mine.copy(), Feedback(N)
        feedback.sent[...] = contribution(WORLD.rank + 50, N, "float32")
        group.all_reduce(buf, channel=ch, feedback=feedback).wait()
        total += buf
    error = float(np.linalg.norm(total / TIMES[-1] - exact) / np.linalg.norm(exact))
    tell([{"error": error}] if WORLD.rank == 0 else [])


def dies() -> None:
    """Kill rank 1 in the middle of a collective."""
    left = [20]

    def before() -> None:
        left[0] -= 1
        if WORLD.rank == 1 and left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY))
    for turn in range(100):
        buf = contribution(WORLD.rank, 70_000, "float32")
        group.all_reduce(buf, channel=channel(Hooked("zfp:8", before), Algorithm.TWO_SHOT)).wait()
        print(f"turn {turn}", flush=True)
    MPI.COMM_WORLD.Barrier()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
