"""Ranks that die, leave, stall, fail, disagree or begin in another order. Each fault has two ranks of its own.

They are forked from one process.
"""

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hpcbench.codecs.quant import Quant
from hpcbench.contract.interpose import Groups, Interposition
from hpcbench.contract.scheme import NamedScheme
from hpcbench.torch.intercept import Interception

TIMEOUT_S, HANGS_S = 4, 90
NAMED = NamedScheme(name="naive-int8", algorithm="encoded", default="int8:256")


def train(fault: Callable[[int], None]) -> None:
    net = DistributedDataParallel(nn.Linear(256, 256))
    for step in range(4):
        fault(step)
        net(torch.randn(4, 256)).sum().backward()


def killed(rank: int) -> None:
    train(lambda step: os._exit(3) if rank == 1 and step == 2 else None)


def leaves(rank: int) -> None:
    def fault(step: int) -> None:
        if rank == 1 and step == 2:
            raise SystemExit(0)

    train(fault)


def encode_fails(rank: int) -> None:
    def planted(*args: object, **kwargs: object) -> int:
        raise ValueError("planted in encode")

    def fault(step: int) -> None:
        if rank == 1 and step == 2:
            Quant.encode = planted  # type: ignore[method-assign, assignment]

    train(fault)


def stalls(rank: int) -> None:
    train(lambda step: time.sleep(3 * TIMEOUT_S) if rank == 1 and step == 2 else None)


def disagrees(rank: int) -> None:
    train(lambda step: None)


def begins(group: dist.ProcessGroup) -> Callable[[], None]:
    """Begin sums of a group; the result waits for them."""
    sums = [torch.ones(n) for n in (4096, 8192)]
    handles = [dist.all_reduce(x, group=group, async_op=True) for x in sums]

    def wait() -> None:
        for handle, x in zip(handles, sums, strict=True):
            handle.wait()
            assert (x - 2).abs().max() < 0.1

    return wait


def other_order(rank: int) -> None:
    """Each rank begins with another group than the other one."""
    groups = [dist.new_group([0, 1], group_desc="mesh_tp") for _ in range(2)]
    waits = [begins(group) for group in (groups if rank == 0 else groups[::-1])]
    for wait in waits:
        wait()


def two_threads(rank: int) -> None:
    """Each rank has a thread for each group, and another one is first."""
    groups = [dist.new_group([0, 1], group_desc="mesh_tp") for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        later = []
        for group in groups if rank == 0 else groups[::-1]:
            later.append(threads.submit(lambda group=group: begins(group)()))
            time.sleep(0.3)
        for each in later:
            each.result()


FAULTS: dict[str, Callable[[int], None]] = {
    "killed": killed,
    "leaves": leaves,
    "stalls": stalls,
    "encode fails": encode_fails,
    "disagrees": disagrees,
    "other order": other_order,
    "two threads": two_threads,
}


def meet(rank: int, where: Path, timeout: timedelta) -> dist.Store:
    """The store of torchrun: all threads of a rank share one connection, and one that waits keeps it."""
    port = where / "port"
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, timeout=timeout, wait_for_workers=False)
        port.with_suffix(".part").write_text(str(store.port), encoding="utf-8")
        port.with_suffix(".part").rename(port)
        return store
    while not port.exists():
        time.sleep(0.01)
    return dist.TCPStore("127.0.0.1", int(port.read_text(encoding="utf-8")), 2, timeout=timeout, wait_for_workers=False)


def play(name: str, rank: int, where: Path) -> None:
    """One rank. It never returns."""
    status, words, begin = 0, "", time.monotonic()
    try:
        torch.set_num_threads(1)
        timeout = timedelta(seconds=TIMEOUT_S)
        dist.init_process_group("gloo", store=meet(rank, where, timeout), rank=rank, world_size=2, timeout=timeout)
        least = 1 << 30 if name == "disagrees" and rank == 1 else 1024
        Interception(Interposition(scheme=NAMED, groups=Groups(min_bytes=least), out="nowhere")).install()
        begin = time.monotonic()
        FAULTS[name](rank)
    except SystemExit:
        pass
    except Exception as error:
        status, words = 5, f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - begin
    (where / f"{rank}.json").write_text(json.dumps([seconds, words]), encoding="utf-8")
    os._exit(status)


Outcomes = dict[str, list[list[object] | None]]


class Played:
    """All faults under way.

    Parameters
    ----------
    directory
        A directory of its own.
    """

    def __init__(self, directory: Path) -> None:
        self._under_way: dict[int, tuple[str, int, Path]] = {}
        for name in FAULTS:
            where = directory / name.replace(" ", "-")
            where.mkdir(parents=True)
            for rank in range(2):
                pid = os.fork()
                if pid == 0:
                    play(name, rank, where)
                self._under_way[pid] = (name, rank, where)

    def outcomes(self) -> Outcomes:
        """For each fault and rank its exit status, its seconds and its words; None for a rank that hangs."""
        found: Outcomes = {name: [None, None] for name in FAULTS}
        ends = time.monotonic() + HANGS_S
        while self._under_way and time.monotonic() < ends:
            for pid in list(self._under_way):
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    name, rank, where = self._under_way.pop(pid)
                    said = where / f"{rank}.json"
                    told = json.loads(said.read_text(encoding="utf-8")) if said.exists() else [None, ""]
                    found[name][rank] = [os.waitstatus_to_exitcode(status), *told]
            time.sleep(0.1)
        for pid in self._under_way:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
        return found
