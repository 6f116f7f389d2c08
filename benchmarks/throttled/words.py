"""Sentences that are printed below the tables, about schemes that are significantly faster than a control."""

from collections.abc import Mapping, Sequence

from hpcbench.report.findings import SpeedFinding
from hpcbench.report.statistics import Interval
from throttled.compare import Column, beside

CONTROLS = {
    "baseline": "the MPI library's own calls without a codec",
    "naive-bf16": "a plain cast of all traffic to 16 bits",
    "naive-int8": "8-bit integers for all traffic",
}
"""Simple schemes as controls."""
KNOWN_WORSE = {"naive-zfp8": 0.48}
"""Loss after 600 steps minus the baseline's, for significantly worse schemes (docs/explanation/convergence.md)."""


def shown(interval: Interval, digits: int, sign: str = "") -> str:
    """Format an estimate with its interval."""
    if interval.low is None:
        return f"{interval.estimate:{sign}.{digits}f}"
    return f"{interval.estimate:{sign}.{digits}f} ({interval.low:{sign}.{digits}f} to {interval.high:{sign}.{digits}f})"


def sorted_out(findings: Mapping[str, SpeedFinding]) -> dict[str, list[str]]:
    """List names by displayed value, the fastest first."""
    groups: dict[str, list[str]] = {"faster": [], "slower": [], "neither": []}
    for name in sorted(findings, key=lambda name: -findings[name].estimate):
        finding = findings[name]
        groups["faster" if finding.shown == "faster" else "slower" if finding.slower else "neither"].append(name)
    return groups


def sentences(column: Column) -> list[str]:
    """Yield a sentence for each measured control."""
    lines = []
    for control, description in CONTROLS.items():
        if control not in column.runs:
            continue
        findings = beside(column, control)
        pairs = min(finding.pairs for finding in findings.values())
        lines.append(
            f"Compared with {control}, {description}, {column.where} "
            f"({_pairs(pairs)}, Holm over {len(findings)} schemes):"
        )
        for what, names in sorted_out(findings).items():
            listed = ", ".join(f"{name} {shown(findings[name], 2)}" for name in names)
            head = {"neither": "inconclusive"}.get(what, f"significantly {what}")
            lines.append(f"  {head}: {listed or 'none'}.")
        if control != "baseline":
            lines += hybrids(findings, control)
    return lines


def hybrids(findings: Mapping[str, SpeedFinding], control: str) -> list[str]:
    """Compare a simple scheme with schemes that compress one dimension more strongly."""
    hybrids_found = {name: finding for name, finding in findings.items() if "hybrid" in name}
    if not hybrids_found:
        return []
    groups = sorted_out(hybrids_found)
    beats, loses = (", ".join(groups[what]) or "none" for what in ("faster", "slower"))
    return [f"  Of the {len(hybrids_found)} hybrids, faster than {control}: {beats}; slower than it: {loses}."]


def loss_note(steps: int, schemes: Sequence[str]) -> list[str]:
    """Explain what the losses in the tables do not show."""
    lines = [
        f"loss: validation loss minus the baseline's. After {steps} steps it separates no schemes, and is not a "
        "verdict: "
        "what a scheme costs in convergence is measured over 600 steps in docs/explanation/convergence.md."
    ]
    for scheme, worse in KNOWN_WORSE.items():
        if scheme in schemes:
            lines.append(f"  * {scheme} is significantly worse there, by {worse:+.2f}: its speed is bought with loss.")
    return lines


def _pairs(count: int) -> str:
    return f"{count} pair{'s' * (count != 1)}"
