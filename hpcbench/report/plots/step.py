"""A step of each scheme: what its time goes to on the mean, and one step rank by rank, as its trace has it."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from statistics import fmean
from typing import Any

from hpcbench.collect.submission import Submission
from hpcbench.collect.traces import traces_of
from hpcbench.contract.trace import CODEC, STEP, STEPS, WAIT, RankTrace, Span
from hpcbench.errors import UserError
from hpcbench.plot_style import COLOURS, HATCHES, INK, WIDTH
from hpcbench.present.document import Figure
from hpcbench.present.notation import seconds_unit
from hpcbench.report.compare import Cell, Row
from hpcbench.report.measures import Measures
from hpcbench.report.plots.drawing import at_the_right, lists, name
from hpcbench.report.quantities.traffic import COMPUTE, DECODE, ENCODE, EXPOSED, HIDDEN
from hpcbench.report.statistics import usable

PARTS = tuple(one.label for one in (COMPUTE, EXPOSED, ENCODE, DECODE))
"""Parts of a step, in the order of `Split`."""
LOOKS = tuple(zip((COLOURS[5], COLOURS[1], COLOURS[4], COLOURS[3]), HATCHES, strict=False))


@dataclass(frozen=True)
class Split:
    """Seconds per step and rank. The first four add up to the step."""

    computation: float
    waiting: float
    """Exposed communication without encoding and decoding."""
    encoding: float
    decoding: float
    hidden: float

    @property
    def step(self) -> float:
        """The whole step."""
        return self.computation + self.waiting + self.encoding + self.decoding


def split(row: Row) -> Split | None:
    """Means over the completed runs of a scheme, else over all its runs; None if no log gives them."""
    known = [own for own in map(_split, row.counted) if own is not None]
    return Split(*(fmean(values) for values in zip(*map(astuple, known), strict=True))) if known else None


def time_split(submission: Submission, cell: Cell) -> Figure | None:
    """A bar for each scheme; None if no log gives its traffic."""
    found = [(row, own) for row in cell.rows if (own := split(row)) is not None]
    if not found:
        return None
    splits = [own for _, own in found]
    unit = COMPUTE.unit_of(own.step for own in splits)

    def draw(fig: Any) -> None:
        (axes,) = lists(fig, [(cell, [row for row, _ in found])], room=0.95, line=0.3)
        _bars(axes, splits, unit.scale)
        at_the_right(axes, [unit.show(own.step) for own in splits], "step")
        axes.set_xlabel(f"mean time of a step and rank / {unit.name}")
        axes.set_xlim(0, 1.02 * max(max(own.step, own.hidden) for own in splits) / unit.scale)
        handles, labels = axes.get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside upper center", ncols=3)

    caption = (
        "Means over ranks, counted steps and runs. The bars add up to the step; the thin bar below each is"
        " communication that went on during computation, and adds nothing. Of a call that was partly hidden, encoding,"
        " decoding and transfer are taken to be hidden in equal parts."
    )
    partial = ", ".join(name(row.scheme) for row, _ in found if not row.completed)
    if partial:
        caption += f" Of runs that did not complete: {partial}."
    unknown = ", ".join(name(row.scheme) for row in cell.rows if not any(row is shown for shown, _ in found))
    if unknown:
        caption += f" Not shown, because no log divides a step of theirs: {unknown}."
    return Figure("time-split", "Where the time of a step goes", caption, draw)


def _split(run: Measures) -> Split | None:
    time = run.time
    if time is None:
        return None
    encoding = decoding = 0.0
    for channel in run.channels:
        busy = channel.encode_s + channel.decode_s + channel.transfer_s
        if busy > 0:
            encoding += channel.exposed_s * channel.encode_s / busy
            decoding += channel.exposed_s * channel.decode_s / busy
    own = Split(time.compute, time.exposed - encoding - decoding, encoding, decoding, time.hidden)
    # What a damaged or foreign log says may be no division of a step at all.
    return own if all(usable(part) and part >= 0 for part in astuple(own)) else None


def _bars(axes: Any, splits: Sequence[Split], scale: float) -> None:
    ends = [0.0] * len(splits)
    for k, (part, (colour, hatch)) in enumerate(zip(PARTS, LOOKS, strict=True)):
        lengths = [astuple(own)[k] / scale for own in splits]
        axes.barh(
            [y - 0.1 for y in range(len(splits))],
            lengths,
            height=0.5,
            left=ends,
            color=colour,
            hatch=hatch,
            edgecolor=INK,
            linewidth=0.6,
            label=part,
        )
        ends = [end + length for end, length in zip(ends, lengths, strict=True)]
    axes.barh(
        [y + 0.27 for y in range(len(splits))],
        [own.hidden / scale for own in splits],
        height=0.2,
        color="none",
        hatch=HATCHES[4],
        edgecolor=INK,
        linewidth=0.6,
        label=HIDDEN.label,
    )


MOST_SCHEMES, MOST_RANKS = 4, 8
"""That are drawn: more would be too small to be read."""
SPANS = {
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
        return sorted(found, key=lambda one: list(SPANS).index(one[0]))

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
            _rows(axis, panel, unit.scale)
        axes.flat[-1].set_xlabel(f"time / {unit.name}")
        found = {
            label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        shown = [label for label in SPANS if label in found]
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


def _rows(axis: Any, panel: Panel, scale: float) -> None:
    for y, trace in enumerate(panel.ranks):
        by_kind: dict[str, list[tuple[float, float]]] = {}
        for kind, begin, length in panel.spans(trace):
            by_kind.setdefault(kind, []).append((begin / scale, length / scale))
        for kind, bars in by_kind.items():
            colour, hatch = SPANS[kind]
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
        return "waiting" if span.name in (WAIT, "bubble") else span.name if span.name in SPANS else None
    return "codec" if span.track == CODEC else "messages under way"


def _step(trace: RankTrace, step: int) -> Sequence[Span]:
    return [span for span in trace.spans if span.step == step]


def _on_clock(trace: RankTrace, span: Span) -> float:
    return span.begin - trace.ahead(span.begin)
