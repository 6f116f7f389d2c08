"""Worker that compares every operation on device arrays with NumPy arrays. The worker prints differences and copied
bytes."""

import functools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol
from unittest.mock import patch

import numpy as np
import use_standin
from emulated_accelerator import CALLER, Deaf, Impatient, LazyAccelerator, OnDevice, seen
from mpi4py import MPI

from hpcbench.codecs.convert import build_of, sum_build_of
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import BFLOAT16
from hpcbench.comm import frame
from hpcbench.comm.channel import Channel
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.gpu_memory import DeviceMemory
from hpcbench.comm.group import Group
from hpcbench.comm.native import Library
from hpcbench.comm.nccl import Communicator
from hpcbench.comm.places import Places
from hpcbench.comm.progress import Progress
from hpcbench.comm.relay import Relay
from hpcbench.comm.topology import Topology
from hpcbench.comm.wait import Wait
from hpcbench.contract.shards import count_elements, cut_evenly
from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase
from hpcbench.errors import TransitError

WORLD = MPI.COMM_WORLD
CODECS = ("none", "zfp:8", "int8:256", "mpc")
HALVES = (BFLOAT16, np.dtype(np.float16))
HALF_CODECS = (*CODECS, "xpk")
SHORT, LONG = 1001, 70_003
SLICES = {SHORT: 1, LONG: 6}
"""Number of slices by vector size. The long vector has more slices than can be in flight."""
CHANGED = 3e33


class Side(Protocol):
    """The memory where arrays are allocated."""

    def put(self, x: np.ndarray) -> Any: ...
    def get(self, x: Any) -> np.ndarray: ...
    def change(self, x: Any) -> None: ...


class Host:
    def put(self, x: np.ndarray) -> np.ndarray:
        return x.copy()

    def change(self, x: Any) -> None:
        x[...] = CHANGED

    def get(self, x: np.ndarray) -> np.ndarray:
        return x


class Emulated:
    """Device values that the caller's stream writes after a delay."""

    def __init__(self, accelerator: LazyAccelerator) -> None:
        self.accelerator = accelerator

    def put(self, x: np.ndarray) -> OnDevice:
        array = OnDevice(np.full_like(x, 7.7e33))
        self.accelerator.fill(array, x.copy())
        return array

    def change(self, x: OnDevice) -> None:
        self.accelerator.fill(x, np.full(x.shape, CHANGED, "f4"))

    def get(self, x: OnDevice) -> np.ndarray:
        return x.values


class Torch:
    def put(self, x: np.ndarray) -> Any:
        import torch

        return torch.from_numpy(x.copy()).cuda(non_blocking=True)

    change = Host.change

    def get(self, x: Any) -> np.ndarray:
        return np.asarray(x.cpu().numpy())


class Cupy:
    def put(self, x: np.ndarray) -> Any:
        import cupy

        return cupy.asarray(x)

    change = Host.change

    def get(self, x: Any) -> np.ndarray:
        return np.asarray(x.get())


def channel(codec: str, algorithm: Algorithm, slices: int | None = None, sent: Any = None) -> Channel:
    return Channel(
        Dimension.DP, Phase.BACKWARD, MessageKind.GRAD, get_codec(codec), algorithm, slices=slices, dtype=sent
    )


def values(n: int, rank: int, dtype: str = "float32") -> np.ndarray:
    generator = np.random.default_rng([rank, n])
    return (generator.standard_t(2, n) * 1e-3).astype(dtype)


def _relative_difference(host: np.ndarray, device: np.ndarray) -> float:
    """Return the largest difference between two results, divided by the largest value."""
    if host.shape != device.shape:
        return np.inf
    differs = host != device  # equal infinities have no difference
    a, b = host[differs].astype("f8"), device[differs].astype("f8")
    return float(np.abs(a - b).max(initial=0) / max(np.abs(host.astype("f8")).max(initial=0), 1e-30))


def all_reduce(group: Group, side: Side, ch: Channel, n: int) -> list[Any]:
    buf = side.put(values(n, group.rank))
    group.all_reduce(buf, channel=ch).wait()
    return [buf]


def reduce_scatter(group: Group, side: Side, ch: Channel, n: int) -> list[Any]:
    dst = side.put(np.zeros(count_elements(cut_evenly(n, group.size)[group.rank]), "f4"))
    group.reduce_scatter(side.put(values(n, group.rank)), dst, channel=ch).wait()
    return [dst]


def all_gather(group: Group, side: Side, ch: Channel, n: int) -> list[Any]:
    dst = side.put(np.zeros(n, "f4"))
    group.all_gather(side.put(values(n, 9)[cut_evenly(n, group.size)[group.rank]]), dst, channel=ch).wait()
    return [dst]


def broadcast(group: Group, side: Side, ch: Channel, n: int) -> list[Any]:
    buf = side.put(values(n, group.rank))
    group.broadcast(buf, 1, channel=ch).wait()
    return [buf]


def all_to_all(group: Group, side: Side, ch: Channel, n: int) -> list[Any]:
    counts = [n // group.size] * group.size
    dst = side.put(np.zeros(sum(counts), "f4"))
    group.all_to_all(side.put(values(sum(counts), group.rank)), dst, (counts, counts), channel=ch).wait()
    return [dst]


def exchange(group: Group, side: Side, ch: Channel, n: int) -> list[Any]:
    """Exchange two messages in each direction. The caller overwrites sent values as early as permitted."""
    peer, n = group.rank ^ 1, n - n % 7
    sent = [side.put(values(n, 2 * group.rank + k).reshape(7, -1)) for k in range(2)]
    got = [side.put(np.zeros((7, n // 7), "f4")) for _ in range(2)]
    works = [group.recv(x, peer, tag=k, channel=ch) for k, x in enumerate(got)]
    for k, x in enumerate(sent):
        works.append(group.send(x, peer, tag=k, channel=ch))
        side.change(x)
    for work in works:
        work.wait()
    group.shift(sent[0], got[0], by=1, tag=5, channel=ch).wait()
    return got


def circle(group: Group, side: Side, ch: Channel, n: int) -> list[Any]:
    """Pass the blocks of all ranks around a ring, as encoded by their owners."""
    relay, leaving, came = Relay(), side.put(values(n, group.rank)), []
    for hop in range(group.size - 1):
        came.append(side.put(np.zeros(n, "f4")))
        group.pass_on(leaving, came[-1], relay, tag=hop % 2, channel=ch).wait()
        leaving = came[-1]
    relay.end()
    return came


def with_feedback(group: Group, side: Side, ch: Channel, n: int, dtype: str = "float32") -> list[Any]:
    feedback = Feedback(n)
    feedback.sent, feedback.summed = side.put(feedback.sent), side.put(feedback.summed)
    buf = None
    for step in range(3):
        buf = side.put(values(n, group.rank + 10 * step, dtype))
        group.all_reduce(buf, channel=ch, feedback=feedback).wait()
    return [buf, feedback.sent, feedback.summed]


def doubles_with_feedback(group: Group, side: Side, ch: Channel, n: int) -> list[Any]:
    return with_feedback(group, side, ch, n, "float64")


def at_once(group: Group, side: Side, ch: Channel, n: int) -> list[Any]:
    """Run several operations concurrently."""
    bufs = [side.put(values(n + k, group.rank)) for k in range(5)]
    for work in [group.all_reduce(buf, channel=ch) for buf in bufs]:
        work.wait()
    return bufs


COLLECTIVES: tuple[Callable[..., list[Any]], ...] = (all_reduce, reduce_scatter, all_gather)
OTHERS: tuple[Callable[..., list[Any]], ...] = (broadcast, all_to_all, exchange, circle, at_once, with_feedback)


def cases() -> Iterator[tuple[Callable[..., list[Any]], str, Algorithm, int]]:
    for codec in CODECS:
        for operation in (*COLLECTIVES, *OTHERS):
            yield operation, codec, Algorithm.TWO_SHOT, SHORT
        for operation in COLLECTIVES:
            yield operation, codec, Algorithm.HIERARCHICAL, SHORT
        for algorithm in (Algorithm.RING, Algorithm.DOUBLING, Algorithm.HIERARCHICAL_ENCODED):
            yield all_reduce, codec, algorithm, SHORT
        yield all_reduce, codec, Algorithm.HIERARCHICAL if WORLD.size == 4 else Algorithm.TWO_SHOT, LONG
    for operation in (*COLLECTIVES, broadcast, all_to_all, exchange):
        yield operation, "none", Algorithm.NATIVE, SHORT


def half_cases() -> Iterator[tuple[Callable[..., list[Any]], str, Algorithm, int, Any]]:
    """Yield the cases whose values are sent in a different dtype."""
    for sent in HALVES:
        for codec in HALF_CODECS:
            for operation in (*COLLECTIVES, *OTHERS):
                yield operation, codec, Algorithm.TWO_SHOT, SHORT, sent
            for operation in COLLECTIVES:
                yield operation, codec, Algorithm.HIERARCHICAL, SHORT, sent
            for algorithm in (Algorithm.RING, Algorithm.HIERARCHICAL_ENCODED):
                yield all_reduce, codec, algorithm, SHORT, sent
        yield all_reduce, "int8:256", Algorithm.TWO_SHOT, LONG, sent
        for operation in COLLECTIVES:
            yield operation, "none", Algorithm.NATIVE, SHORT, sent
        yield all_reduce, "none", Algorithm.NATIVE, LONG, sent
    for sent in (*HALVES, np.dtype(np.float32)):
        yield doubles_with_feedback, "none", Algorithm.TWO_SHOT, SHORT, sent


@functools.cache
def group_of(device: bool, places: Places, nodes: int) -> Group:
    """Return one group for all cases with these arguments, because MPI libraries limit the number of communicators."""
    group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY), places=places)
    group.topology = Topology.regular(nodes, WORLD.size // nodes)
    return group


def compare(
    side: Side,
    places: Places,
    aware: bool,
    operation: Any,
    codec: str,
    algorithm: Algorithm,
    n: int,
    sent: Any = None,
) -> None:
    nodes = 2 if WORLD.size == 4 else 1
    results: list[list[np.ndarray]] = []
    counted = []
    accelerator = side.accelerator if isinstance(side, Emulated) else None
    before = (accelerator.to_host, accelerator.to_device, accelerator.elsewhere) if accelerator else (0, 0, 0)
    for where in (Host(), side):
        group = group_of(where is side, places, nodes)
        ch = channel(codec, algorithm, SLICES[n], sent)
        results.append([where.get(x) for x in operation(group, where, ch, n)])
        counters = ch.counters
        counted.append((counters.message_bytes, counters.wire_bytes, counters.network_bytes, counters.error_square))
        timed = ch.counters.encode_s > 0 and ch.counters.decode_s > 0
    after = (accelerator.to_host, accelerator.to_device, accelerator.elsewhere) if accelerator else (0, 0, 0)
    to_host, to_device, elsewhere = (b - a for a, b in zip(before, after, strict=True))
    off = max(_relative_difference(*pair) for pair in zip(*results, strict=True))
    host, device = ([x.tobytes() for x in side_results] for side_results in results)
    everyone = WORLD.gather((host == device, counted[0] == counted[1], timed, counted[0][1], off))
    copied = WORLD.gather((to_host, to_device, elsewhere))
    if WORLD.rank == 0:
        print(
            json.dumps(
                {
                    "operation": operation.__name__,
                    "codec": codec,
                    "algorithm": algorithm.value,
                    "n": n,
                    "sent": None if sent is None else str(sent),
                    "aware": aware,
                    "same": all(x[0] for x in everyone),
                    "same counts": all(x[1] for x in everyone),
                    "timed": all(x[2] for x in everyone),
                    "wire": [x[3] for x in everyone],
                    "off": max(x[4] for x in everyone),
                    "to host": [x[0] for x in copied],
                    "to device": [x[1] for x in copied],
                    "elsewhere": [x[2] for x in copied],
                }
            ),
            flush=True,
        )


def emulated(kind: type[LazyAccelerator], aware: bool) -> tuple[Emulated, Places]:
    accelerator = kind()
    return Emulated(accelerator), Places(aware=aware, device_of=lambda x: accelerator)


def agreement() -> None:
    for aware in (False, True):
        side, places = emulated(LazyAccelerator, aware)
        for case in cases():
            compare(side, places, aware, *case)


def halves() -> None:
    for aware in (False, True):
        side, places = emulated(LazyAccelerator, aware)
        for case in half_cases():
            compare(side, places, aware, *case)
    rounded = DeviceMemory._rounded
    with patch.object(DeviceMemory, "_rounded", lambda memory, x, residual=None: rounded(memory, x)):
        compare(side, places, aware, with_feedback, "int8:256", Algorithm.TWO_SHOT, SHORT, BFLOAT16)


class LazyNccl(Communicator):
    """Emulation of NCCL on the lazy device.

    Operations run after a delay, in stream order, with the collectives of the MPI library, so that sums are bitwise
    identical to those of the MPI path.
    """

    def __init__(self, comm: MPI.Comm, accelerator: LazyAccelerator) -> None:
        self.rank, self.size = comm.rank, comm.size
        self._comm, self._accelerator = comm.Dup(), accelerator
        self._library = Library(self._comm)
        self._group: list[Callable[[], Any]] | None = None
        self._stream = 0

    def start(self) -> None:
        self._group = []

    def end(self) -> None:
        begun, self._group = self._group or [], None

        def work() -> None:
            MPI.Request.Waitall([request for begin in begun for request in begin()])

        self._accelerator.streams.put(self._stream, work)

    def send(self, content: Any, peer: int, stream: int) -> None:
        self._put(stream, lambda: [self._comm.Isend([seen(content), MPI.BYTE], peer)])

    def receive(self, inbox: Any, peer: int, stream: int) -> None:
        self._put(stream, lambda: [self._comm.Irecv([seen(inbox), MPI.BYTE], peer)])

    def all_reduce(self, buf: Any, op: MPI.Op, stream: int) -> None:
        self._put(stream, lambda: list(self._library.all_reduce(seen(buf), op, blocking=True)))

    def reduce_scatter(self, src: Any, dst: Any, stream: int) -> None:
        self._put(stream, lambda: list(self._library.reduce_scatter(seen(src), seen(dst), blocking=True)))

    def all_gather(self, src: Any, dst: Any, stream: int) -> None:
        self._put(stream, lambda: list(self._library.all_gather(seen(src), seen(dst), blocking=True)))

    def broadcast(self, buf: Any, root: int, stream: int) -> None:
        self._put(stream, lambda: list(self._library.broadcast(seen(buf), root, blocking=True)))

    def reduce(self, src: Any, dst: Any, root: int, stream: int) -> None:
        self._put(stream, lambda: list(self._library.reduce(seen(src), seen(dst), root, blocking=True)))

    def _put(self, stream: int, begin: Callable[[], Any]) -> None:
        alone = self._group is None
        if alone:
            self.start()
        assert self._group is not None
        self._stream = stream
        self._group.append(begin)
        if alone:
            self.end()

    def free(self) -> None:
        pass


class OverNccl(Emulated):
    """Device values that NCCL sends. Nothing waits for the values before they are read."""

    def __init__(self, accelerator: LazyAccelerator) -> None:
        super().__init__(accelerator)
        self.places = Places(device_of=lambda x: accelerator, nccl=lambda comm: LazyNccl(comm, accelerator))

    def get(self, x: OnDevice) -> np.ndarray:
        self.accelerator.mark(CALLER).wait()
        self.places.clock(x).settle()
        return x.values


def shifts(group: Group, side: Side, ch: Channel, n: int) -> list[Any]:
    """Shift values around a ring. The caller overwrites the values as soon as the call returns."""
    got, works = [side.put(np.zeros(n, "f4")) for _ in range(2)], []
    for k, x in enumerate(got):
        sent = side.put(values(n, 2 * group.rank + k))
        works.append(group.shift(sent, x, by=1 + k, tag=k, channel=ch))
        if (1 + k) % group.size:
            side.change(sent)
    for work in works:
        work.wait()
    return got


def over_nccl() -> None:
    """Compare each operation over NCCL with NumPy arrays over MPI."""
    side = OverNccl(LazyAccelerator())
    for operation, codec, *details in [*cases(), *half_cases()]:
        if codec in ("mpc", "xpk"):  # their messages vary in size
            continue
        compare(side, side.places, True, shifts if operation is exchange else operation, codec, *details)


def planted() -> None:
    """Run the planted faults, which the test must detect."""
    for kind in (Impatient, Deaf):
        side, places = emulated(kind, False)
        compare(side, places, False, all_reduce, "zfp:8", Algorithm.TWO_SHOT, SHORT)


def reuse() -> None:
    """Count the buffers after each call."""
    for aware in (False, True):
        side, places = emulated(LazyAccelerator, aware)
        group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY), places=places)
        for codec in CODECS:
            ch = channel(codec, Algorithm.TWO_SHOT)
            buffers = []
            for _ in range(4):
                all_reduce(group, side, ch, SHORT)
                buffers.append(side.accelerator.buffers)
            everyone = WORLD.gather(buffers)
            if WORLD.rank == 0:
                print(json.dumps({"codec": codec, "aware": aware, "buffers": everyone}), flush=True)


def background() -> None:
    """Run the device from a progress thread while the caller computes."""
    side, places = emulated(LazyAccelerator, False)
    group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY, background=True), places=places)
    for codec in CODECS:
        ch = channel(codec, Algorithm.TWO_SHOT)
        host = [values(SHORT + k, group.rank) for k in range(4)]
        device = [side.put(x) for x in host]
        for bufs in (host, device):
            for work in [group.all_reduce(x, channel=ch).in_background() for x in bufs]:
                work.wait()
        everyone = WORLD.gather([x.tobytes() for x in host] == [side.get(x).tobytes() for x in device])
        if WORLD.rank == 0:
            print(json.dumps({"codec": codec, "same": all(everyone)}), flush=True)


def damaged() -> None:
    """Modify a byte after the sender has computed the checksum."""
    side, places = emulated(LazyAccelerator, False)
    group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY), places=places)
    group.topology = Topology.regular(WORLD.size, 1)
    ch = channel("int8:256", Algorithm.TWO_SHOT)
    if WORLD.rank == 0:
        sealed = frame.seal
        frame.seal = lambda buffer, used: sealed(buffer, used) ^ np.uint8(1)
        group.send(side.put(values(SHORT, 0)), 1, tag=0, channel=ch).wait()
    else:
        try:
            group.recv(side.put(values(SHORT, 0)), 0, tag=0, channel=ch).wait()
            refusal = ""
        except TransitError as error:
            refusal = str(error)
        print(json.dumps({"refusal": refusal}), flush=True)


def compare_all(side: Side, chosen: Sequence[tuple[Any, ...]]) -> None:
    """Compare a device with the host, without assumptions about the MPI library."""
    places, before = Places(), group_of.cache_info().misses
    for case in chosen:
        compare(side, places, False, *case)
    new_groups = group_of.cache_info().misses - before
    assert new_groups == 2, f"{new_groups} groups for {len(chosen)} cases: MPICH has only 2048 communicators"


def on_gpu() -> None:
    """Run every case on a real GPU."""
    for side in (Torch(), Cupy()):
        compare_all(side, [*cases(), *half_cases()])


def with_pointers() -> None:
    """Run the point-to-point cases on a real GPU, with an MPI library that accepts device pointers."""
    summed = (Algorithm.NATIVE, Algorithm.HIERARCHICAL, Algorithm.HIERARCHICAL_ENCODED)  # by the library, on the CPU
    for side in (Torch(), Cupy()):
        places = Places(aware=True)
        for case in (*cases(), *half_cases()):
            if case[2] not in summed:
                compare(side, places, True, *case)


def on_nccl() -> None:
    """Compare each operation over NCCL on a real GPU with NumPy arrays. NCCL's sums use a different summation order."""
    from hpcbench.comm import nccl

    side, places = Torch(), Places(nccl=nccl.connect)
    for operation, codec, algorithm, *details in [*cases(), *half_cases()]:
        if codec in ("mpc", "xpk") or algorithm is Algorithm.NATIVE:
            continue
        compare(side, places, True, shifts if operation is exchange else operation, codec, algorithm, *details)


def on_standin(chosen: str) -> None:
    """Run `cases` or `half_cases` on the CuPy stand-in."""
    use_standin.use()
    compare_all(Cupy(), [*globals()[chosen]()])


def compile_kernels() -> None:
    """Compile the kernels on one rank for all ranks."""
    import emulator  # in the directory of the emulated device

    if sys.argv[-1] in ("halves", "half_cases", "over_nccl"):
        builds = [emulator.build_of(name, sent, sent) for name in HALF_CODECS if name != "none" for sent in HALVES]
        builds += [build_of(np.dtype(kind), sent) for kind in ("f4", "f8") for sent in HALVES]
        builds += [build_of(np.dtype(kind), np.dtype("f4")) for kind in ("f4", "f8")]
    else:
        builds = [emulator.build_of(name, "f4", "f4") for name in CODECS if name != "none"]
        builds += [build_of(np.dtype("f4"), np.dtype("f4"))]
    builds += [sum_build_of(np.dtype("f4")), sum_build_of(np.dtype("f8"))]
    if WORLD.rank == 0:
        emulator.compile_all(builds)
    compiled = WORLD.Ibarrier()
    while not compiled.Test():
        time.sleep(0.02)  # leave the core to the compiler
    for build in builds:
        emulator.library(build)


if __name__ == "__main__":
    if sys.argv[1] not in ("on_gpu", "with_pointers", "on_nccl"):
        compile_kernels()
    globals()[sys.argv[1]](*sys.argv[2:])
