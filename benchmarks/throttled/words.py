"""What is said below the tables: which schemes are shown to be faster than a control, and which are not."""

from collections.abc import Mapping, Sequence

from hpcbench.report.findings import SpeedFinding
from hpcbench.report.statistics import Interval
from throttled.compare import Column, beside

CONTROLS = {
    "baseline": "the MPI library's own calls without a codec",
    "naive-bf16": "a plain cast of all traffic to 16 bits",
    "naive-int8": "8-bit integers for all traffic",
}
"""Simple schemes that another one has to beat."""
KNOWN_WORSE = {"naive-zfp8": 0.48}
"""Validation loss minus the baseline's after 600 steps, of those that are shown to be worse
(docs/explanation/convergence.md)."""


def shown(interval: Interval, digits: int, sign: str = "") -> str:
    """An estimate with its interval."""
    if interval.low is None:
        return f"{interval.estimate:{sign}.{digits}f}"
    return f"{interval.estimate:{sign}.{digits}f} ({interval.low:{sign}.{digits}f} to {interval.high:{sign}.{digits}f})"


def sorted_out(found: Mapping[str, SpeedFinding]) -> dict[str, list[str]]:
    """Names by what is shown of them, the fastest first."""
    groups: dict[str, list[str]] = {"faster": [], "slower": [], "neither": []}
    for name in sorted(found, key=lambda name: -found[name].estimate):
        finding = found[name]
        groups["faster" if finding.shown == "faster" else "slower" if finding.slower else "neither"].append(name)
    return groups


def sentences(column: Column) -> list[str]:
    """Against each control that was run."""
    lines = []
    for control, words in CONTROLS.items():
        if control not in column.runs:
            continue
        found = beside(column, control)
        pairs = min(finding.pairs for finding in found.values())
        lines.append(f"Beside {control}, {words}, {column.where} ({_pairs(pairs)}, Holm over {len(found)} schemes):")
        for what, names in sorted_out(found).items():
            told = ", ".join(f"{name} {shown(found[name], 2)}" for name in names)
            head = {"neither": "not shown to be faster or slower"}.get(what, f"shown to be {what}")
            lines.append(f"  {head}: {told or 'none'}.")
        if control != "baseline":
            lines += hybrids(found, control)
    return lines


def hybrids(found: Mapping[str, SpeedFinding], control: str) -> list[str]:
    """Whether schemes that compress one dimension more than the others beat a simple one."""
    own = {name: finding for name, finding in found.items() if "hybrid" in name}
    if not own:
        return []
    groups = sorted_out(own)
    beats, loses = (", ".join(groups[what]) or "none" for what in ("faster", "slower"))
    return [f"  Of the {len(own)} hybrids, faster than {control}: {beats}; slower than it: {loses}."]


def loss_note(steps: int, schemes: Sequence[str]) -> list[str]:
    """What the losses in the tables do not say."""
    lines = [
        f"loss: validation loss minus the baseline's. After {steps} steps it separates no schemes and is no verdict: "
        "what a scheme costs in convergence is measured over 600 steps in docs/explanation/convergence.md."
    ]
    for scheme, worse in KNOWN_WORSE.items():
        if scheme in schemes:
            lines.append(f"  * {scheme} is shown to be worse there, by {worse:+.2f}: its speed is bought with loss.")
    return lines


def _pairs(count: int) -> str:
    return f"{count} pair{'s' * (count != 1)}"
