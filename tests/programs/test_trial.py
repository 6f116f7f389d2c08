"""Tests of trial calls with and without a codec. All ranks must select the same variant."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributed import ReduceOp

from hpcbench.comm.plan import Operation
from hpcbench.programs.trial import MOST_BYTES, Vectors, is_faster, tried_size

PATIENCE_S = 60.0


class Done:
    def wait(self) -> None:
        """Return immediately."""


class Sharing:
    """Simulated all-reduce of threads that act as ranks."""

    def __init__(self, size: int) -> None:
        self._meet = threading.Barrier(size, timeout=PATIENCE_S)
        self._sent: list[torch.Tensor] = [torch.zeros(0)] * size

    def end(self, rank: int) -> Any:
        sent, meet = self._sent, self._meet

        class End:
            def allreduce(self, tensors: list[torch.Tensor], *options: Any) -> Done:
                sent[rank] = tensors[0].clone()
                meet.wait()
                largest = [option for option in options if option.reduceOp == ReduceOp.MAX]
                tensors[0].copy_(torch.stack(sent).amax(0) if largest else torch.stack(sent).sum(0))
                meet.wait()
                return Done()

        return End()


class Timed:
    """Calls that take time on a simulated clock."""

    def __init__(self) -> None:
        self.now, self.calls = 0.0, 0

    def call(self, *seconds: float) -> Callable[[], Any]:
        """Return a call whose successive runs take the given times."""
        left = list(seconds)

        def begin() -> Any:
            self.calls += 1
            self.now += left.pop(0) if len(left) > 1 else left[0]
            return Done()

        return begin


def answers(plain: list[list[float]], ours: list[list[float]]) -> tuple[set[bool], set[int]]:
    """Return the decision and the number of calls of each rank."""
    sharing, decisions, counts = Sharing(len(plain)), [], []

    def run(rank: int) -> None:
        timed = Timed()
        calls = timed.call(*plain[rank]), timed.call(*ours[rank])
        decisions.append(is_faster(sharing.end(rank), *calls, clock=lambda: timed.now))
        counts.append(timed.calls)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(plain))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(decisions) == len(plain)
    return set(decisions), set(counts)


@pytest.mark.parametrize(
    ("plain", "ours", "expected"),
    [
        ([[1e-3], [1e-3]], [[0.85e-3], [0.85e-3]], True),
        ([[1e-3], [1e-3]], [[1.1e-3], [1.1e-3]], False),
        ([[1e-3], [1e-3]], [[0.95e-3], [0.95e-3]], False),  # an insignificant gain
        ([[1e-3], [1e-3]], [[0.1e-3], [1.1e-3]], False),  # the slowest rank determines the result
        ([[1e-3], [3e-3]], [[0.1e-3], [2e-3]], True),
        ([[1e-3], [1e-3]], [[9.0, 0.8e-3], [0.8e-3]], True),  # the first call establishes connections
        ([[1e-3], [1e-3]], [[0.8e-3, 0.8e-3, 9e-3, 0.8e-3], [0.8e-3]], True),  # another process used the CPU
    ],
)
def test_all_ranks_choose_the_way_that_is_faster_on_the_slowest(
    plain: list[list[float]], ours: list[list[float]], expected: bool
) -> None:
    decisions, counts = answers(plain, ours)
    assert decisions == {expected}
    assert len(counts) == 1


def test_slow_calls_are_tried_fewer_times() -> None:
    decisions, counts = answers([[2.0], [1.0]], [[1.0], [1.5]])
    assert (decisions, counts) == ({True}, {4})


@pytest.mark.parametrize("ranks", [2, 3, 4, 64])
def test_sizes_are_tried_in_powers_of_two_and_not_larger_than_needed(ranks: int) -> None:
    sizes = sorted({tried_size(n, 4, ranks) for n in range(1, 1 << 24, 4099)} | {tried_size(1 << 33, 4, ranks)})
    assert all(n % ranks == 0 and n * 4 <= max(MOST_BYTES, 4 * ranks) for n in sizes)
    assert len(sizes) <= 25
    for n in (ranks, 5000, 1 << 20):
        assert n <= tried_size(n, 4, ranks) < 2 * n + 2 * ranks


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("operation", [Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.ALL_GATHER])
def test_trials_have_the_shape_of_the_call_and_keep_the_programs_random_numbers(
    operation: Operation, dtype: torch.dtype
) -> None:
    before = torch.random.get_rng_state()
    vectors = Vectors(operation, 4096, dtype, 1, 4)
    assert torch.equal(torch.random.get_rng_state(), before)
    sizes = {Operation.ALL_REDUCE: (4096, 4096), Operation.REDUCE_SCATTER: (1024, 4096)}.get(operation, (4096, 1024))
    assert (vectors.out.numel(), vectors.src.numel()) == sizes
    assert vectors.out.dtype is vectors.src.dtype is dtype
    assert (vectors.out is vectors.src) == (operation is Operation.ALL_REDUCE)
    values = vectors.out.clone()
    vectors.out.mul_(4)
    vectors.renew()
    assert torch.equal(vectors.out, values) == (operation is Operation.ALL_REDUCE)
