"""Tests that small calls are counted and reach the backend without passing through the Python kernels."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from hpcbench.contract.interpose import Groups, Interposition
from hpcbench.contract.scheme import NamedScheme
from hpcbench.programs.intercept import Interception

SMALL, LARGE = 255, 256
"""Numbers of elements: just below `min_bytes`, and exactly `min_bytes`."""
METHODS = ("allreduce", "broadcast", "all_gather_single", "reduce_scatter_single")
CALLS = {
    "all-reduce": dist.all_reduce,
    "broadcast": lambda x: dist.broadcast(x, 0),
    "all-gather": lambda x: dist.all_gather_single(torch.empty_like(x), x),
    "reduce-scatter": lambda x: dist.reduce_scatter_single(torch.empty_like(x), x),
}


class Seen(TorchDispatchMode):
    """A dispatch mode that records the operators it receives."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


class Intercepted:
    """An interception that counts the calls that reach its kernels."""

    def __init__(self) -> None:
        scheme = NamedScheme(name="test", algorithm="auto", default="int8:256")
        settings = Interposition(scheme=scheme, groups=Groups(min_bytes=4 * LARGE), out="nowhere")
        self.interception = Interception(settings)
        self.kernels = 0

    def install(self) -> None:
        real = self.interception._register

        def register(library: Any, name: str, handler: Any) -> None:
            def counting(*args: Any) -> Any:
                self.kernels += 1
                return handler(*args)

            real(library, name, counting)

        self.interception._register = register  # type: ignore[method-assign]
        self.interception.install()

    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for row in self.interception.account.document():
            counts[str(row["call"])] = counts.get(str(row["call"]), 0) + int(str(row["calls"]))
        return counts


@pytest.fixture
def intercepted(tmp_path: Path) -> Iterator[Intercepted]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    intercepted = Intercepted()
    intercepted.install()
    dist.all_reduce(torch.ones(1))  # the first call of a group passes through the kernels
    assert intercepted.kernels == 1
    try:
        yield intercepted
    finally:
        intercepted.interception.remove()
        dist.destroy_process_group()


@pytest.mark.parametrize("call", CALLS)
def test_only_calls_of_at_least_min_bytes_reach_the_kernels(intercepted: Intercepted, call: str) -> None:
    CALLS[call](torch.ones(SMALL))
    assert intercepted.kernels == 1
    CALLS[call](torch.ones(LARGE))
    assert intercepted.kernels == 2


@pytest.mark.parametrize("call", CALLS)
def test_small_calls_are_counted_with_those_that_reach_the_kernels(intercepted: Intercepted, call: str) -> None:
    before = intercepted.counts().get(call, 0)
    for _ in range(3):
        CALLS[call](torch.ones(SMALL))
    CALLS[call](torch.ones(LARGE))
    assert intercepted.counts()[call] == before + 4


def test_a_dispatch_mode_gets_small_calls(intercepted: Intercepted) -> None:
    with Seen() as seen:
        dist.all_reduce(torch.ones(SMALL))
    assert "c10d.allreduce_.default" in seen.names


def test_a_profiler_records_small_calls(intercepted: Intercepted) -> None:
    with torch.profiler.profile() as profile:
        dist.all_reduce(torch.ones(SMALL))
    assert "c10d::allreduce_" in {event.key for event in profile.key_averages()}


def test_wrong_arguments_are_refused_by_pytorch(intercepted: Intercepted) -> None:
    with pytest.raises(TypeError, match="incompatible function arguments"):
        dist.group.WORLD.allreduce("no tensor", 1, 2)  # type: ignore[union-attr, call-overload]


def test_the_methods_are_restored() -> None:
    before = {name: vars(dist.ProcessGroup)[name] for name in METHODS}
    intercepted = Intercepted()
    intercepted.install()
    assert all(vars(dist.ProcessGroup)[name] is not before[name] for name in METHODS)
    intercepted.interception.remove()
    assert all(vars(dist.ProcessGroup)[name] is before[name] for name in METHODS)
