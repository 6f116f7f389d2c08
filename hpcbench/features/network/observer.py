"""Observer that reads network counters before and after the counted steps of the engine's own runs."""

import time
from dataclasses import replace

from mpi4py import MPI

from hpcbench.features.network.counters import Reading, read_counters
from hpcbench.features.network.events import DeviceBytes, NetworkBytes
from hpcbench.features.network.nvlink import NvLinks
from hpcbench.features.network.sampler import shares_node
from hpcbench.features.network.window import Sample, find_problem, sum_devices
from hpcbench.train.observer import Observer


class NetworkMeter(Observer):
    """Observer of the network counters of a node. Only the first rank of each node reads the counters.

    Traffic of evaluations and checkpoints is excluded.

    Parameters
    ----------
    hosts
        Host of each rank, in rank order.
    comm
        Communicator of all ranks.
    first
        First counted step.
    """

    def __init__(self, hosts: list[str], comm: MPI.Comm, *, first: int) -> None:
        self._hosts, self._comm, self._first = hosts, comm, first
        self._reads = hosts.index(hosts[comm.rank]) == comm.rank
        self._begin: tuple[float, dict[str, Reading]] | None = None
        self._links = NvLinks() if self._reads else None
        self._seconds = 0.0
        self._devices: dict[str, DeviceBytes] = {}

    def begin(self, step: int) -> None:
        """Read the counters before the first counted step and after each pause."""
        if self._reads and step >= self._first and self._begin is None:
            self._begin = time.time(), self._read()

    def pause(self, step: int, *, more: bool) -> None:
        """Read the counters after a step that is not directly followed by another step."""
        if more and self._begin is not None:
            (begin, before), (end, after) = self._begin, (time.time(), self._read())
            self._begin = None
            self._seconds += end - begin
            host = self._hosts[self._comm.rank]
            for name in before | after:
                here = _subtract(host, name, before.get(name), after.get(name))
                self._devices[name] = _add(self._devices[name], here) if name in self._devices else here

    def _read(self) -> dict[str, Reading]:
        return {**read_counters(), **(self._links.read() if self._links else {})}

    def summary(self, *, from_step: int, to_step: int) -> NetworkBytes:
        """Return the number of bytes sent by all nodes (a collective call)."""
        node = (self._hosts[self._comm.rank], shares_node(), self._seconds, list(self._devices.values()))
        nodes = [node for node in self._comm.allgather(node if self._reads else None) if node is not None]
        return sum_devices(
            [device for _, _, _, devices in nodes for device in devices],
            hosts=[host for host, *_ in nodes],
            shared=[host for host, is_shared, *_ in nodes if is_shared],
            seconds=max(seconds for _, _, seconds, _ in nodes),
            steps=(from_step, to_step),
        )


def _subtract(host: str, name: str, before: Reading | None, after: Reading | None) -> DeviceBytes:
    kind = (before or after or Reading("interface", None, None)).kind
    problem = find_problem([_take(0.0, before), _take(1.0, after)], 0.0, 1.0)
    if problem or before is None or after is None:
        return DeviceBytes(host=host, name=name, kind=kind, sent_bytes=None, received_bytes=None, problem=problem)
    return DeviceBytes(
        host=host,
        name=name,
        kind=kind,
        sent_bytes=(after.sent or 0) - (before.sent or 0),
        received_bytes=(after.received or 0) - (before.received or 0),
    )


def _take(time_s: float, reading: Reading | None) -> Sample:
    return (time_s, None, None) if reading is None else (time_s, reading.sent, reading.received)


def _add(total: DeviceBytes, here: DeviceBytes) -> DeviceBytes:
    problem = total.problem or here.problem
    if problem:
        return replace(total, sent_bytes=None, received_bytes=None, problem=problem)
    return replace(
        total,
        sent_bytes=(total.sent_bytes or 0) + (here.sent_bytes or 0),
        received_bytes=(total.received_bytes or 0) + (here.received_bytes or 0),
    )
