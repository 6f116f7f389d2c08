"""Ranks that die, exit, stall, fail, disagree, or make calls in a different order.

Each fault has its own pair of ranks. The ranks are forked from one process.
"""

import faulthandler
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from random import Random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hpcbench.codecs.quant import Quant
from hpcbench.contract.interpose import Groups, Interposition
from hpcbench.contract.scheme import NamedScheme
from hpcbench.programs.intercept import Interception

TIMEOUT_S = 4
"""Timeout in seconds for groups whose calls must time out."""
PATIENCE_S = 60
"""Timeout in seconds for all other groups and for stores. On a busy machine, ranks start late."""
HANGS_S = 400
"""Seconds after which a rank is considered to hang. The limit exceeds all timeouts, because ranks share cores."""
SCHEMES = {
    "encoded": NamedScheme(name="naive-int8", algorithm="encoded", default="int8:256"),
    "auto": NamedScheme(name="auto-int8", algorithm="auto", default="int8:256"),
}


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
    """Start asynchronous sums in a group, and return a function that waits for the results."""
    sums = [torch.ones(n) for n in (4096, 8192)]
    handles = [dist.all_reduce(x, group=group, async_op=True) for x in sums]

    def wait() -> None:
        for handle, x in zip(handles, sums, strict=True):
            handle.wait()
            assert (x - 2).abs().max() < 0.1

    return wait


def make_groups() -> list[dist.ProcessGroup]:
    timeout = timedelta(seconds=PATIENCE_S)
    return [dist.new_group([0, 1], timeout, group_desc="mesh_tp") for _ in range(2)]


def other_order(rank: int) -> None:
    """Start calls in a different order of groups on each rank."""
    groups = make_groups()
    waits = [begins(group) for group in (groups if rank == 0 else groups[::-1])]
    for wait in waits:
        wait()


def two_threads(rank: int) -> None:
    """Run one thread per group, and start the threads in a different order on each rank."""
    groups = make_groups()
    with ThreadPoolExecutor(2) as threads:
        later = []
        for group in groups if rank == 0 else groups[::-1]:
            later.append(threads.submit(lambda group=group: begins(group)()))
            time.sleep(0.3)
        for each in later:
            each.result()


def many_rounds(rank: int) -> None:
    """Run many rounds of calls, in a random order on each rank, before and after the treatment of calls is decided."""
    groups = make_groups()
    orders = Random(rank)
    for _ in range(12):
        waits = []
        for group in orders.sample(groups, len(groups)):
            if orders.random() < 0.5:
                time.sleep(0.02)
            waits += [begins(group), exchanges(group)]
        for wait in waits:
            wait()


def exchanges(group: dist.ProcessGroup) -> Callable[[], None]:
    """Start a reduce-scatter, an all-gather and an all-to-all, and return a function that waits for them."""
    src, part, joined, exchanged = torch.ones(4096), torch.empty(2048), torch.empty(4096), torch.empty(4096)
    handles = [
        dist.reduce_scatter_single(part, src, group=group, async_op=True),
        dist.all_to_all_single(exchanged, src, group=group, async_op=True),
        dist.all_gather_single(joined, src[:2048], group=group, async_op=True),
    ]

    def wait() -> None:
        for handle in handles:
            handle.wait()
        assert (part - 2).abs().max() < 0.1
        assert (joined - 1).abs().max() < 0.1 and (exchanged - 1).abs().max() < 0.1

    return wait


FAULTS: dict[str, Callable[[int], None]] = {
    "killed": killed,
    "leaves": leaves,
    "stalls": stalls,
    "encode fails": encode_fails,
    "disagrees": disagrees,
    "other order": other_order,
    "two threads": two_threads,
    "many rounds": many_rounds,
    "other order, auto": other_order,
    "two threads, auto": two_threads,
    "many rounds, auto": many_rounds,
}


WAIT_FOR_TIMEOUT = ("stalls", "disagrees")
"""Faults that end only with a timeout."""


def connect(rank: int, listener: socket.socket) -> dist.Store:
    """Create a store like torchrun's. All threads of a rank share one connection, which a waiting thread blocks.

    Rank 0 serves the store. The socket of the store listens before any rank starts, so every rank has the port in
    advance.
    """
    port, timeout = listener.getsockname()[1], timedelta(seconds=PATIENCE_S)
    if rank == 0:
        return dist.TCPStore(
            "127.0.0.1", port, 2, True, timeout, wait_for_workers=False, master_listen_fd=listener.detach()
        )
    listener.close()
    return dist.TCPStore("127.0.0.1", port, 2, False, timeout, wait_for_workers=False)


def play(name: str, rank: int, where: Path, listener: socket.socket) -> None:
    """Run one rank of a fault, and exit."""
    status, message, begin = 0, "", time.monotonic()
    try:
        faulthandler.dump_traceback_later(HANGS_S - 5, file=stack_file(where, rank).open("w", encoding="utf-8"))
        torch.set_num_threads(1)
        timeout = timedelta(seconds=TIMEOUT_S if name in WAIT_FOR_TIMEOUT else PATIENCE_S)
        dist.init_process_group("gloo", store=connect(rank, listener), rank=rank, world_size=2, timeout=timeout)
        least = 1 << 30 if name == "disagrees" and rank == 1 else 1024
        scheme = SCHEMES["auto" if name.endswith(", auto") else "encoded"]
        Interception(Interposition(scheme=scheme, groups=Groups(min_bytes=least), out="nowhere")).install()
        begin = time.monotonic()
        FAULTS[name](rank)
    except SystemExit:
        pass
    except Exception as error:
        status, message = 5, f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - begin
    result_file(where, rank).write_text(json.dumps([seconds, message]), encoding="utf-8")
    os._exit(status)


def result_file(where: Path, rank: int) -> Path:
    return where / f"{rank}.json"


def stack_file(where: Path, rank: int) -> Path:
    return where / f"{rank}.stack"


Outcomes = dict[str, list[list[object]]]


class Played:
    """Faults in progress.

    Parameters
    ----------
    directory
        Directory for the files of the ranks.
    names
        Names of the faults.
    """

    def __init__(self, directory: Path, names: Iterable[str] = FAULTS) -> None:
        self._under_way: dict[int, tuple[str, int, Path]] = {}
        for name in names:
            where = directory / re.sub(r"\W+", "-", name)
            where.mkdir(parents=True)
            with socket.create_server(("127.0.0.1", 0)) as listener:
                for rank in range(2):
                    pid = os.fork()
                    if pid == 0:
                        play(name, rank, where, listener)
                    self._under_way[pid] = (name, rank, where)

    def outcomes(self) -> Outcomes:
        """Return the exit status, the time in seconds and the message of each rank, by fault.

        For a rank that hangs, status and time are None, and the message is the stack trace.
        """
        outcomes: Outcomes = {name: [[None, None, ""], [None, None, ""]] for name, _, _ in self._under_way.values()}
        ends = time.monotonic() + HANGS_S
        while self._under_way and time.monotonic() < ends:
            for pid in list(self._under_way):
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    name, rank, where = self._under_way.pop(pid)
                    result = result_file(where, rank)
                    seconds, message = json.loads(result.read_text(encoding="utf-8")) if result.exists() else (None, "")
                    outcomes[name][rank] = [os.waitstatus_to_exitcode(status), seconds, message]
            time.sleep(0.1)
        for pid, (name, rank, where) in self._under_way.items():
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            stack = stack_file(where, rank)
            outcomes[name][rank][2] = stack.read_text(encoding="utf-8") if stack.exists() else ""
        return outcomes
