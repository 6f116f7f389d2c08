"""Energy observer, which assigns counters to ranks and sums the energy of all ranks."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpi4py import MPI

from hpcbench.contract.event.machine import Rank, RankGpu
from hpcbench.features.energy.events import Energy, EnergyCounter
from hpcbench.features.energy.observer.counters import (
    PM_COUNTERS,
    POWERCAP,
    Counter,
    NoCounterError,
    find_rapl_counters,
    open_cray_counter,
)
from hpcbench.features.energy.observer.meter import Meter
from hpcbench.features.energy.observer.nvml import open_gpu_counter
from hpcbench.train.observer import Observer

_WIDE = 0.9
"""Fraction of a node's cores above which a job is considered alone on the node.

The fraction is below 1 because sites reserve some cores.
"""
_OWNED = "SLURM_CPUS_ON_NODE"
"""Environment variable with the number of cores that Slurm allocated to the job on this node."""


class EnergyMeter(Observer):
    """Observer that reads the energy counters of this rank and sums the energy over all ranks.

    Energy is not metered step by step: counters change at most ten times per second, and many steps take less than a
    tenth of a second.

    Parameters
    ----------
    world
        All ranks, in rank order.
    comm
        Communicator of all ranks.
    first
        First metered step.
    powercap, pm_counters
        Directories in which the kernel exposes the counters.
    """

    def __init__(
        self,
        world: Sequence[Rank],
        comm: MPI.Comm,
        *,
        first: int,
        powercap: Path = POWERCAP,
        pm_counters: Path = PM_COUNTERS,
    ) -> None:
        self._world, self._comm, self._first, rank = world, comm, first, comm.rank
        self.absent: dict[str, str] = {}
        """Reasons why this rank cannot read its assigned counters, keyed by source."""
        counters: list[Counter] = []
        this_rank = world[rank]
        if all(other.host != this_rank.host for other in world[:rank]):
            try:
                counters.append(open_cray_counter(pm_counters))
            except NoCounterError as error:
                self.absent["cray"] = str(error)
            try:
                counters += find_rapl_counters(powercap)
            except NoCounterError as error:
                self.absent["rapl"] = str(error)
        if this_rank.gpu is not None and all(_gpu(other) != _gpu(this_rank) for other in world[:rank]):
            try:
                counters.append(open_gpu_counter(this_rank.gpu))
            except NoCounterError as error:
                self.absent["nvml"] = str(error)
        self.meter = Meter(counters)

    def begin(self, step: int) -> None:
        """Start the meter before a metered step, if the meter is not running."""
        if step >= self._first:
            self.meter.resume()

    def pause(self, step: int, *, more: bool) -> None:
        """Stop the meter after a step that is not directly followed by another step."""
        self.meter.pause() if more else self.meter.tick()

    def summary(self, *, from_step: int, to_step: int) -> Energy:
        """Return the energy measured by all counters (a collective call)."""
        host = str(self._world[self._comm.rank].host)
        owned = os.environ.get(_OWNED, "")
        report = {
            "host": host,
            "seconds": self.meter.seconds,
            "absent": self.absent,
            "owned": int(owned) if owned.isdecimal() else None,
            "counters": [
                EnergyCounter(
                    host=host,
                    source=metered.counter.source,
                    name=metered.counter.name,
                    part=metered.counter.part,
                    joules=None if metered.problem else round(metered.joules, 3),
                    refresh_s=metered.counter.refresh,
                    problem=metered.problem or None,
                )
                for metered in self.meter.metered
            ],
        }
        return sum_counters(self._world, self._comm.allgather(report), from_step=from_step, to_step=to_step)


def sum_counters(
    world: Sequence[Rank], reports: Sequence[Mapping[str, Any]], *, from_step: int, to_step: int
) -> Energy:
    """Sum the reports of all ranks.

    The energy of nodes, GPUs or processors is None if one of their counters is missing.
    """
    counters = tuple(counter for report in reports for counter in report["counters"])
    hosts = list(dict.fromkeys(str(rank.host) for rank in world))
    gpus = {_gpu(rank) for rank in world if rank.gpu is not None}
    nodes = _sum(counters, "node", len(hosts))
    processors = _sum(counters, "processor", len(hosts))
    devices = _sum(counters, "gpu", len(gpus)) if gpus else None
    scope, joules = _choose_scope(nodes, devices, processors, gpus=bool(gpus))
    return Energy(
        from_step=from_step,
        to_step=to_step,
        seconds=round(reports[0]["seconds"], 6),
        scope=scope or None,
        joules=joules,
        node_joules=nodes,
        gpu_joules=devices,
        processor_joules=processors,
        counters=counters,
        problems=tuple(_list_problems(counters, reports)),
        wide=tuple(_find_shared_hosts(world, reports)) if scope else (),
    )


def _choose_scope(
    nodes: float | None, devices: float | None, processors: float | None, *, gpus: bool
) -> tuple[str, float | None]:
    """Return the largest scope without missing counters, and the energy of the scope in joules."""
    if nodes is not None:
        return "nodes", nodes
    if devices is not None and processors is not None:
        return "GPUs and processors", round(devices + processors, 3)
    if devices is not None:
        return "GPUs", devices
    return ("processors", processors) if processors is not None and not gpus else ("", None)


def _sum(counters: Iterable[EnergyCounter], part: str, places: int) -> float | None:
    """Sum the counters of a part. Return None if one of the `places` hosts or GPUs lacks a usable counter."""
    of_part = [counter for counter in counters if counter.part == part]
    places_with_counter = {(counter.host, counter.name if part == "gpu" else "") for counter in of_part}
    is_complete = len(places_with_counter) == places and all(counter.joules is not None for counter in of_part)
    return round(sum(counter.joules or 0.0 for counter in of_part), 3) if of_part and is_complete else None


def _list_problems(counters: Iterable[EnergyCounter], reports: Iterable[Mapping[str, Any]]) -> list[str]:
    hosts_by_problem: dict[str, dict[str, None]] = defaultdict(dict)
    for report in reports:
        for source, problem in report["absent"].items():
            hosts_by_problem[f"no {source} counter: {problem}"][report["host"]] = None
    for counter in counters:
        if counter.problem:
            hosts_by_problem[f"{counter.source} {counter.name}: {counter.problem}"][str(counter.host)] = None
    return [f"{_format_hosts(list(hosts))}: {problem}" for problem, hosts in hosts_by_problem.items()]


def _find_shared_hosts(world: Sequence[Rank], reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe the hosts whose counters include energy used by other jobs, with the numbers of cores."""
    hosts_by_problem: dict[str, list[str]] = defaultdict(list)
    for host in dict.fromkeys(rank.host for rank in world):
        ranks = [rank for rank in world if rank.host == host]
        owned = next((report["owned"] for report in reports if report["host"] == host), None)
        mine = owned if owned is not None else len({core for rank in ranks for core in rank.cores or ()})
        all_cores = ranks[0].host_cores or 0
        if mine < _WIDE * all_cores:
            who = "the job" if owned is not None else "the run"
            hosts_by_problem[
                f"{who} has {mine} of {all_cores} cores, so the counters may include the energy of other jobs"
            ].append(str(host))
    return [f"{_format_hosts(hosts)}: {problem}" for problem, hosts in hosts_by_problem.items()]


def _gpu(rank: Rank) -> tuple[object, ...]:
    """Return an identifier of a rank's GPU that does not depend on device visibility."""
    about = rank.gpu or RankGpu.read({})
    return (rank.host, about.uuid or about.pci or about.number)


def _format_hosts(hosts: Sequence[str]) -> str:
    return hosts[0] if len(hosts) == 1 else f"{hosts[0]} and {len(hosts) - 1} more"
