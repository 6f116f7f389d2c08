"""Figures of a diagnosis: the timeline of a step, and gains as a function of link bandwidth."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from hpcbench import plot_style
from hpcbench.diagnose.diagnosis import COMPUTATION, Bar, Diagnosis
from hpcbench.diagnose.gains import CODECS, FREE, Load, gain_at
from hpcbench.present.document import Figure

_POINTS = 41
_DECADES = 1.5
"""Number of decades of bandwidth that are plotted on each side of the traced bandwidth."""
_MOST_TRACKS = 8


def figures(diagnosis: Diagnosis) -> list[Figure]:
    """Return the figures for which the traces contain enough data."""
    drawn = []
    if any(bar.track != COMPUTATION for bar in diagnosis.timeline):
        step = "step" if diagnosis.steps else "trace"
        caption = "Dark bars are exposed calls, which no computation covers. Pale bars are hidden calls."
        title = f"One {step} of rank {diagnosis.ranks[0] if diagnosis.ranks[0] is not None else '?'}"
        drawn.append(Figure("timeline", title, caption, partial(_draw_timeline, diagnosis.timeline)))
    for dimension in list(diagnosis.by_dimension())[:2]:
        rows = [row for row in diagnosis.rows if row.kind.dimension == dimension and row.kind.compressible]
        bandwidths = [row.bandwidth for row in rows if row.bandwidth]
        if rows and len(bandwidths) == len(rows):
            loads, traced = [row.load for row in rows], 8e-9 * max(bandwidths)
            draw = partial(_draw_gains, loads, 1e6 * diagnosis.step_seconds, diagnosis.codec_speed, traced)
            caption = (
                "The line marks the traced bandwidth. Hidden transfers stay hidden as long as they take no "
                "longer than in the trace."
            )
            drawn.append(Figure(f"gain-{dimension.lower()}", f"{dimension}: gain by bandwidth", caption, draw))
    return drawn


def _draw_timeline(bars: Sequence[Bar], canvas: Any) -> None:
    busy: dict[str, float] = {}
    for bar in bars:
        busy[bar.track] = busy.get(bar.track, 0.0) + bar.end - bar.begin
    calls = sorted((track for track in busy if track != COMPUTATION), key=lambda track: -busy[track])
    tracks = [COMPUTATION, *calls[: _MOST_TRACKS - 1]]
    canvas.set_size_inches(2 * plot_style.WIDTH, 0.7 + 0.28 * len(tracks))
    axes = canvas.subplots()
    for place, track in enumerate(tracks):
        colour = plot_style.COLOURS[place % len(plot_style.COLOURS)]
        for exposed, alpha in ((False, 0.35 if place else 1.0), (True, 1.0)):
            spans = [
                (1e3 * bar.begin, 1e3 * (bar.end - bar.begin))
                for bar in bars
                if (bar.track, bar.exposed) == (track, exposed)
            ]
            axes.broken_barh(spans, (place - 0.35, 0.7), color=colour, alpha=alpha, linewidth=0)
    axes.set_yticks(range(len(tracks)), tracks)
    axes.set_ylim(len(tracks) - 0.5, -0.5)
    axes.set_xlabel("time since the start of the step / ms")


def _draw_gains(loads: Sequence[Load], step_us: float, gb_per_s: float, traced: float, canvas: Any) -> None:
    canvas.set_size_inches(1.6 * plot_style.WIDTH, plot_style.WIDTH)
    axes = canvas.subplots()
    exponents = [_DECADES * (2 * k / (_POINTS - 1) - 1) for k in range(_POINTS)]
    bandwidths = [traced * 10**exponent for exponent in exponents]
    for k, codec in enumerate((*CODECS, FREE)):
        gains = [gain_at(loads, step_us, codec, gb_per_s, gbit) for gbit in bandwidths]
        dash = plot_style.DASHES[k % len(plot_style.DASHES)]
        axes.plot(bandwidths, gains, label=codec.name, color=plot_style.COLOURS[k], linestyle=dash)
    axes.axhline(1, color=plot_style.INK, linewidth=0.8)
    axes.axvline(traced, color=plot_style.INK, linewidth=0.6, linestyle=":")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("bandwidth of a rank / Gbit/s")
    axes.set_ylabel("step time / shortest possible step time")
    axes.set_ylim(0.5, min(10.0, axes.get_ylim()[1]))
    axes.legend()
