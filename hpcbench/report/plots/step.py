"""Figure of each scheme's mean step, divided into computation, waiting, encoding and decoding."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from statistics import fmean
from typing import Any

from hpcbench.collect.submission import Submission
from hpcbench.plot_style import COLOURS, HATCHES, INK
from hpcbench.present.document import Figure
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.measures import Measures
from hpcbench.report.plots.drawing import label_right, list_schemes, name
from hpcbench.report.quantities.traffic import COMPUTE, DECODE, ENCODE, EXPOSED, HIDDEN
from hpcbench.report.statistics import is_usable

PARTS = tuple(quantity.label for quantity in (COMPUTE, EXPOSED, ENCODE, DECODE))
"""Labels of the parts of a step, in the order of `Split`."""
LOOKS = tuple(zip((COLOURS[5], COLOURS[1], COLOURS[4], COLOURS[3]), HATCHES, strict=False))


@dataclass(frozen=True)
class Split:
    """Times in seconds per step and rank. The first four times add up to the step time."""

    computation: float
    waiting: float
    """Exposed communication without encoding and decoding."""
    encoding: float
    decoding: float
    hidden: float

    @property
    def step(self) -> float:
        """Total step time."""
        return self.computation + self.waiting + self.encoding + self.decoding


def average_split(row: SchemeRow) -> Split | None:
    """Average over the completed runs of a scheme, or over all runs if none completed.

    The result is None if no log contains the times.
    """
    splits = [run_split for run_split in map(_split_step, row.counted) if run_split is not None]
    return Split(*(fmean(values) for values in zip(*map(astuple, splits), strict=True))) if splits else None


def plot_time_split(submission: Submission, cell: Cell) -> Figure | None:
    """Plot one bar per scheme, or return None if no log contains traffic."""
    rows = [(row, row_split) for row in cell.rows if (row_split := average_split(row)) is not None]
    if not rows:
        return None
    splits = [row_split for _, row_split in rows]
    unit = COMPUTE.choose_unit(row_split.step for row_split in splits)

    def draw(fig: Any) -> None:
        (axes,) = list_schemes(fig, [(cell, [row for row, _ in rows])], room=0.95, line=0.3)
        _draw_bars(axes, splits, unit.scale)
        label_right(axes, [unit.show(row_split.step) for row_split in splits], f"step / {unit.name}")
        axes.set_xlabel(f"mean time of a step and rank / {unit.name}")
        axes.set_xlim(0, 1.02 * max(max(row_split.step, row_split.hidden) for row_split in splits) / unit.scale)
        handles, labels = axes.get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside upper center", ncols=3)

    caption = (
        "Means over ranks, counted steps and runs. The bars add up to the step. The thin bar below each bar is "
        "communication during computation, which adds no time. If a call was partly hidden, equal parts of its "
        "encoding, decoding and transfer are assumed to be hidden."
    )
    partial = ", ".join(name(row.scheme) for row, _ in rows if not row.completed)
    if partial:
        caption += f" From runs that did not complete: {partial}."
    unknown = ", ".join(name(row.scheme) for row in cell.rows if not any(row is shown for shown, _ in rows))
    if unknown:
        caption += f" Left out, because no log contains the parts of a step: {unknown}."
    return Figure("time-split", "Where the time of a step goes", caption, draw)


def _split_step(run: Measures) -> Split | None:
    time = run.time
    if time is None:
        return None
    encoding = decoding = 0.0
    for channel in run.channels:
        busy = channel.encode_s + channel.decode_s + channel.transfer_s
        if busy > 0:
            encoding += channel.exposed_s * channel.encode_s / busy
            decoding += channel.exposed_s * channel.decode_s / busy
    result = Split(time.compute, time.exposed - encoding - decoding, encoding, decoding, time.hidden)
    # In damaged or foreign logs, times may be negative or may not add up to the step time.
    return result if all(is_usable(part) and part >= 0 for part in astuple(result)) else None


def _draw_bars(axes: Any, splits: Sequence[Split], scale: float) -> None:
    ends = [0.0] * len(splits)
    for k, (part, (colour, hatch)) in enumerate(zip(PARTS, LOOKS, strict=True)):
        lengths = [astuple(row_split)[k] / scale for row_split in splits]
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
        [row_split.hidden / scale for row_split in splits],
        height=0.2,
        color="none",
        hatch=HATCHES[4],
        edgecolor=INK,
        linewidth=0.6,
        label=HIDDEN.label,
    )
