"""Traffic of the channels during timed steps, summed over all ranks.

Messages between steps (evaluations, loss sums, checkpoints) are not counted. The bytes therefore match the step lines,
and the seconds are part of the step times.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hpcbench.comm.channel import Channel
from hpcbench.comm.policy import Policy
from hpcbench.contract.events import ChannelTraffic
from hpcbench.contract.traffic import Traffic as Key
from hpcbench.contract.treatment import Treatment
from hpcbench.parallel.exact import everyones_names, exact_sum
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.offload import HostLink

FIELDS = (*ChannelTraffic.COUNTS, *ChannelTraffic.SECONDS, "error_square", "sampled_square")
"""Counters of a channel."""


class Traffic:
    """Channel counters between `begin` and `end` of each step.

    Ranks may have different channels. For example, a stage without an embedding sends no rows.

    Parameters
    ----------
    policy
        Policy whose channels are counted.
    mesh
        Mesh of the ranks.
    link
        Link to host memory, or None without offloading.

    Attributes
    ----------
    steps : int
        Number of counted steps.
    seconds : float
        Total time of the counted steps on this rank, in seconds.
    """

    def __init__(self, policy: Policy, mesh: Mesh, link: HostLink | None = None) -> None:
        self._policy = policy
        self._mesh = mesh
        self._link = link
        self._crossed_before = (0, 0)
        self._before: dict[Key, dict[str, float]] = {}
        self._late: dict[Key, dict[str, float]] = {}
        self.forget()

    def forget(self) -> None:
        """Reset the counters, for example after the warm-up."""
        self._sums: dict[tuple[Key, Treatment], defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._crossed = (0, 0)
        self.steps, self.seconds = 0, 0.0

    def begin(self) -> None:
        """Start counting at the beginning of a step."""
        self._before = {channel.traffic: _read(channel) for channel in self._policy.channels}
        for key, values in self._late.items():
            before = self._before[key]
            self._before[key] = {name: value - values.get(name, 0.0) for name, value in before.items()}
        self._late = {}
        if self._link:
            self._crossed_before = self._link.down_bytes, self._link.up_bytes

    @contextmanager
    def late(self) -> Iterator[None]:
        """Attribute messages that finish within this context to the next step.

        These messages are still in transit when their step ends.
        """
        before = {channel.traffic: _read(channel) for channel in self._policy.channels}
        yield
        for channel in self._policy.channels:
            then, late = before.get(channel.traffic, {}), self._late.setdefault(channel.traffic, {})
            for name, value in _read(channel).items():
                late[name] = late.get(name, 0.0) + value - then.get(name, 0.0)

    def end(self, seconds: float, *, steps: int = 1) -> tuple[int, int]:
        """End one or more steps that took `seconds`. Return the message and wire bytes of this rank."""
        step: defaultdict[str, float] = defaultdict(float)
        for channel in self._policy.channels:
            before = self._before.get(channel.traffic, {})
            sums = self._sums[channel.traffic, channel.treatment]
            for name, value in _read(channel).items():
                sums[name] += value - before.get(name, 0.0)
                step[name] += value - before.get(name, 0.0)
        if self._link:
            (down, up), (down_before, up_before) = self._crossed, self._crossed_before
            self._crossed = down + self._link.down_bytes - down_before, up + self._link.up_bytes - up_before
        self.steps += steps
        self.seconds += seconds
        return round(step["message_bytes"]), round(step["wire_bytes"])

    @property
    def compute_seconds(self) -> float:
        """Return this rank's compute time in seconds during the steps, without waiting for messages."""
        return self.seconds - sum(sums["exposed_s"] for sums in self._sums.values())

    def link_bytes(self) -> tuple[int, int] | None:
        """Return the number of bytes copied to host memory and the number copied back, summed over all ranks.

        Return None without offloading. These copies are not messages and are never encoded.
        """
        if self._link is None:
            return None
        down, up = exact_sum(self._mesh.world, list(map(float, self._crossed)), self._policy.exact)
        return round(down), round(up)

    def report(self) -> tuple[ChannelTraffic, ...]:
        """Return one entry per channel with traffic, separated by the treatments that the rules give the channel.

        All ranks return the same entries.
        """
        rows = []
        world, exact = self._mesh.world, self._policy.exact
        names = everyones_names(world, (" ".join(channel.traffic) for channel in self._policy.channels), exact)
        channels = [
            (channel, treatment)
            for channel in map(self._policy.named, names)
            for treatment in self._policy.treatments(channel)
        ]
        sums_here = [self._sums[channel.traffic, treatment] for channel, treatment in channels]
        sums = exact_sum(world, [counted[name] for counted in sums_here for name in FIELDS], exact)
        for i, (channel, treatment) in enumerate(channels):
            values = dict(zip(FIELDS, sums[i * len(FIELDS) : (i + 1) * len(FIELDS)], strict=True))
            if not values["calls"]:
                continue
            counted: dict[str, Any] = {name: round(values[name]) for name in ChannelTraffic.COUNTS}
            counted |= {name: round(values[name], 6) for name in ChannelTraffic.SECONDS}
            rows.append(
                ChannelTraffic(
                    dimension=channel.dimension.value,
                    phase=channel.phase.value,
                    kind=channel.kind.value,
                    axis=channel.axis or None,
                    codec=treatment.codec,
                    dtype=channel.dtype.name if channel.dtype is not None else None,
                    min_bytes=treatment.min_bytes,
                    between_nodes=treatment.between_nodes,
                    algorithm=treatment.algorithm.value,
                    algorithms={
                        name: round(sums_here[i][name]) for name in channel.counters.algorithms if sums_here[i][name]
                    },
                    **counted,
                    sampled_error=_relative(values["error_square"], values["sampled_square"]),
                )
            )
        return tuple(rows)


def _read(channel: Channel) -> dict[str, float]:
    """Return the counters of a channel. The calls of each algorithm have a separate key."""
    counters = channel.counters
    return {**{name: float(getattr(counters, name)) for name in FIELDS}, **counters.algorithms}


def _relative(error_square: float, square: float) -> float | None:
    """Return the relative error of the sampled values in the 2-norm, or None if there are no samples."""
    return math.sqrt(error_square / square) if square else None
