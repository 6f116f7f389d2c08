"""One step of each scheme, rank by rank, as its trace has it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench.collect.submission import Submission
from hpcbench.collect.traces import traces_of
from hpcbench.contract.trace import CODEC, STEP, STEPS, WAIT, RankTrace, Span
from hpcbench.errors import UserError
from hpcbench.plot_style import COLOURS, HATCHES, INK, WIDTH
from hpcbench.report.compare import Cell, Row
from hpcbench.report.document import Figure
from hpcbench.report.notation import seconds_unit
from hpcbench.report.plots.layout import name

MOST_SCHEMES, MOST_RANKS = 4, 8
"""That are drawn: more would be too small to be read."""
LOOKS = {
    "forward": (COLOURS[5], HATCHES[0]),
    "backward": (COLOURS[0], HATCHES[0]),
    "reduction": (COLOURS[1], HATCHES[0]),
    "optimizer": (COLOURS[3], HATCHES[0]),
    "waiting": ("white", HATCHES[1]),
    "codec": (COLOURS[4], HATCHES[0]),
    "messages under way": ("none", HATCHES[2]),
}
"""Colour and hatch of each kind of span."""


@dataclass(frozen=True)
class Panel:
    """A scheme's step."""

    scheme: str
    run: str
    step: int
    ranks: tuple[RankTrace, ...]
    """Those that are drawn."""
    of: int
    """Ranks that there are."""
    error: float
    """Seconds that the ranks' clocks may differ by."""

    def spans(self, trace: RankTrace) -> list[tuple[str, float, float]]:
        """Kind, begin and length in seconds of what one rank did, on the clock of the first from the step's begin."""
        start = min(_on_clock(one, span) for one in self.ranks for span in _step(one, self.step) if span.name == STEP)
        found = []
        for span in _step(trace, self.step):
            if kind := _kind(span):
                found.append((kind, _on_clock(trace, span) - start, span.end - span.begin))
        return sorted(found, key=lambda one: list(LOOKS).index(one[0]))

    @property
    def seconds(self) -> float:
        """From the step's begin to its end on the last rank."""
        return max(begin + length for trace in self.ranks for _, begin, length in self.spans(trace))


def step_trace(submission: Submission, cell: Cell) -> Figure | None:
    """A panel a scheme; None where no run was traced."""
    damaged: list[str] = []
    panels = [panel for row in cell.rows if (panel := _panel(row, damaged))][:MOST_SCHEMES]
    if not panels:
        return None
    unit = seconds_unit(panel.seconds for panel in panels)

    def draw(fig: Any) -> None:
        heights = [0.17 * len(panel.ranks) + 0.25 for panel in panels]
        fig.set_size_inches(WIDTH, sum(heights) + 1.0)
        shape = {"height_ratios": heights}
        axes = fig.subplots(len(panels), 1, sharex=True, squeeze=False, gridspec_kw=shape)
        for axis, panel in zip(axes.flat, panels, strict=True):
            _bars(axis, panel, unit.scale)
        axes.flat[-1].set_xlabel(f"time / {unit.name}")
        found = {
            label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        shown = [label for label in LOOKS if label in found]
        fig.legend([found[label] for label in shown], shown, loc="outside upper center", ncols=3)

    which = "; ".join(
        f"{name(panel.scheme)}: step {panel.step} of {panel.run}"
        + (f", {len(panel.ranks)} of {panel.of} ranks" if panel.of > len(panel.ranks) else "")
        for panel in panels
    )
    worst = max(panel.error for panel in panels)
    caption = (
        f"What each rank was about in one step, on one clock (to {worst * 1e6:.0f} us): {which}. The upper bar of a"
        " rank is what it computes, and where it waits; the lower one its messages under way and its codec's work."
    ) + "".join(f" Not drawn: {words}." for words in damaged)
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


def _bars(axis: Any, panel: Panel, scale: float) -> None:
    for y, trace in enumerate(panel.ranks):
        by_kind: dict[str, list[tuple[float, float]]] = {}
        for kind, begin, length in panel.spans(trace):
            by_kind.setdefault(kind, []).append((begin / scale, length / scale))
        for kind, bars in by_kind.items():
            colour, hatch = LOOKS[kind]
            below = kind in ("codec", "messages under way")
            place = (y + 0.18, 0.2) if below else (y - 0.38, 0.52)
            axis.broken_barh(
                bars, place, facecolor=colour, hatch=hatch, edgecolor=INK, linewidth=0.2, label=kind if y == 0 else None
            )
    axis.set_ylim(len(panel.ranks) - 0.5, -0.5)
    axis.set_yticks(range(len(panel.ranks)), [f"rank {trace.rank}" for trace in panel.ranks])
    axis.tick_params(axis="y", length=0)
    axis.set_title(name(panel.scheme))


def _kind(span: Span) -> str | None:
    if span.track == STEPS:
        return "waiting" if span.name in (WAIT, "bubble") else span.name if span.name in LOOKS else None
    return "codec" if span.track == CODEC else "messages under way"


def _step(trace: RankTrace, step: int) -> Sequence[Span]:
    return [span for span in trace.spans if span.step == step]


def _on_clock(trace: RankTrace, span: Span) -> float:
    return span.begin - trace.ahead(span.begin)
