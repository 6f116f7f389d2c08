"""The mean step of each scheme, by what its time goes to."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from statistics import fmean
from typing import Any

from hpcbench.collect.submission import Submission
from hpcbench.plot_style import COLOURS, HATCHES, INK
from hpcbench.present.document import Figure
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
    """Return a bar for each scheme; None if no log gives its traffic."""
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
