"""Resource usage of a run: compute time per host, and memory of the ranks."""

import resource
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median

import torch

from hpcbench.contract.events import HostTimes, MemoryUse, StageTimes
from hpcbench.parallel.exact import everyones_names, gather
from hpcbench.train.trainer import Trainer

_UNIT = 1 if sys.platform == "darwin" else 1024
"""Size in bytes of the unit in which the kernel reports resident memory."""


def compute_times(trainer: Trainer, hosts: Sequence[str]) -> tuple[HostTimes, ...]:
    """Return the compute times of each host (a collective call). All ranks return the same times.

    A slow node delays all other nodes. Only compute times, which exclude waiting, can identify this node.

    Parameters
    ----------
    hosts
        Host of each rank, in rank order.

    Returns
    -------
    tuple of HostTimes
        Times in the format of `by_host`.
    """
    mesh, traffic = trainer.mesh, trainer.traffic
    seconds_here = traffic.compute_seconds / max(traffic.steps, 1)
    times = [time for (time,) in gather(mesh.world, [seconds_here], trainer.policy.exact)]
    return by_host(hosts, times, [mesh.layout.coordinates(rank)[0] for rank in range(len(hosts))])


def by_host(names: Sequence[str], times: Sequence[float], stages: Sequence[int]) -> tuple[HostTimes, ...]:
    """Combine the times of the ranks on each host.

    Parameters
    ----------
    names, times, stages
        Host, seconds per step, and pipeline stage of each rank.

    Returns
    -------
    tuple of HostTimes
        Times of each host, ordered by first rank. A rank is compared only with ranks of the same pipeline stage,
        because stages perform different work.
    """
    peers, places, hosts = defaultdict(list), defaultdict(set), defaultdict(list)
    for rank, (name, stage) in enumerate(zip(names, stages, strict=True)):
        peers[stage].append(times[rank])
        places[stage].add(name)
        hosts[name].append(rank)
    rows = []
    for name, ranks in hosts.items():
        ratios = [
            times[rank] / median(peers[stages[rank]])
            for rank in ranks
            if len(places[stages[rank]]) > 1 and median(peers[stages[rank]]) > 0
        ]
        rows.append(
            HostTimes(
                host=name,
                ranks=len(ranks),
                compute_s=round(fmean(times[rank] for rank in ranks), 9),
                over_peers=round(fmean(ratios), 6) if ratios else None,
            )
        )
    return tuple(rows)


def phase_times(trainer: Trainer) -> tuple[StageTimes, ...]:
    """Return the seconds per step in each phase of each pipeline stage (a collective call).

    Returns
    -------
    tuple of StageTimes
        Mean times of each stage over its ranks, the same on all ranks.
    """
    phases, mesh = trainer.phases, trainer.mesh
    passes = [phases.forward, phases.backward, phases.bubble, phases.reduction, phases.optimizer]
    steps = max(phases.steps, 1)
    mine = [seconds / steps for seconds in (*passes, phases.step - sum(passes), phases.step)]
    stages = defaultdict(list)
    for rank, seconds in enumerate(gather(mesh.world, mine, trainer.policy.exact)):
        stages[mesh.layout.coordinates(rank)[0]].append(seconds)
    means = {stage: [round(fmean(column), 9) for column in zip(*ranks, strict=True)] for stage, ranks in stages.items()}
    return tuple(
        StageTimes(
            stage=stage,
            forward_s=forward,
            backward_s=backward,
            bubble_s=bubble,
            reduction_s=reduction,
            optimizer_s=optimizer,
            other_s=other,
            step_s=step,
        )
        for stage, (forward, backward, bubble, reduction, optimizer, other, step) in sorted(means.items())
    )


def peak_resident(status: Path = Path("/proc/self/status")) -> int:
    """Return the peak resident memory of this process in bytes.

    ``ru_maxrss`` is used only as a fallback, because a process inherits the value from its parent.
    """
    try:
        _, _, after = status.read_text().partition("VmHWM:")
        return int(after.split()[0]) << 10
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT


def memory(trainer: Trainer) -> MemoryUse:
    """Return the memory usage of the run so far (a collective call). All ranks return the same result.

    `Trainer.held_bytes` returns the memory that persists between steps.
    """
    world, exact = trainer.mesh.world, trainer.policy.exact
    nbytes_by_name = {f"{what.replace(' ', '_')}_bytes": nbytes for what, nbytes in trainer.held_bytes().items()}
    if trainer.run.device != "cpu":
        nbytes_by_name["device_bytes"] = torch.cuda.max_memory_allocated()
        nbytes_by_name["device_reserved_bytes"] = torch.cuda.max_memory_reserved()
        nbytes_by_name["device_buffer_bytes"] = trainer.mesh.places.device_bytes
    names = everyones_names(world, nbytes_by_name, exact)
    mine = [float(peak_resident()), *(float(nbytes_by_name.get(name, 0)) for name in names)]
    host, *others = zip(*gather(world, mine, exact), strict=True)
    most = {name: round(max(values)) for name, values in zip(names, others, strict=True)}
    return MemoryUse(host_rank_bytes=round(max(host)), host_bytes=round(sum(host)), **most)
