"""One step of each scheme, rank by rank, as its trace has it."""

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
from hpcbench.report.compare import Cell, Row
from hpcbench.report.plots.drawing import name

MOST_SCHEMES, MOST_RANKS = 3, 4
"""That are drawn: more would be too small to be read."""
COLUMNS = 48
"""Columns of a rank's line. A step has hundreds of pieces: drawn one by one they are only their outlines."""
_SAMPLES = 50
"""Instants of a column that are looked at."""
LEAST_SHARE = 0.03
"""Share of the steps below which a kind of span cannot be seen, and is counted as ``other``."""
OTHER = "other"
SPANS = {
    "forward": COLOURS[5],
    "backward": COLOURS[0],
    "reduction": COLOURS[1],
    "optimizer": COLOURS[3],
    OTHER: COLOURS[2],
    "waiting": "#d9d9d9",
}
"""Colour of each kind of span, from the bottom of a column to its top. A kind covers those before it in time."""
_BELOW = {"messages under way": INK, "codec": COLOURS[4]}
"""Colours of what goes on meanwhile, below a rank's columns."""


@dataclass(frozen=True)
class Panel:
    """A scheme's step."""

    scheme: str
    run: str
    step: int
    ranks: tuple[StepTrace, ...]
    """Those that are drawn."""
    of: int
    """Ranks that there are."""
    error: float
    """Seconds that the ranks' clocks may differ by."""

    def spans(self, trace: StepTrace) -> list[tuple[str, float, float]]:
        """Kind, begin and length in seconds of what one rank did, on the clock of the first from the step's begin."""
        start = min(_on_clock(one, span) for one in self.ranks for span in _step(one, self.step) if span.name == STEP)
        found = []
        for span in _step(trace, self.step):
            if kind := _kind(span):
                found.append((kind, _on_clock(trace, span) - start, span.end - span.begin))
        return found

    @cached_property
    def seconds(self) -> float:
        """From the step's begin to its end on the last rank."""
        return max(begin + length for trace in self.ranks for _, begin, length in self.spans(trace))

    def columns(self, trace: StepTrace, seconds: float) -> dict[str, list[float]]:
        """Return the share of each kind of span in each column of one rank; kinds of `SPANS` add up to at most 1.

        Parameters
        ----------
        seconds
            Length of all columns together.
        """
        instants: dict[str, list[str]] = {place: [""] * (COLUMNS * _SAMPLES) for place in ("steps", *_BELOW)}
        step = seconds / (COLUMNS * _SAMPLES)
        order = list(SPANS)
        spans = self.spans(trace)
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


def step_trace(submission: Submission, cell: Cell) -> Figure | None:
    """Return a panel for each scheme; None if no run was traced."""
    damaged: list[str] = []
    traced = [panel for row in cell.rows if (panel := _panel(row, damaged))]
    panels = traced[:MOST_SCHEMES]
    if not panels:
        return None
    unit = seconds_unit(panel.seconds for panel in panels)
    longest = max(panel.seconds for panel in panels)
    drawn = [[panel.columns(trace, longest) for trace in panel.ranks] for panel in panels]
    small = _small_kinds([shares for ranks in drawn for shares in ranks])

    def draw(fig: Any) -> None:
        heights = [0.3 * len(panel.ranks) + 0.25 for panel in panels]
        fig.set_size_inches(WIDTH, sum(heights) + 1.0)
        shape = {"height_ratios": heights}
        axes = fig.subplots(len(panels), 1, sharex=True, squeeze=False, gridspec_kw=shape)
        for axis, panel, ranks in zip(axes.flat, panels, drawn, strict=True):
            _rows(axis, panel, ranks, small, longest / unit.scale)
        axes.flat[-1].set_xlabel(f"time / {unit.name}")
        found = {
            label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        shown = [label for label in (*SPANS, *_BELOW) if label in found]
        fig.legend([found[label] for label in shown], shown, loc="outside upper center", ncols=3)

    which = "; ".join(
        f"{name(panel.scheme)}: step {panel.step} of {panel.run}"
        + (f", {len(panel.ranks)} of {panel.of} ranks" if panel.of > len(panel.ranks) else "")
        for panel in panels
    )
    worst = max(panel.error for panel in panels)
    caption = (
        f"What each rank was about in one step, on one clock (to {worst * 1e6:.0f} us): {which}. A column is"
        f" {unit.show(longest / COLUMNS)} {unit.name} wide; its colours are the shares of that time. Below it:"
        " messages under way, and the codec's work."
    )
    if inside := [kind for kind in SPANS if kind in small]:
        caption += f" Other: {', '.join(inside)}, each less than {100 * LEAST_SHARE:.0f} % of the steps."
    if unseen := [kind for kind in _BELOW if kind in small]:
        caption += f" Not drawn, because it is less than {100 * LEAST_SHARE:.0f} % of the steps: {', '.join(unseen)}."
    if left := len(traced) - len(panels):
        caption += f" Traced, but not drawn: {left} more scheme{'s' * (left > 1)}."
    caption += "".join(f" Not drawn: {words}." for words in damaged)
    return Figure("step-trace", "One step, rank by rank", caption, draw)


def _panel(row: Row, damaged: list[str]) -> Panel | None:
    """Panel of the first run that has a whole trace; what is wrong with those before it goes to `damaged`."""
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


def _small_kinds(ranks: Sequence[dict[str, list[float]]]) -> set[str]:
    """Return the kinds of spans whose share of the steps is too small to be seen in any rank."""
    most: dict[str, float] = {}
    for shares in ranks:
        whole = sum(sum(shares.get(kind, ())) for kind in SPANS) or 1.0
        for kind, columns in shares.items():
            most[kind] = max(most.get(kind, 0.0), sum(columns) / whole)
    return {kind for kind, share in most.items() if share < LEAST_SHARE}


def _rows(
    axis: Any, panel: Panel, ranks: Sequence[dict[str, list[float]]], small: Collection[str], length: float
) -> None:
    """Draw the columns of each rank, and thin bars below them. `length` is that of the axis, in its unit."""
    width = length / COLUMNS
    left = [k * width for k in range(COLUMNS)]
    for y, shares in enumerate(ranks):
        ends = [y + 0.22] * COLUMNS
        for kind, colour in SPANS.items():
            members = (kind,) if kind != OTHER else tuple(one for one in SPANS if one in small)
            parts = [shares[one] for one in members if one in shares and (one not in small or kind == OTHER)]
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


def _kind(span: TraceSpan) -> str | None:
    if span.track == STEPS:
        return "waiting" if span.name in (WAIT, "bubble") else span.name if span.name in SPANS else None
    return "codec" if span.track == CODEC else "messages under way"


def _step(trace: StepTrace, step: int) -> Sequence[TraceSpan]:
    return [span for span in trace.spans if span.step == step]


def _on_clock(trace: StepTrace, span: TraceSpan) -> float:
    return span.begin - trace.ahead(span.begin)
