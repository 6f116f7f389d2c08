"""Worker that plants faults in the execution of steps on real ranks.

The worker prints whether the results equal the simulation.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from collective_cases import SLICING, Case, digest, foretold
from collectives_worker import perform
from mpi4py import MPI
from plan_cases import contribution
from ranks import WORLD, Hooked, channel, tell

from hpcbench.comm import frame
from hpcbench.comm.execute import SliceRun
from hpcbench.comm.group import Group
from hpcbench.comm.plan import Operation
from hpcbench.comm.progress import Progress
from hpcbench.comm.steps import Combine
from hpcbench.comm.topology import Topology
from hpcbench.comm.wait import Wait
from hpcbench.contract.traffic import Algorithm

MESSAGE, SUM = SliceRun._message, SliceRun._sum


def one_dropped(self, step, posted):
    """Receive rank 0's contribution, but do not add it."""
    remaining = []
    for part, (request, inbox) in zip(step.receives, posted, strict=True):
        if part.peer == 0 and request is not None:
            yield [request]
        else:
            remaining.append((part, (request, inbox)))
    yield from summed(self, step, remaining)


def own_exact(self, step, part):
    """Keep the exact values on the rank that encodes a part."""
    before = len(self._undecoded)
    message = MESSAGE(self, step, part)
    del self._undecoded[before:]
    return message


def own_exact_in_sums(self, step, posted):
    if step.combine is Combine.SUM_DECODED:
        for part in step.receives:
            self._forms.pop(part.span, None)
        step = replace(step, combine=Combine.SUM)
    yield from SUM(self, step, posted)


def encoded_again(self, step, part):
    """Decode received parts, and encode them again before forwarding."""
    if step.combine is Combine.REPLACE and part.span in self._forms:
        self._decode_all()
        del self._forms[part.span]
    return MESSAGE(self, step, part)


def in_arrival_order(self, step, posted):
    """Add parts in order of arrival."""
    waiting, order = list(zip(step.receives, posted, strict=True)), []
    while waiting:
        for pair in list(waiting):
            if pair[1][0] is None or pair[1][0].Get_status():
                order.append(pair)
                waiting.remove(pair)
    yield from summed(self, step, order)


def summed(self, step, pairs):
    """Sum `pairs` instead of the step's parts: some parts may be missing, or their order may differ."""
    parts = tuple(part for part, _ in pairs)
    yield from SUM(self, replace(step, receives=parts), [arrival for _, arrival in pairs])


FAULTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "one dropped": ("_sum", one_dropped),
    "own exact": ("_message", own_exact),
    "own exact in sums": ("_sum", own_exact_in_sums),
    "encoded again": ("_message", encoded_again),
    "in arrival order": ("_sum", in_arrival_order),
}
CASES = {
    "two-shot": Case(Operation.ALL_REDUCE, Algorithm.TWO_SHOT, "zfp:8", "float32", 1001),
    "exact": Case(Operation.ALL_REDUCE, Algorithm.TWO_SHOT, "none", "float32", 1001),
    "ring": Case(Operation.ALL_REDUCE, Algorithm.RING, "zfp:8", "float32", 1001),
    "doubling": Case(Operation.ALL_REDUCE, Algorithm.DOUBLING, "zfp:8", "float32", 1001),
    "gather": Case(Operation.ALL_GATHER, Algorithm.RING, "zfp:8", "float32", 1001),
    "broadcast": Case(Operation.BROADCAST, Algorithm.ENCODED, "zfp:8", "float32", 1001, 2),
}


@contextmanager
def planted(owner: Any, name: str, fault: Callable[..., Any] | None) -> Iterator[None]:
    intact = getattr(owner, name)
    setattr(owner, name, fault or intact)
    try:
        yield
    finally:
        setattr(owner, name, intact)


def faults() -> None:
    topology, lines = Topology.flat(WORLD.size), []
    group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY), SLICING)
    late = (WORLD.size - WORLD.rank) * 3e-3  # the last rank sends first
    for fault, (method, function) in {"none": ("_sum", None), **FAULTS}.items():
        for name, case in CASES.items():
            slow = Hooked(case.codec, lambda: time.sleep(late)) if name == "exact" else case.codec
            with planted(SliceRun, method, function):
                result, _ = perform(group, case, channel(slow, case.algorithm))
            expected = foretold(case, topology)
            assert expected is not None
            right = digest(result) == expected[group.rank].result
            lines.append({"fault": fault, "case": name, "rank": WORLD.rank, "right": right})
    tell(lines)


class Wire(MPI.Intracomm):
    """A communicator that damages one of its messages in transit."""

    how: str | None = None
    turn = sent = 0

    def Isend(self, buf, dest, tag=0):  # noqa: N802
        self.sent += 1
        content = buf[0]
        if self.how and self.sent == self.turn:
            content = damaged(content, self.how)
        return super().Isend([content, MPI.BYTE], dest, tag)


def damaged(message: np.ndarray, how: str) -> np.ndarray:
    """Return a message as a faulty network would deliver it."""
    if how.startswith("cut"):
        return message[: int(message.size * float(how.split()[1]))].copy()
    changed = message.copy()
    place, bit = {"first": (0, 0), "middle": (message.size // 2, 3), "checksum": (message.size - 1, 7)}[how]
    changed[place] ^= 1 << bit
    return changed


HOW = ("first", "middle", "checksum", "cut 0.99", "cut 0.01", "cut 0")
TRAFFIC: dict[str, Callable[[Group, np.ndarray, np.ndarray, Any], Any]] = {
    "two-shot": lambda group, src, dst, ch: group.all_reduce(src, channel=ch(Algorithm.TWO_SHOT)),
    "ring": lambda group, src, dst, ch: group.all_reduce(src, channel=ch(Algorithm.RING)),
    "doubling": lambda group, src, dst, ch: group.all_reduce(src, channel=ch(Algorithm.DOUBLING)),
    "hierarchical": lambda group, src, dst, ch: group.all_reduce(src, channel=ch(Algorithm.HIERARCHICAL)),
    "broadcast": lambda group, src, dst, ch: group.broadcast(src, 1, channel=ch(Algorithm.ENCODED)),
    "shift": lambda group, src, dst, ch: group.shift(src, dst, by=1, channel=ch(Algorithm.ENCODED)),
    "all-to-all": lambda group, src, dst, ch: group.all_to_all(
        src, dst, ([src.size // 2] * 2,) * 2, channel=ch(Algorithm.ENCODED)
    ),
}


def transit() -> None:
    """Damage rank 1's last message to rank 0 in transit."""
    assert WORLD.size == 2
    group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY))
    group.topology = Topology.regular(2, 1)
    wire = group._own.comm = group._own.planned = Wire(WORLD.Dup())
    lines = []
    for name, call in TRAFFIC.items():
        for codec in ("none", "zfp:8", "int8:256", "xpk"):
            for looked, how in [(True, None), *((True, how) for how in HOW), (False, "middle")]:
                if how is None:
                    wire.turn = 0
                wire.sent, wire.how = 0, how if WORLD.rank == 1 else None
                with planted(frame, "opened", None if looked else unlooked):
                    message = attempt(group, call, codec)
                wire.turn = wire.turn or wire.sent  # the undamaged run shows which message is the last
                line = {"what": name, "codec": codec, "looked": looked, "how": how, "rank": WORLD.rank}
                lines.append({**line, "said": message})
    tell(lines)


def unlooked(message: np.ndarray, sender: int) -> np.ndarray:
    return message[: -frame.BYTES]


def attempt(group: Group, call: Callable[..., Any], codec: str) -> str:
    """Return the error that an operation raises."""
    src, dst = contribution(WORLD.rank, 1000, "float32"), np.zeros(1000, np.float32)
    try:
        call(group, src, dst, lambda algorithm: channel(codec, algorithm)).wait()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    globals()[sys.argv[1]]()
