"""Figures of training that does not wait: time to a loss beside the reference's, and how old the weights were."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hpcbench.collect.submission import Submission
from hpcbench.plot_labels import fitted
from hpcbench.plot_style import COLOURS, HATCHES, INK, SMALL, WIDTH, grid
from hpcbench.present.document import Figure
from hpcbench.report.compare import Cell
from hpcbench.report.plots.drawing import grid_of, name
from hpcbench.report.synchrony import Arm, arms

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LINE = 0.19
"""Height of a line in inches."""
_NAMES = 120.0
"""Largest width of a name in points."""


def time_to_loss(submission: Submission, cells: list[Cell]) -> Figure | None:
    """Return a line for each way and scheme that has a reference; None if no time is known."""
    found = [arm for arm in arms(cells, submission.plan.criteria.loss_margin) if arm.against and arm.pairs]
    if not found:
        return None

    def draw(fig: Any) -> None:
        fig.set_size_inches(WIDTH, 0.6 + _LINE * len(found))
        axes = fig.subplots()
        axes.axvline(1, color=INK, linewidth=1.6, zorder=1)
        axes.set_xscale("log")
        for y, arm in enumerate(found):
            _time(axes, y, arm)
        low, high = _limits(found)
        axes.set_xlim(low, high)
        ticks = [tick for tick in (0.1, 0.2, 0.5, 0.7, 1, 1.5, 2, 5, 10) if low < tick < high]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_ylim(len(found) - 0.5, -0.5)
        axes.set_yticks(range(len(found)), [fitted(_named(arm), _NAMES) for arm in found])
        axes.set_xlabel("time / time of the reference")

    caption = (
        "Seconds in steps until the last loss of the reference, in which all wait, with the margin on top; mean of the"
        " pairs of equal seed with its 95 % interval, none of one pair. An open mark: not every pair got there. Without"
        " a mark no run did."
    )
    return Figure("time-to-loss", "Time to a loss relative to the way in which all wait", caption, draw)


def _limits(found: Sequence[Arm]) -> tuple[float, float]:
    """Limits of the x axis. An interval that is so wide that it says nothing is cut."""
    ends = [0.9, 1.1]
    for arm in found:
        if one := arm.time_ratio:
            bounds = [end for end in (one.estimate, one.low, one.high) if end is not None and math.isfinite(end)]
            ends += [min(max(end, one.estimate / 4), one.estimate * 4) for end in bounds]
    return min(ends) / 1.08, max(ends) * 1.08


def _time(axes: "Axes", y: int, arm: Arm) -> None:
    ratio = arm.time_ratio
    if ratio is None:
        axes.annotate(arm.state, (1, y), (5, 0), textcoords="offset points", va="center", fontsize=SMALL, color=INK)
        return
    if ratio.low is not None and ratio.high is not None:
        axes.plot([ratio.low, ratio.high], [y, y], color=COLOURS[0], linewidth=1.6, solid_capstyle="butt")
    face = COLOURS[0] if arm.state == "reached" else "white"
    axes.plot(ratio.estimate, y, marker="o", markersize=5.5, color=COLOURS[0], markerfacecolor=face, zorder=3)


def _named(arm: Arm) -> str:
    return f"{name(arm.way.words)}, {name(arm.scheme)}"


def staleness(submission: Submission, cells: list[Cell]) -> Figure | None:
    """Return a panel for each way whose weights may be old, with bars for each scheme; None if there is none."""
    panels: dict[tuple[str, str], list[Arm]] = {}
    for arm in arms(cells, submission.plan.criteria.loss_margin):
        if arm.ages and arm.ages.most > 0:
            panels.setdefault((arm.way.words, arm.group), []).append(arm)
    if not panels:
        return None
    schemes = list(dict.fromkeys(arm.scheme for own in panels.values() for arm in own))
    oldest = max(age for own in panels.values() for arm in own for age in arm.parts)

    def draw(fig: Any) -> None:
        axes = grid_of(fig, [name(words) for words, _ in panels], height=1.0)
        width = 0.8 / len(schemes)
        for axis, own in zip(axes, panels.values(), strict=True):
            for arm in own:
                place = schemes.index(arm.scheme)
                left = [age + (place - (len(schemes) - 1) / 2) * width for age in arm.parts]
                colour, hatch = COLOURS[place % len(COLOURS)], HATCHES[place % len(HATCHES)]
                axis.bar(left, [100 * part for part in arm.parts.values()], width, color=colour, hatch=hatch)
            grid(axis)
        axes[0].set_xlim(-0.6, oldest + 0.6)
        axes[0].set_xticks(range(0, oldest + 1, max(1, oldest // 8)))
        fig.supxlabel("staleness / updates", fontsize="medium")
        fig.supylabel("part of the gradients / %", fontsize="medium")
        handles = [
            axes[0].bar([0], [0], color=COLOURS[k % len(COLOURS)], hatch=HATCHES[k % len(HATCHES)])
            for k in range(len(schemes))
        ]
        fig.legend(handles, list(map(name, schemes)), loc="outside upper center", ncols=2)

    caption = (
        "Gradients of all completed runs, by the number of updates between the weights that they were computed with and"
        " those that they changed."
    )
    return Figure("staleness", "How old weights were", caption, draw)
