"""Ranks that run as threads of one process with gloo groups, and the plan executor as a reference."""

import functools
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from test_gloo_carrier import on_ranks

from hpcbench.codecs.types import BFLOAT16
from hpcbench.comm.execute import STAGES, Call, carry_out
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.memory import Tally
from hpcbench.comm.places import HostPlace
from hpcbench.comm.plan import Operation, Plan
from hpcbench.comm.rounding import narrow, widen
from hpcbench.comm.scratch import Scratch
from hpcbench.comm.vector import InPlace, Reduced
from hpcbench.programs.collective_carrier import CollectiveCarrier
from hpcbench.programs.gloo_carrier import drive
from hpcbench.programs.stream_order import HostOrder
from hpcbench.programs.tensors import DTYPES, array

FIXED = (
    *(
        "none",
        "bf16",
        "fp16",
        "fp8e4m3",
        "fp8e5m2",
        "int8:256",
        "int8:256:stochastic",
        "int4:32",
        "int4:32/256",
        "rotate64+int4:32/256",
        "mxfp4:rceil",
        "nvfp4",
        "zfp:8",
        "zfp:16",
    ),
    *("sign:1024", "topk:0.1", "2:4"),
)
"""Codecs with a fixed size."""
SEED = 3 << 20


class Counted:
    """A backend that counts collectives and the bytes sent to other ranks."""

    def __init__(self, backend: Any, rank: int, size: int) -> None:
        self._backend, self._rank, self._size = backend, rank, size
        self.sent, self.calls = 0, []

    def alltoall_base(self, out: Any, src: Any, received: list[int], sent: list[int], options: Any) -> Any:
        assert out.dtype == src.dtype == torch.uint8
        self.sent += sum(sent) - sent[self._rank]
        self.calls.append("all-to-all")
        return self._backend.alltoall_base(out, src, received, sent, options)

    def _allgather_base(self, out: Any, src: Any, options: Any) -> Any:
        assert out.dtype == src.dtype == torch.uint8
        self.sent += (self._size - 1) * src.numel()
        self.calls.append("all-gather")
        return self._backend._allgather_base(out, src, options)


class Rank(threading.Thread):
    """A thread that acts as a rank of a gloo group and runs work items in turn."""

    def __init__(self, rank: int, ranks: int, store: Any) -> None:
        super().__init__(daemon=True)
        self._place, self._store = (rank, ranks), store
        self.work: SimpleQueue[Callable[[int, Counted], Any]] = SimpleQueue()
        self.results: SimpleQueue[Any] = SimpleQueue()

    def run(self) -> None:
        group = dist.ProcessGroupGloo(self._store, *self._place, timeout=timedelta(seconds=60))
        while True:
            work = self.work.get()
            try:
                self.results.put(work(self._place[0], Counted(group, *self._place)))
            except BaseException as error:
                self.results.put(error)


@functools.cache
def ranks_of(ranks: int) -> list[Rank]:
    """Return running ranks. The ranks connect only once for all tests."""
    store = dist.HashStore()
    running = [Rank(rank, ranks, store) for rank in range(ranks)]
    for rank in running:
        rank.start()
    return running


def on_gloo(ranks: int, work: Callable[[int, Counted], Any]) -> list[Any]:
    """Run `work` on each rank of a gloo process group, and return the results."""
    for rank in ranks_of(ranks):
        rank.work.put(work)
    results = [rank.results.get() for rank in ranks_of(ranks)]
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors:
        ranks_of.cache_clear()
        raise errors[0]
    return results


def values(rank: int, n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(rank)).to(dtype)


def carry(plan: Plan, source: torch.Tensor, feedback: Feedback | None = None) -> Any:
    """Return a function that executes a plan with collectives on a rank and returns the result, counts and backend."""

    def work(rank: int, backend: Counted) -> tuple[torch.Tensor, Tally, Counted]:
        call = CollectiveCarrier(backend, rank, plan.topology, HostOrder()).begin(
            plan.codec.name, source.dtype, SEED, feedback
        )
        if plan.operation is Operation.REDUCE_SCATTER:
            out = call.reduce(plan, source)
        else:
            out = torch.empty(plan.n, dtype=source.dtype)
            (call.all_reduce if plan.operation is Operation.ALL_REDUCE else call.all_gather)(plan, source, out)
        return out, call.tally, backend

    return work


def execute(plan: Plan, sources: Sequence[torch.Tensor], feedback: Sequence[Feedback] | None = None) -> list[Any]:
    """Return the results of the plan executor, in the same form as the results of `carry`."""
    results: list[Any] = [None] * len(sources)

    def work(rank: int, carrier: Any) -> None:
        source, kind = array(sources[rank]), DTYPES[sources[rank].dtype]
        if plan.operation is Operation.ALL_GATHER:
            target = np.empty(plan.n, kind)
            piece = plan.slices[0][rank]
            target[piece.start : piece.stop] = source
            vector: Any = InPlace(target)
        else:
            wide = np.empty(plan.n, np.float32)
            widen(source, wide)
            target, vector = wide, InPlace(wide)
            if plan.operation is Operation.REDUCE_SCATTER:
                piece = plan.slices[0][rank]
                target = np.empty(piece.size, np.float32)
                vector = Reduced(wide, target, piece)
        call = Call(
            carrier,
            plan.topology,
            HostPlace(Scratch()),
            plan.codec,
            plan.dtype,
            vector,
            SEED,
            feedback[rank] if feedback else None,
            Tally(),
        )
        drive([carry_out(call, plan.steps(rank, 0), 0 * STAGES)])
        if plan.operation is Operation.ALL_REDUCE and kind != np.float32:
            rounded = np.empty(plan.n, kind)
            narrow(target, rounded)
            target = rounded
        results[rank] = as_tensor(target)

    on_ranks(len(sources), work)
    return results


def as_tensor(values: np.ndarray) -> torch.Tensor:
    if values.dtype == BFLOAT16:
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(values)
