"""Where a scheme begins to pay: the bandwidth at which it is as fast as the baseline, in closed form.

A step takes ``own + bytes / B`` seconds, with the bytes that it waits for on a node's network of bandwidth B. Baseline
and scheme are equally fast at ``B* = (bytes of the baseline - bytes of the scheme) / (own of the scheme - own of the
baseline)``: on slower networks the scheme wins, on faster ones it loses. A scheme whose own time is no longer always
wins, and one that saves no bytes on the network never does, except by that.
"""

import math
from dataclasses import dataclass

from hpcbench.predict.step import StepTime

EQUAL = 5e-4
"""Gain that is printed as 0.0 %."""


@dataclass(frozen=True)
class BreakEven:
    """Break-even of one scheme against the baseline."""

    bytes_per_s: float | None
    """Bandwidth of a node's network: infinite where the scheme always wins, 0 where it never does, None if unknown."""
    gain: float | None
    """At the machine's bandwidth: baseline's seconds over the scheme's, less 1; None if the bandwidth is assumed."""
    surely: bool
    """The interval of the gain leaves 0 out."""
    words: str


def leave_undecided(links: str) -> BreakEven:
    """Return the comparison of two schemes whose messages use links of an assumed bandwidth: it names no winner.

    Parameters
    ----------
    links
        The links and their assumed bandwidth, in words.
    """
    return BreakEven(None, None, False, f"unknown: run `hpcbench bench network` ({links} is assumed)")


def compare_steps(baseline: StepTime, scheme: StepTime, bandwidth: float) -> BreakEven:
    """Compare a scheme with the baseline.

    Parameters
    ----------
    bandwidth
        Bytes a second of a node's network.
    """
    gain = baseline.seconds.value / scheme.seconds.value - 1
    # waiting for the slowest rank is a share of all the rest: it moves no threshold
    at = find_break_even(
        own=scheme.seconds.value - scheme.parts["waiting"] - scheme.network_seconds,
        network_bytes=scheme.network_seconds * bandwidth,
        baseline_own=baseline.seconds.value - baseline.parts["waiting"] - baseline.network_seconds,
        baseline_bytes=baseline.network_seconds * bandwidth,
    )
    # what both have in common is off by the same: only where they differ the inputs' errors count
    difference = abs(baseline.seconds.value - scheme.seconds.value)
    parts = {*baseline.parts, *scheme.parts}
    doubt = 0.3 * sum(abs(baseline.parts.get(one, 0.0) - scheme.parts.get(one, 0.0)) for one in parts)
    surely = difference > doubt
    return BreakEven(at, gain, surely, _words(gain, at, surely))


def find_break_even(*, own: float, network_bytes: float, baseline_own: float, baseline_bytes: float) -> float:
    """The bandwidth at which ``own + network_bytes / B`` and the baseline's are equal."""
    saved, cost = baseline_bytes - network_bytes, own - baseline_own
    if cost <= 0:
        return math.inf if saved >= 0 else 0.0
    return saved / cost if saved > 0 else 0.0


def _words(gain: float, at: float, surely: bool) -> str:
    limit = "" if at in (0.0, math.inf) else f": it pays below {at * 8e-9:.3g} Gbit/s a node"
    if abs(gain) < EQUAL:
        return f"as fast as the baseline{limit}"
    if gain < 0:
        return f"compression {'loses' if surely else 'may lose'} here{limit or ': it saves nothing on the network'}"
    return f"{'wins' if surely else 'may win'} by {100 * gain:.1f} %{limit}"
