"""Network bytes of a time interval, computed from the samples of all nodes."""

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from hpcbench.features.network.events import DeviceBytes, NetworkBytes

Sample = tuple[float, int | None, int | None]
"""Tuple of the time in seconds since the epoch, sent bytes, and received bytes."""


@dataclass(frozen=True)
class NodeSamples:
    """Counter samples of one node."""

    host: str
    shared: bool
    """Whether other jobs may use the node."""
    devices: dict[str, tuple[str, list[Sample]]]
    """Kind and samples of each device."""
    times: list[float]
    """Times of all samples in seconds since the epoch."""

    @property
    def last_time(self) -> float:
        """Time of the last sample, or 0 if there are no samples."""
        return max(self.times, default=0.0)


def read_samples(directory: Path) -> list[NodeSamples]:
    """Read the sample files of all nodes. Truncated lines are ignored."""
    return [_read_node(path) for path in sorted(directory.glob("*.jsonl"))]


def _read_node(path: Path) -> NodeSamples:
    devices: dict[str, tuple[str, list[Sample]]] = {}
    times: list[float] = []
    shared = False
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record: dict[str, Any] = json.loads(line)
            for name, (kind, sent, received) in record["devices"].items():
                devices.setdefault(name, (kind, []))[1].append((record["time"], sent, received))
            shared = shared or bool(record["shared"])
            times.append(float(record["time"]))
        except (ValueError, KeyError, TypeError):
            continue
    return NodeSamples(path.stem, shared, devices, times)


def count_bytes(nodes: Sequence[NodeSamples], begin: float, end: float, steps: tuple[int, int]) -> NetworkBytes:
    """Count the bytes sent by all nodes from `begin` to `end`.

    Counter values at `begin` and `end` are interpolated between samples. The traffic between these samples is
    uncertain.

    Parameters
    ----------
    nodes
        Counter samples of each node.
    begin, end
        Start of the first counted step and end of the last counted step, in seconds since the epoch.
    steps
        Numbers of the first and the last counted step.
    """
    devices = [
        _count_device(node.host, name, *node.devices[name], begin, end) for node in nodes for name in node.devices
    ]
    counted = sum_devices(
        devices,
        hosts=[node.host for node in nodes],
        shared=[node.host for node in nodes if node.shared],
        seconds=end - begin,
        steps=steps,
    )
    if counted.sent_bytes is None:
        return counted
    series = [samples for node in nodes for kind, samples in node.devices.values() if kind != "nvlink"]
    return replace(counted, whole_sent_bytes=sum((samples[-1][1] or 0) - (samples[0][1] or 0) for samples in series))


def sum_devices(
    devices: Sequence[DeviceBytes],
    *,
    hosts: Sequence[str],
    shared: Sequence[str],
    seconds: float,
    steps: tuple[int, int],
) -> NetworkBytes:
    """Sum the bytes of all network devices.

    The sum is None if bytes are missing, or if two counters may include the same bytes.
    """
    links = [device for device in devices if device.kind == "nvlink"]
    network = [device for device in devices if device.kind != "nvlink"]
    problems = [f"{device.host}: {device.name}: {device.problem}" for device in network if device.problem]
    problems += [
        f"{device.host}: {device.name}: the counter of the Ethernet interface may also include this RDMA traffic"
        for device in network
        if device.kind == "roce" and (device.sent_bytes or device.received_bytes)
    ]
    problems += [f"{host}: has no network counter" for host in hosts if all(device.host != host for device in network)]
    is_known = not problems and bool(hosts)
    return NetworkBytes(
        from_step=steps[0],
        to_step=steps[1],
        seconds=round(seconds, 6),
        nodes=len(hosts),
        sent_bytes=_sum(device.sent_bytes for device in network) if is_known else None,
        received_bytes=_sum(device.received_bytes for device in network) if is_known else None,
        uncertain_bytes=_sum(device.uncertain_bytes for device in network) if is_known else None,
        nvlink_bytes=None if not links or any(link.problem for link in links) else _sum(d.sent_bytes for d in links),
        devices=tuple(devices),
        problems=tuple(problems),
        shared=tuple(shared),
    )


def _sum(values: Iterable[int | None]) -> int:
    return sum(value or 0 for value in values)


def _count_device(host: str, name: str, kind: str, samples: Sequence[Sample], begin: float, end: float) -> DeviceBytes:
    problem = find_problem(samples, begin, end)
    if problem:
        return DeviceBytes(host=host, name=name, kind=kind, sent_bytes=None, received_bytes=None, problem=problem)
    times = [sample[0] for sample in samples]
    first, last = _find_bracket(times, begin), _find_bracket(times, end)
    sent = [sample[1] or 0 for sample in samples]
    received = [sample[2] or 0 for sample in samples]
    return DeviceBytes(
        host=host,
        name=name,
        kind=kind,
        sent_bytes=round(_interpolate(times, sent, last, end) - _interpolate(times, sent, first, begin)),
        received_bytes=round(_interpolate(times, received, last, end) - _interpolate(times, received, first, begin)),
        uncertain_bytes=sum(sent[k + 1] - sent[k] for k in {first, last}),
    )


def find_problem(samples: Sequence[Sample], begin: float, end: float) -> str | None:
    """Return why the bytes sent from `begin` to `end` cannot be computed, or None if they can."""
    if len(samples) < 2 or samples[0][0] > begin:
        return "no sample before the first counted step"
    if samples[-1][0] < end:
        return "no sample after the last counted step"
    if any(value is None for sample in samples for value in sample[1:]):
        return "the counter could not be read"
    for before, after in pairwise(samples):
        if (after[1] or 0) < (before[1] or 0) or (after[2] or 0) < (before[2] or 0):
            return "the counter decreased, because of a reset or an overflow"
    return None


def _find_bracket(times: Sequence[float], time: float) -> int:
    """Return the index of the last sample before `time`, but at most the index of the second to last sample."""
    return min(max(bisect_right(times, time) - 1, 0), len(times) - 2)


def _interpolate(times: Sequence[float], values: Sequence[int], k: int, time: float) -> float:
    span = times[k + 1] - times[k]
    share = (time - times[k]) / span if span else 0.0
    return values[k] + share * (values[k + 1] - values[k])
