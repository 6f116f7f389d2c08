"""What went through the channels, summed over all ranks."""

import math
from typing import Any

from hpcbench.comm.channel import Channel, Counters
from hpcbench.comm.policy import Policy
from hpcbench.parallel.exact import exact_sum
from hpcbench.parallel.mesh import Mesh

COUNTS = ("calls", "plain_calls", "message_bytes", "wire_bytes", "network_bytes")
SECONDS = ("encode_s", "decode_s", "transfer_s", "exposed_s", "hidden_s")
FIELDS = (*COUNTS, *SECONDS, "error_square", "sampled_square")


class Traffic:
    """Counts from the moment it is made.

    Every rank must have asked for the same channels by then, in any order.
    """

    def __init__(self, policy: Policy, mesh: Mesh) -> None:
        self._policy = policy
        self._mesh = mesh
        self._start = {id(channel): self._read(channel) for channel in policy.channels}

    def report(self) -> list[dict[str, Any]]:
        """One entry a channel that carried anything, the same on all ranks. Bytes and calls are integers."""
        rows = []
        channels = sorted(self._policy.channels, key=lambda c: (c.dimension.value, c.phase.value, c.kind.value))
        own: list[float] = []
        for channel in channels:
            before = self._start.get(id(channel), [0.0] * len(FIELDS))
            own.extend(now - then for now, then in zip(self._read(channel), before, strict=True))
        sums = exact_sum(self._mesh.world, own, self._policy.exact)
        for i, channel in enumerate(channels):
            values = dict(zip(FIELDS, sums[i * len(FIELDS) : (i + 1) * len(FIELDS)], strict=True))
            if not values["calls"]:
                continue
            rows.append(
                {
                    "dimension": channel.dimension.value,
                    "phase": channel.phase.value,
                    "kind": channel.kind.value,
                    "codec": channel.codec.name,
                    "algorithm": channel.algorithm.value,
                    "algorithms": dict(channel.counters.algorithms),
                    **{name: round(values[name]) for name in COUNTS},
                    **{name: round(values[name], 6) for name in SECONDS},
                    "sampled_error": _relative(values["error_square"], values["sampled_square"]),
                }
            )
        return rows

    @staticmethod
    def _read(channel: Channel) -> list[float]:
        counters: Counters = channel.counters
        return [float(getattr(counters, name)) for name in FIELDS]


def _relative(error_square: float, square: float) -> float | None:
    """Relative error of the sampled values, 2-norm; None where none was sampled."""
    return math.sqrt(error_square / square) if square else None
