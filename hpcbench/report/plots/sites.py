"""Figure of gains on several sites: one line per scheme, one marker per site."""

from collections.abc import Sequence
from typing import Any

from hpcbench.collect.submission import Submission
from hpcbench.contract.text import make_printable
from hpcbench.plot_style import COLOURS, INK, MARKS
from hpcbench.present.document import Figure
from hpcbench.report.compare import Cell
from hpcbench.report.plots.drawing import DECIDED, NamedLines, fit_name, list_axes
from hpcbench.report.tables.sites import index_compared, list_common


def plot_sites(sections: Sequence[tuple[Submission, list[Cell]]]) -> Figure | None:
    """Plot the gains of schemes that were compared on two or more sites, or return None if there is no such scheme."""
    common = list_common(sections)
    if not common:
        return None
    cells = list(dict.fromkeys(cell for cell, _ in common))
    groups = [(cell, [scheme for of_cell, scheme in common if of_cell == cell]) for cell in cells]

    def draw(fig: Any) -> None:
        lines = [
            NamedLines(make_printable(cell, 40), [fit_name(scheme) for scheme in schemes]) for cell, schemes in groups
        ]
        axes = list_axes(fig, lines, room=0.85, line=0.11 + 0.09 * len(sections))
        for axis in axes:
            axis.axvline(1, color=INK, linewidth=1.6, zorder=1)
        for number, (submission, of_site) in enumerate(sections):
            rows = index_compared(of_site)
            colour, mark = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
            offset = 0.5 * ((number + 0.5) / len(sections) - 0.5)
            for axis, (cell, schemes) in zip(axes, groups, strict=True):
                for y, scheme in enumerate(schemes):
                    row = rows.get((cell, scheme))
                    if row is None or row.speed is None:
                        continue
                    if row.speed.low is not None and row.speed.high is not None:
                        axis.plot([row.speed.low, row.speed.high], [y + offset] * 2, color=colour, linewidth=1.2)
                    fill = colour if row.speed.shown in DECIDED else "none"
                    axis.plot(row.speed.estimate, y + offset, mark, color=colour, markerfacecolor=fill, markersize=5)
            label = make_printable(f"{submission.plan.site} ({submission.plan.study})", 30)
            axes[0].plot([], [], mark, color=colour, markersize=5, label=label)
        axes[-1].set_xlabel("speed / speed of the baseline of the site")
        fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)

    caption = (
        "Samples/s of each scheme divided by the baseline's on the same site, with its 95 % interval. Filled "
        "mark: significantly faster or not faster. Open mark: inconclusive."
    )
    return Figure("sites", "Gain by site", caption, draw)
