"""Figures of asynchronous training: time to a loss relative to the reference, and staleness of the weights."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hpcbench.collect.submission import Submission
from hpcbench.plot_labels import fitted
from hpcbench.plot_style import COLOURS, HATCHES, INK, SMALL, WIDTH, grid
from hpcbench.present.document import Figure
from hpcbench.report.compare import Cell
from hpcbench.report.plots.drawing import list_ends, make_panels, name
from hpcbench.report.synchrony import Arm, list_arms

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LINE = 0.19
"""Height of a line in inches."""
_NAMES = 120.0
"""Maximum width of a name in points."""


def plot_time_to_loss(submission: Submission, cells: list[Cell]) -> Figure | None:
    """Plot one line per sync mode and scheme with a reference, or return None if no time is known."""
    compared = [arm for arm in list_arms(cells, submission.plan.criteria.loss_margin) if arm.against and arm.pairs]
    if not compared:
        return None

    def draw(fig: Any) -> None:
        fig.set_size_inches(WIDTH, 0.6 + _LINE * len(compared))
        axes = fig.subplots()
        axes.axvline(1, color=INK, linewidth=1.6, zorder=1)
        axes.set_xscale("log")
        for y, arm in enumerate(compared):
            _draw_time(axes, y, arm)
        low, high = _compute_limits(compared)
        axes.set_xlim(low, high)
        ticks = [tick for tick in (0.1, 0.2, 0.5, 0.7, 1, 1.5, 2, 5, 10) if low < tick < high]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_ylim(len(compared) - 0.5, -0.5)
        names = [f"{name(arm.way.name)}, {name(arm.scheme)}" for arm in compared]
        axes.set_yticks(range(len(compared)), [fitted(text, _NAMES) for text in names])
        axes.set_xlabel("time / time of the reference")

    caption = (
        "Time in steps until a run reaches the last loss of the synchronous reference plus the margin, divided "
        "by that of the reference: mean of the pairs with the same seed and its 95 % interval, absent for a "
        "single pair. Open mark: not every pair reached it. No mark: no run reached it."
    )
    return Figure("time-to-loss", "Time to a loss relative to the synchronous reference", caption, draw)


def _compute_limits(compared: Sequence[Arm]) -> tuple[float, float]:
    """Compute the limits of the x axis."""
    ends = [0.9, 1.1, *(end for arm in compared for end in list_ends(arm.time_ratio))]
    return min(ends) / 1.08, max(ends) * 1.08


def _draw_time(axes: "Axes", y: int, arm: Arm) -> None:
    ratio = arm.time_ratio
    if ratio is None:
        axes.annotate(arm.state, (1, y), (5, 0), textcoords="offset points", va="center", fontsize=SMALL, color=INK)
        return
    if ratio.low is not None and ratio.high is not None:
        axes.plot([ratio.low, ratio.high], [y, y], color=COLOURS[0], linewidth=1.6, solid_capstyle="butt")
    face = COLOURS[0] if arm.state == "reached" else "white"
    axes.plot(ratio.estimate, y, marker="o", markersize=5.5, color=COLOURS[0], markerfacecolor=face, zorder=3)


def plot_staleness(submission: Submission, cells: list[Cell]) -> Figure | None:
    """Plot one panel of bars per sync mode with stale weights, or return None if there is no such mode."""
    panels: dict[tuple[str, str], list[Arm]] = {}
    for arm in list_arms(cells, submission.plan.criteria.loss_margin):
        if arm.ages and arm.ages.most > 0:
            panels.setdefault((arm.way.name, arm.group), []).append(arm)
    if not panels:
        return None
    schemes = list(dict.fromkeys(arm.scheme for members in panels.values() for arm in members))
    oldest = max(age for members in panels.values() for arm in members for age in arm.parts)

    def draw(fig: Any) -> None:
        axes = make_panels(fig, [name(way) for way, _ in panels], height=1.0)
        width = 0.8 / len(schemes)
        for axis, members in zip(axes, panels.values(), strict=True):
            for arm in members:
                place = schemes.index(arm.scheme)
                left = [age + (place - (len(schemes) - 1) / 2) * width for age in arm.parts]
                colour, hatch = COLOURS[place % len(COLOURS)], HATCHES[place % len(HATCHES)]
                axis.bar(left, [100 * part for part in arm.parts.values()], width, color=colour, hatch=hatch)
            grid(axis)
        axes[0].set_xlim(-0.6, oldest + 0.6)
        axes[0].set_xticks(range(0, oldest + 1, max(1, oldest // 8)))
        fig.supxlabel("staleness / updates", fontsize="medium")
        fig.supylabel("fraction of the gradients / %", fontsize="medium")
        handles = [
            axes[0].bar([0], [0], color=COLOURS[k % len(COLOURS)], hatch=HATCHES[k % len(HATCHES)])
            for k in range(len(schemes))
        ]
        fig.legend(handles, list(map(name, schemes)), loc="outside upper center", ncols=2)

    caption = (
        "Gradients of all completed runs, by the number of updates between the weights that they were computed "
        "with and the weights that they changed."
    )
    return Figure("staleness", "Staleness of the weights", caption, draw)
