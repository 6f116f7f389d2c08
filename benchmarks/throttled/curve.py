"""Speed against the number of tokens per replica and step.

More tokens need more computation, but not more gradients.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from hpcbench.plot_style import COLOURS, INK, MARKS, grid, save, styled
from hpcbench.report.findings import SpeedFinding
from throttled.compare import Column, beside_in_all
from throttled.words import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BATCH = "train.global_batch"
"""Quantity that varies along the curve."""


def fits(points: Sequence[Column]) -> bool:
    """Return whether the runs form a curve."""
    return any(BATCH in column.cell for column in points)


def tokens(column: Column, document: dict[str, Any]) -> int:
    """Return the number of tokens that a replica computes in a step."""
    run = document["run"]
    return int(column.cell[BATCH] * run["train"]["seq_len"] // run["layout"]["dp"])


def lines(points: Sequence[Column]) -> dict[str, list[Column]]:
    """Group the columns into one curve for each rate, sorted by batch."""
    rates = dict.fromkeys(column.rate for column in points)
    return {
        rate or "no limit": sorted((c for c in points if c.rate == rate), key=lambda c: int(c.cell[BATCH]))
        for rate in rates
    }


LEGEND = (
    "Ratios of samples/s over pairs of runs of one repeat, with Student's 95 % interval, each for itself.",
    "The rate is fixed; what a step sends of gradients and weights is the same for all sizes, what it computes is not.",
)


def tables(points: Sequence[Column], document: dict[str, Any]) -> Iterable[Any]:
    """Yield, for each rate, the speeds relative to the baseline and to the cast, with their significance."""
    for rate, points_of_rate in lines(points).items():
        sizes = [tokens(column, document) for column in points_of_rate]
        waits = [_waits(column, document["run"]["ranks"]) for column in points_of_rate]
        yield (
            f"links of {rate}: the baseline's ranks wait for communication "
            f"{', '.join(f'{share:.0%}' for share in waits)} of the time at {', '.join(map(str, sizes))} tokens "
            "a replica and step"
        )
        for control in ("baseline", "naive-bf16"):
            if control not in points_of_rate[0].runs:
                continue
            found_at = beside_in_all(points_of_rate, control)
            yield ""
            yield f"speed over that of {control} (95 % CI)"
            yield _table(sizes, found_at)
            yield ""
            pairs = min(finding.pairs for at in found_at for finding in at.values())
            yield f"Shown (5 %, Holm over {len(found_at[0])} schemes x {len(sizes)} sizes, {pairs} pairs each):"
            yield from (_sentence(scheme, control, sizes, found_at) for scheme in found_at[0])
        yield ""


def draw(points: Sequence[Column], document: dict[str, Any], path: Path) -> None:
    """Write the plot, a ``.png`` or ``.svg`` file with one panel per rate."""
    from matplotlib.figure import Figure

    curves = lines(points)
    with styled():
        figure = Figure(figsize=(max(3.4, 3.0 * len(curves)), 2.8), layout="constrained")
        panels = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
        for axes, (rate, points_of_rate) in zip(panels, curves.items(), strict=True):
            _paint(axes, points_of_rate, [tokens(column, document) for column in points_of_rate])
            axes.set_title(f"links of {rate}, {document['run']['train']['precision']}")
        panels[0].set_ylabel("speed over the baseline's, 95 % CI")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        save(figure, path, "--out")


def _paint(axes: "Axes", points_of_rate: Sequence[Column], sizes: Sequence[int]) -> None:
    points = beside_in_all(points_of_rate, "baseline")
    for k, scheme in enumerate(points[0]):
        at = [findings[scheme] for findings in points]
        middle = [finding.estimate for finding in at]
        ends = [(f.estimate if f.low is None else f.low, f.estimate if f.high is None else f.high) for f in at]
        down = [value - low for value, (low, _) in zip(middle, ends, strict=True)]
        up = [high - value for value, (_, high) in zip(middle, ends, strict=True)]
        spread = 1 + 0.02 * (k - (len(points[0]) - 1) / 2)  # Offset, so that intervals of the same size do not overlap.
        axes.errorbar(
            [size * spread for size in sizes],
            middle,
            yerr=[down, up],
            label=scheme,
            color=COLOURS[k % len(COLOURS)],
            marker=MARKS[k % len(MARKS)],
            capsize=2,
        )
    axes.axhline(1, color=INK, linewidth=1)
    axes.set_xscale("log", base=2)
    grid(axes)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xlabel("tokens a replica and step")


def _table(sizes: Sequence[int], points: Sequence[dict[str, SpeedFinding]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("tokens a replica and step")
    for size in sizes:
        table.add_column(str(size), justify="right")
    for scheme in points[0]:
        table.add_row(scheme, *(shown(at[scheme], 2) for at in points))
    return table


def _sentence(scheme: str, control: str, sizes: Sequence[int], points: Sequence[dict[str, SpeedFinding]]) -> str:
    """Describe the smallest size at which the scheme is no longer significantly faster."""
    faster = [size for size, at in zip(sizes, points, strict=True) if at[scheme].shown == "faster"]
    slower = [size for size, at in zip(sizes, points, strict=True) if at[scheme].slower]
    if not faster:
        sentence = f"not significantly faster than {control} at any size"
    elif faster[-1] == sizes[-1]:
        sentence = f"significantly faster than {control} up to the largest size, {sizes[-1]} tokens"
    else:
        beyond = sizes[sizes.index(faster[-1]) + 1]
        sentence = f"significantly faster than {control} up to {faster[-1]} tokens, and not from {beyond} on"
    missing = [size for size in sizes if faster and size < faster[-1] and size not in faster]
    if missing:
        sentence += f" (nor at {', '.join(map(str, missing))})"
    if slower:
        sentence += f"; significantly slower at {', '.join(map(str, slower))}"
    return f"  {scheme}: {sentence}."


def _waits(column: Column, ranks: int) -> float:
    """Return the fraction of the baseline's time that a rank waits for communication."""

    def share(run: dict[str, Any]) -> float:
        return float(sum(d["exposed_s"] for d in run["traffic"].values()) / ranks / run["seconds"])

    return column.mean("baseline", share)
