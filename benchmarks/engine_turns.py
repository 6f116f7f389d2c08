"""Ranks of engine.py.

For each size, all measured programs run in the same processes. The losses of the programs are compared first, then
their steps are timed alternately.
"""

import json
import time
from collections.abc import Callable
from datetime import timedelta

import torch
from engine_ours import BASELINE, ours
from engine_peers import peers
from engine_runs import CHECKED, Contender, Size, Step, run_of
from mpi4py import MPI

from hpcbench.train import text

AGREE, NEAR = 1e-5, 0.05
"""Tolerated relative differences of the losses, for exact and for lossy programs."""

Taker = Callable[[int], Step]


def worker(size: Size, *, turns: int, steps: int, threads: int, port: int) -> None:
    """Compare and time all programs on the ranks that MPI started. Rank 0 prints one JSON line per program.

    Raises
    ------
    SystemExit
        The losses of a program differ, or hpcbench cannot run.
    """
    comm = MPI.COMM_WORLD
    torch.set_num_threads(threads)
    if comm.size > 1:
        torch.distributed.init_process_group(
            "gloo",
            init_method=f"tcp://127.0.0.1:{port}",
            rank=comm.rank,
            world_size=comm.size,
            timeout=timedelta(minutes=5),
        )
    run = run_of(size, comm.size, threads, BASELINE)
    corpus = text.load(run.data, run.train.seq_len)
    theirs = [*peers(run, comm, corpus)]
    contenders = [*theirs, *ours(run, comm, corpus)]
    taking: list[tuple[Contender, Taker]] = []
    losses: dict[str, list[float]] = {}
    lacking: dict[str, str] = {}
    for contender in contenders:
        taker, losses_here, why = begin_contender(contender, comm)
        if why and contender not in theirs:
            raise SystemExit(f"engine: {contender.name}: {why}")
        if why:
            lacking[contender.name] = why
        else:
            losses[contender.name] = losses_here
            taking.append((contender, taker))
    same_work(losses, {contender.name: contender.exact for contender in contenders})
    times: dict[str, list[tuple[float, ...]]] = {contender.name: [] for contender, _ in taking}
    for turn in range(turns):
        shift = turn % len(taking)
        for contender, taker in (*taking[shift:], *taking[:shift])[:: 1 if turn % 2 else -1]:
            times[contender.name].append(
                timed(taker, range(CHECKED + turn * steps, CHECKED + (turn + 1) * steps), comm)
            )
    for contender in contenders if comm.rank == 0 else ():
        about = {"name": contender.name, "transport": contender.transport, "fair": contender.fair}
        outcome = {"lack": lacking[contender.name]} if contender.name in lacking else {"turns": times[contender.name]}
        print(json.dumps({**about, **outcome, "losses": losses.get(contender.name)}), flush=True)
    if comm.size > 1:
        torch.distributed.destroy_process_group()


def begin_contender(contender: Contender, comm: MPI.Comm) -> tuple[Taker, list[float], str]:
    """Return the function that runs steps, the first losses, and, if a rank cannot run the program, the reason."""

    def nothing(k: int) -> Step:
        raise AssertionError(f"{contender.name} does not run")

    taker: Taker = nothing
    losses_here, why = list[float](), ""
    try:
        taker = contender.make()
        losses_here = [taker(k).loss for k in range(CHECKED)]
    except Exception as error:  # A peer that cannot run keeps its row, which states the reason.
        why = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:100]}"
    reasons = [each for each in comm.allgather(why) if each]
    return taker, [] if reasons else [comm.allreduce(loss) for loss in losses_here], reasons[0] if reasons else ""


def same_work(losses: dict[str, list[float]], exact: dict[str, bool]) -> None:
    """Compare all losses with the losses of the first program.

    Raises
    ------
    SystemExit
        The losses differ by more than rounding errors or the error of a lossy codec.
    """
    expected = next(iter(losses.values()))
    for name, losses_here in losses.items():
        off = max(abs(a - b) / b for a, b in zip(losses_here, expected, strict=True))
        if not off <= (AGREE if exact[name] else NEAR):
            raise SystemExit(f"engine: {name} does other work: losses {losses_here}, not {expected}")


def timed(taker: Taker, steps: range, comm: MPI.Comm) -> tuple[float, ...]:
    """Return the time of a step, its gradients and its optimizer in seconds, each on the slowest rank."""
    comm.Barrier()
    begin = time.perf_counter()
    taken = [taker(k) for k in steps]
    losses_here = (
        time.perf_counter() - begin,
        sum(step.gradients_s for step in taken),
        sum(step.optimizer_s for step in taken),
    )
    return tuple(comm.allreduce(seconds, MPI.MAX) / len(steps) for seconds in losses_here)
