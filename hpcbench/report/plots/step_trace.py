"""Figure of a traced step of each scheme, by rank."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hpcbench.collect.submission import Submission
from hpcbench.collect.traces import traces_of
from hpcbench.contract.trace import CODEC, STEP, STEPS, WAIT, StepTrace, TraceSpan
from hpcbench.errors import UserError
from hpcbench.plot_style import COLOURS, INK, WIDTH
from hpcbench.present.document import Figure
from hpcbench.present.notation import seconds_unit
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.plots.drawing import name

MOST_SCHEMES, MOST_RANKS = 3, 4
"""Maximum number of schemes, and of ranks per scheme, that remain legible."""
COLUMNS = 48
"""Number of columns per rank. A step has hundreds of spans, too many to draw individually."""
_SAMPLES = 50
"""Number of samples per column at which the kind of span is determined."""
LEAST_SHARE = 0.03
"""Kinds of spans below this fraction of a step would be invisible and are merged into ``other``."""
OTHER = "other"
SPANS = {
    "forward": COLOURS[5],
    "backward": COLOURS[0],
    "reduction": COLOURS[1],
    "optimizer": COLOURS[3],
    OTHER: COLOURS[2],
    "waiting": "#d9d9d9",
}
"""Color of each kind of span, from the bottom to the top of a column.

If spans overlap, the kind that comes later in this mapping takes precedence.
"""
_BELOW = {"messages under way": INK, "codec": COLOURS[4]}
"""Colors of concurrent activities, drawn below a rank's columns."""


@dataclass(frozen=True)
class Panel:
    """A traced step of a scheme."""

    scheme: str
    run: str
    step: int
    ranks: tuple[StepTrace, ...]
    """Traces of the drawn ranks."""
    of: int
    """Total number of ranks of the run."""
    error: float
    """Maximum difference between the ranks' clocks in seconds."""

    def list_spans(self, trace: StepTrace) -> list[tuple[str, float, float]]:
        """List the kind, start and length of a rank's spans.

        Start and length are in seconds. The start is relative to the start of the step on the common clock.
        """
        start = min(
            _convert_to_common_clock(other, span)
            for other in self.ranks
            for span in _list_spans(other, self.step)
            if span.name == STEP
        )
        spans = []
        for span in _list_spans(trace, self.step):
            if kind := _resolve_kind(span):
                spans.append((kind, _convert_to_common_clock(trace, span) - start, span.end - span.begin))
        return spans

    @cached_property
    def seconds(self) -> float:
        """Time in seconds from the start of the step to its end on the last rank."""
        return max(begin + length for trace in self.ranks for _, begin, length in self.list_spans(trace))

    def compute_shares(self, trace: StepTrace, seconds: float) -> dict[str, list[float]]:
        """Compute the share of each kind of span in each column of a rank.

        In a column, the kinds of `SPANS` add up to at most 1.

        `seconds` is the total length of all columns.
        """
        instants: dict[str, list[str]] = {place: [""] * (COLUMNS * _SAMPLES) for place in ("steps", *_BELOW)}
        step = seconds / (COLUMNS * _SAMPLES)
        order = list(SPANS)
        spans = self.list_spans(trace)
        for kind, begin, length in sorted(spans, key=lambda span: order.index(span[0]) if span[0] in order else 0):
            first, last = (
                min(max(math.ceil(at / step - 0.5), 0), COLUMNS * _SAMPLES) for at in (begin, begin + length)
            )
            instants[kind if kind in _BELOW else "steps"][first:last] = [kind] * (last - first)
        kinds = dict.fromkeys(kind for kind, _, _ in spans)
        return {
            kind: [
                instants[kind if kind in _BELOW else "steps"][k * _SAMPLES : (k + 1) * _SAMPLES].count(kind) / _SAMPLES
                for k in range(COLUMNS)
            ]
            for kind in kinds
        }


def plot_step_trace(submission: Submission, cell: Cell) -> Figure | None:
    """Plot one panel per scheme, or return None if no run was traced."""
    damaged: list[str] = []
    traced = [panel for row in cell.rows if (panel := _make_panel(row, damaged))]
    panels = traced[:MOST_SCHEMES]
    if not panels:
        return None
    unit = seconds_unit(panel.seconds for panel in panels)
    longest = max(panel.seconds for panel in panels)
    drawn = [[panel.compute_shares(trace, longest) for trace in panel.ranks] for panel in panels]
    small = _list_small_kinds([shares for ranks in drawn for shares in ranks])

    def draw(fig: Any) -> None:
        heights = [0.3 * len(panel.ranks) + 0.25 for panel in panels]
        fig.set_size_inches(WIDTH, sum(heights) + 1.0)
        shape = {"height_ratios": heights}
        axes = fig.subplots(len(panels), 1, sharex=True, squeeze=False, gridspec_kw=shape)
        for axis, panel, ranks in zip(axes.flat, panels, drawn, strict=True):
            _draw_ranks(axis, panel, ranks, small, longest / unit.scale)
        axes.flat[-1].set_xlabel(f"time / {unit.name}")
        handles = {
            label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        shown = [label for label in (*SPANS, *_BELOW) if label in handles]
        fig.legend([handles[label] for label in shown], shown, loc="outside upper center", ncols=3)

    which = "; ".join(
        f"{name(panel.scheme)}: step {panel.step} of {panel.run}"
        + (f", {len(panel.ranks)} of {panel.of} ranks" if panel.of > len(panel.ranks) else "")
        for panel in panels
    )
    worst = max(panel.error for panel in panels)
    caption = (
        f"Activities of each rank in one step, on a common clock (within {worst * 1e6:.0f} us): {which}. A column "
        f"is {unit.show(longest / COLUMNS)} {unit.name} wide; its colors show the shares of that time. Below it: "
        "messages in flight, and time in the codec."
    )
    if inside := [kind for kind in SPANS if kind in small]:
        caption += f" Other: {', '.join(inside)}, each less than {100 * LEAST_SHARE:.0f} % of the steps."
    if unseen := [kind for kind in _BELOW if kind in small]:
        caption += f" Not drawn, because it is less than {100 * LEAST_SHARE:.0f} % of the steps: {', '.join(unseen)}."
    if left := len(traced) - len(panels):
        caption += f" Traced, but not drawn: {left} more scheme{'s' * (left > 1)}."
    caption += "".join(f" Not drawn: {problem}." for problem in damaged)
    return Figure("step-trace", "One step, rank by rank", caption, draw)


def _make_panel(row: SchemeRow, damaged: list[str]) -> Panel | None:
    """Make a panel of the first run with a complete trace. Problems of other traces are appended to `damaged`."""
    for measures in row.counted:
        try:
            traces = traces_of(measures.run)
        except UserError as why:
            damaged.append(str(why))
            continue
        common = set.intersection(*(set(trace.steps()) for trace in traces)) if traces else set()
        if not common:
            continue
        step = sorted(common)[len(common) // 2]
        every = -(-len(traces) // MOST_RANKS)
        error = max(trace.error for trace in traces)
        return Panel(row.scheme, measures.run.id, step, tuple(traces[::every]), len(traces), error)
    return None


def _list_small_kinds(ranks: Sequence[dict[str, list[float]]]) -> set[str]:
    """List the kinds of spans whose share is too small to be visible on any rank."""
    most: dict[str, float] = {}
    for shares in ranks:
        total = sum(sum(shares.get(kind, ())) for kind in SPANS) or 1.0
        for kind, columns in shares.items():
            most[kind] = max(most.get(kind, 0.0), sum(columns) / total)
    return {kind for kind, share in most.items() if share < LEAST_SHARE}


def _draw_ranks(
    axis: Any, panel: Panel, ranks: Sequence[dict[str, list[float]]], small: Collection[str], length: float
) -> None:
    """Draw the columns of each rank, and thin bars below. `length` is the axis length in axis units."""
    width = length / COLUMNS
    left = [k * width for k in range(COLUMNS)]
    for y, shares in enumerate(ranks):
        ends = [y + 0.22] * COLUMNS
        for kind, colour in SPANS.items():
            members = (kind,) if kind != OTHER else tuple(member for member in SPANS if member in small)
            parts = [
                shares[member] for member in members if member in shares and (member not in small or kind == OTHER)
            ]
            if not parts:
                continue
            heights = [0.6 * sum(column) for column in zip(*parts, strict=True)]
            ends = [end - height for end, height in zip(ends, heights, strict=True)]
            label = kind if y == 0 else None
            axis.bar(left, heights, width, ends, align="edge", color=colour, linewidth=0, label=label)
        below = [kind for kind in _BELOW if kind in shares and kind not in small]
        for k, kind in enumerate(below):
            heights = [0.1 * share for share in shares[kind]]
            bottom, label = y + 0.25 + 0.1 * k, kind if y == 0 else None
            axis.bar(left, heights, width, bottom, align="edge", color=_BELOW[kind], linewidth=0, label=label)
    axis.set_xlim(0, length)
    axis.set_ylim(len(panel.ranks) - 0.45, -0.45)
    axis.set_yticks(range(len(panel.ranks)), [f"rank {trace.rank}" for trace in panel.ranks])
    axis.tick_params(axis="y", length=0)
    axis.set_title(name(panel.scheme))


def _resolve_kind(span: TraceSpan) -> str | None:
    if span.track == STEPS:
        return "waiting" if span.name in (WAIT, "bubble") else span.name if span.name in SPANS else None
    return "codec" if span.track == CODEC else "messages under way"


def _list_spans(trace: StepTrace, step: int) -> Sequence[TraceSpan]:
    return [span for span in trace.spans if span.step == step]


def _convert_to_common_clock(trace: StepTrace, span: TraceSpan) -> float:
    return span.begin - trace.ahead(span.begin)
