"""The energy of a run's steps: which rank reads which counter, and what the counters of all ranks come to."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpi4py import MPI

from hpcbench.contract.event.machine import Rank, RankGpu
from hpcbench.features.energy.events import Energy, EnergyCounter
from hpcbench.features.energy.observer.counters import PM_COUNTERS, POWERCAP, Counter, NoCounterError, cray, rapl
from hpcbench.features.energy.observer.meter import Meter
from hpcbench.features.energy.observer.nvml import gpu
from hpcbench.train.observer import Observer

_WIDE = 0.9
"""Part of a node's cores that a job has at least to be alone there: sites keep some for the system."""
_OWNED = "SLURM_CPUS_ON_NODE"
"""How many of the node's cores Slurm gave the job."""


class EnergyMeter(Observer):
    """The counters of this rank, and what becomes of them.

    Parameters
    ----------
    world
        All ranks, in their order.
    comm
        Theirs.
    first
        The first step that is metered.
    powercap, pm_counters
        Where the kernel shows its counters.
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
        """Source -> why this rank has no counter of it, though it is the one to read it."""
        counters: list[Counter] = []
        own = world[rank]
        if all(other.host != own.host for other in world[:rank]):
            try:
                counters.append(cray(pm_counters))
            except NoCounterError as error:
                self.absent["cray"] = str(error)
            try:
                counters += rapl(powercap)
            except NoCounterError as error:
                self.absent["rapl"] = str(error)
        if own.gpu is not None and all(_gpu(other) != _gpu(own) for other in world[:rank]):
            try:
                counters.append(gpu(own.gpu))
            except NoCounterError as error:
                self.absent["nvml"] = str(error)
        self.meter = Meter(counters)

    def begin(self, step: int) -> None:
        """Read the counters before a step, unless they run."""
        if step >= self._first:
            self.meter.resume()

    def pause(self, step: int, *, more: bool) -> None:
        """Read the counters after a step, if something other than the next one follows."""
        self.meter.pause() if more else self.meter.tick()

    def summary(self, *, from_step: int, to_step: int) -> Energy:
        """Return what all counters say (a collective call)."""
        host = str(self._world[self._comm.rank].host)
        owned = os.environ.get(_OWNED, "")
        own = {
            "host": host,
            "seconds": self.meter.seconds,
            "absent": self.absent,
            "owned": int(owned) if owned.isdecimal() else None,
            "counters": [
                EnergyCounter(
                    host=host,
                    source=one.counter.source,
                    name=one.counter.name,
                    part=one.counter.part,
                    joules=None if one.problem else round(one.joules, 3),
                    refresh_s=one.counter.refresh,
                    problem=one.problem or None,
                )
                for one in self.meter.metered
            ],
        }
        return summed(self._world, self._comm.allgather(own), from_step=from_step, to_step=to_step)


def summed(world: Sequence[Rank], told: Sequence[Mapping[str, Any]], *, from_step: int, to_step: int) -> Energy:
    """Join what the ranks have told. A part of which a counter is missing anywhere has no sum."""
    counters = tuple(one for own in told for one in own["counters"])
    hosts = list(dict.fromkeys(str(rank.host) for rank in world))
    gpus = {_gpu(rank) for rank in world if rank.gpu is not None}
    nodes = _sum(counters, "node", len(hosts))
    processors = _sum(counters, "processor", len(hosts))
    devices = _sum(counters, "gpu", len(gpus)) if gpus else None
    scope, joules = _total(nodes, devices, processors, gpus=bool(gpus))
    return Energy(
        from_step=from_step,
        to_step=to_step,
        seconds=round(told[0]["seconds"], 6),
        scope=scope or None,
        joules=joules,
        node_joules=nodes,
        gpu_joules=devices,
        processor_joules=processors,
        counters=counters,
        problems=tuple(_problems(counters, told)),
        wide=tuple(_wide(world, told)) if scope else (),
    )


def _total(
    nodes: float | None, devices: float | None, processors: float | None, *, gpus: bool
) -> tuple[str, float | None]:
    """Return the scope of the sum, and the sum: the widest scope of which nothing is missing."""
    if nodes is not None:
        return "nodes", nodes
    if devices is not None and processors is not None:
        return "GPUs and processors", round(devices + processors, 3)
    if devices is not None:
        return "GPUs", devices
    return ("processors", processors) if processors is not None and not gpus else ("", None)


def _sum(counters: Iterable[EnergyCounter], part: str, places: int) -> float | None:
    """Sum of all counters of a part, if each of so many hosts, or GPUs, has one and each of them has its joules."""
    own = [one for one in counters if one.part == part]
    found = {(one.host, one.name if part == "gpu" else "") for one in own}
    whole = len(found) == places and all(one.joules is not None for one in own)
    return round(sum(one.joules or 0.0 for one in own), 3) if own and whole else None


def _problems(counters: Iterable[EnergyCounter], told: Iterable[Mapping[str, Any]]) -> list[str]:
    by_words: dict[str, dict[str, None]] = defaultdict(dict)
    for own in told:
        for source, words in own["absent"].items():
            by_words[f"no counter of {source}: {words}"][own["host"]] = None
    for one in counters:
        if one.problem:
            by_words[f"{one.source} {one.name}: {one.problem}"][str(one.host)] = None
    return [f"{_some(list(hosts))}: {words}" for words, hosts in by_words.items()]


def _wide(world: Sequence[Rank], told: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return where counters of a node, or of its processors, hold what others did there."""
    by_words: dict[str, list[str]] = defaultdict(list)
    for host in dict.fromkeys(rank.host for rank in world):
        ranks = [rank for rank in world if rank.host == host]
        owned = next((own["owned"] for own in told if own["host"] == host), None)
        mine = owned if owned is not None else len({core for rank in ranks for core in rank.cores or ()})
        all_cores = ranks[0].host_cores or 0
        if mine < _WIDE * all_cores:
            who = "the job" if owned is not None else "the run"
            by_words[f"{who} has {mine} of {all_cores} cores, and counters hold what others did there"].append(
                str(host)
            )
    return [f"{_some(hosts)}: {words}" for words, hosts in by_words.items()]


def _gpu(rank: Rank) -> tuple[object, ...]:
    """Return what tells GPUs apart, whatever number a rank knows them by."""
    about = rank.gpu or RankGpu.read({})
    return (rank.host, about.uuid or about.pci or about.number)


def _some(hosts: Sequence[str]) -> str:
    return hosts[0] if len(hosts) == 1 else f"{hosts[0]} and {len(hosts) - 1} more"
