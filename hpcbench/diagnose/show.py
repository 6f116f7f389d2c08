"""Sentences that summarize a diagnosis."""

from hpcbench.diagnose.diagnosis import UNKNOWN, Diagnosis, Gain
from hpcbench.diagnose.gains import FREE, NOTABLE

_MOST = 3
"""Maximum number of kinds of call in a sentence."""
_LEAST = 0.005
"""Minimum fraction of a step that a kind of call must take to be listed."""


def sentences(diagnosis: Diagnosis) -> list[str]:
    """Return the conclusion of a diagnosis and its limitations."""
    return [*answer(diagnosis), *notes(diagnosis)]


def answer(diagnosis: Diagnosis) -> list[str]:
    """Describe how much of a step is exposed communication, and what compression could gain."""
    if not diagnosis.rows:
        return ["The traced steps contain no collective calls: there is nothing to compress."]
    return [_exposed(diagnosis), _gain(diagnosis)]


def notes(diagnosis: Diagnosis) -> list[str]:
    """Return the limitations of the conclusion, one sentence each."""
    lines: list[str] = []
    if not diagnosis.rows:
        return lines
    if diagnosis.steps is None:
        lines.append(
            f"The trace does not mark steps, so all figures are for {diagnosis.step_seconds:.3g} s: call step() "
            "of the profiler after each step."
        )
    lines += [
        f"The trace{'' if gap.rank is None else f' of rank {gap.rank}'} contains {gap.present} of {gap.expected} "
        f"{gap.operation} calls: times and bytes are too low, unless the program's steps differ."
        for gap in diagnosis.gaps
    ]
    if diagnosis.has_waiting:
        waiting = sum(row.exposed_waiting or 0.0 for row in diagnosis.rows) / diagnosis.step_seconds
        if waiting >= _LEAST:
            part = _percent(waiting)
            lines.append(f"{part} of the step is exposed waiting for late ranks, which compression does not shorten.")
        if diagnosis.world and len(diagnosis.paths) < diagnosis.world:
            lines.append(
                f"Only {len(diagnosis.paths)} of {diagnosis.world} ranks have traces: waiting for the other ranks "
                "counts as transfer."
            )
    elif not diagnosis.from_traces:
        lines.append(
            "Waiting for late ranks and the pipeline's bubble count as transfer, so the gains are upper bounds."
        )
    elif diagnosis.world != 1:
        lines.append(
            "Waiting for late ranks counts as transfer, so the gains are upper bounds: to separate waiting from "
            "transfer, give the traces of several ranks."
        )
    unknown = {row.kind.description for row in diagnosis.rows if row.kind.dimension == UNKNOWN}
    lines += [
        f"The dimension of group {description!r} is unknown: set the dimension with --group {description!r}=DP "
        "(or TP, PP, ...)."
        for description in sorted(unknown - {""})
    ]
    if "" in unknown:
        lines.append("Some calls have no group in the trace: their dimension is unknown.")
    if (untyped := _untyped(diagnosis)) >= _LEAST:
        lines.append(
            f"The gains leave out calls of unknown type, which are exposed for {_percent(untyped)} of the step."
        )
    if any(row.message_bytes is None for row in diagnosis.rows):
        lines.append(
            "Some calls have no sizes in the trace: their bytes are unknown. PyTorch 2.4 and newer record types and "
            "sizes (for gloo with record_shapes=True)."
        )
    place = "GPU" if diagnosis.is_gpu else "CPU core"
    lines.append(f"Codecs are assumed to run at {diagnosis.codec_speed:g} GB/s of values on a {place} (--codec-speed).")
    return lines


def _exposed(diagnosis: Diagnosis) -> str:
    listed = [row for row in diagnosis.rows if row.exposed / diagnosis.step_seconds >= _LEAST][:_MOST]
    parts = [f"{row.kind.name} {_percent(row.exposed / diagnosis.step_seconds)}" for row in listed]
    return f"Communication is exposed for {_percent(diagnosis.exposed)} of the step{': ' if parts else ''}" + (
        ", ".join(parts) + "."
    )


def _gain(diagnosis: Diagnosis) -> str:
    free = [gain for gain in diagnosis.gains if gain.codec == FREE.name]
    best = max(free, key=lambda gain: gain.factor, default=None)
    untyped = _untyped(diagnosis)
    if (best is None or best.factor < NOTABLE) and 1 / max(1 - untyped, 1e-9) >= NOTABLE:
        return (
            f"The possible gain is unknown: the trace does not contain the data type of calls that are exposed for "
            f"{_percent(untyped)} of the step."
        )
    if best is None:
        return "Compression cannot pay here: no call sends floating-point values that a codec encodes."
    if best.factor < NOTABLE:
        return f"Compression cannot pay here: even free communication makes a step at most {best.factor:.2f}x faster."
    gains = {gain.codec: gain for gain in diagnosis.gains if gain.dimension == best.dimension}
    int8 = gains["int8"]
    others = ", ".join(
        f"{name}: {gains[name].factor:.2f}x"
        for name in ("bf16", "4 bits", FREE.name)
        if name != "bf16" or gains[name].factor > 1
    )
    return (
        f"int8 on {_name_dimension(best.dimension)} can make a step at most {int8.factor:.2f}x faster ({others})"
        f"{_break_even(int8, diagnosis)}."
    )


def _untyped(diagnosis: Diagnosis) -> float:
    """Return the fraction of the step in which calls of unknown type are exposed."""
    return sum(row.exposed for row in diagnosis.rows if row.kind.dtype == UNKNOWN) / diagnosis.step_seconds


def _break_even(gain: Gain, diagnosis: Diagnosis) -> str:
    if gain.break_even is None:
        return ""
    link = f", and the link has {diagnosis.link_gbit:g} Gbit/s" if diagnosis.link_gbit else ""
    return f"; int8 pays below {gain.break_even:.3g} Gbit/s per {'GPU' if diagnosis.is_gpu else 'rank'}{link}"


def _name_dimension(dimension: str) -> str:
    return dimension if dimension != UNKNOWN else "the unknown groups"


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %" if part >= 0.095 else f"{100 * part:.1f} %"
