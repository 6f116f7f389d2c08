"""Break-even bandwidth, at which a scheme is as fast as the baseline, in closed form.

A step takes ``local + bytes / B`` seconds. ``local`` excludes the network, ``bytes`` counts exposed network traffic of
a node, and B is the node's network bandwidth. Baseline and scheme are equally fast at ``B* = (bytes of the baseline -
bytes of the scheme) / (local time of the scheme - local time of the baseline)``. The scheme wins on slower networks and
loses on faster ones. A scheme with a shorter local time always wins, unless it sends more bytes. A scheme with a longer
local time never wins if it saves no bytes.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

from hpcbench.predict.step import StepTime

EQUAL = 5e-4
"""Largest gain that is printed as 0.0 %."""


@dataclass(frozen=True)
class BreakEven:
    """Break-even comparison of one scheme with the baseline."""

    bytes_per_s: float | None
    """Break-even bandwidth of a node's network: infinite if the scheme always wins, 0 if it never wins, None if it is
    unknown."""
    gain: float | None
    """Baseline time / scheme time - 1 at the machine's bandwidth, or None if this bandwidth is assumed."""
    surely: bool
    """Whether the interval for the gain excludes 0."""
    sentence: str
    """The result in words."""

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data."""
        fields = asdict(self)
        sentence = fields.pop("sentence")
        return {**fields, "words": sentence}


def leave_undecided(links: str) -> BreakEven:
    """Return an inconclusive comparison, for schemes whose messages use links with an assumed bandwidth.

    Parameters
    ----------
    links
        Description of the links and their assumed bandwidth.
    """
    return BreakEven(None, None, False, f"unknown: run `hpcbench bench network` ({links} is assumed)")


def compare_steps(baseline: StepTime, scheme: StepTime, bandwidth: float) -> BreakEven:
    """Compare a scheme with the baseline.

    Parameters
    ----------
    bandwidth
        Bandwidth of a node's network in bytes per second.
    """
    gain = baseline.seconds.value / scheme.seconds.value - 1
    # Waiting for the slowest rank is proportional to the rest of the step and does not change the break-even.
    at = find_break_even(
        local=scheme.seconds.value - scheme.parts["waiting"] - scheme.network_seconds,
        network_bytes=scheme.network_seconds * bandwidth,
        baseline_local=baseline.seconds.value - baseline.parts["waiting"] - baseline.network_seconds,
        baseline_bytes=baseline.network_seconds * bandwidth,
    )
    # Input errors cancel in parts that both steps share. They count only for parts that differ.
    difference = abs(baseline.seconds.value - scheme.seconds.value)
    parts = {*baseline.parts, *scheme.parts}
    doubt = 0.3 * sum(abs(baseline.parts.get(part, 0.0) - scheme.parts.get(part, 0.0)) for part in parts)
    surely = difference > doubt
    return BreakEven(at, gain, surely, _describe(gain, at, surely))


def find_break_even(*, local: float, network_bytes: float, baseline_local: float, baseline_bytes: float) -> float:
    """Return the bandwidth B in bytes/s at which ``local + network_bytes / B`` equals the baseline's time."""
    saved, cost = baseline_bytes - network_bytes, local - baseline_local
    if cost <= 0:
        return math.inf if saved >= 0 else 0.0
    return saved / cost if saved > 0 else 0.0


def _describe(gain: float, at: float, surely: bool) -> str:
    limit = "" if at in (0.0, math.inf) else f": the scheme pays below {at * 8e-9:.3g} Gbit/s per node"
    if abs(gain) < EQUAL:
        return f"as fast as the baseline{limit}"
    if gain < 0:
        return f"compression {'loses' if surely else 'may lose'} here{limit or ': no bytes are saved on the network'}"
    return f"{'wins' if surely else 'may win'} by {100 * gain:.1f} %{limit}"
