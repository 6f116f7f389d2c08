"""How the speed of each scheme grows with the machine: strong and weak scaling, by the settings of the runs."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hpcbench.collect.lines import integer, member, printable
from hpcbench.collect.submission import RunResult, Submission
from hpcbench.report.compare import Cell, Row
from hpcbench.report.document import Column, Table
from hpcbench.report.measures import is_gpu
from hpcbench.report.notation import name, percent, quantity, seconds_unit, significant
from hpcbench.report.tables.comparison import SCHEME, rate
from hpcbench.report.tables.over_runs import geometric
from hpcbench.report.tables.tabulate import Field, tabulate
from hpcbench.report.titles import example


@dataclass(frozen=True)
class Size:
    """A cell as a point of a series."""

    cell: Cell
    ranks: int
    nodes: int | None
    batch: int
    """Sequences a step."""


@dataclass(frozen=True)
class Point:
    """One scheme at one size, beside the smallest size at which that scheme has a speed."""

    series: str
    """What is the same at all its sizes."""
    size: Size
    row: Row
    smallest: Size | None
    speedup: float | None
    """Samples/s over those at the smallest size."""

    @property
    def efficiency(self) -> float | None:
        """Samples/s a rank over those at the smallest size: of strong and weak scaling alike, 1 is ideal."""
        if self.speedup is None or self.smallest is None:
            return None
        return self.speedup * self.smallest.ranks / self.size.ranks


def strong_scaling(submission: Submission, cells: list[Cell]) -> Table | None:
    """The same global batch on more and more ranks."""
    points = scaling(cells, lambda size: size.batch, "global batch {}".format)
    return _table("strong-scaling", "Strong scaling: the same global batch on more ranks", points)


def weak_scaling(submission: Submission, cells: list[Cell]) -> Table | None:
    """A global batch that grows with the ranks."""
    points = scaling(cells, lambda size: size.batch / size.ranks, lambda batch: f"{batch:.4g} a rank")
    return _table("weak-scaling", "Weak scaling: a global batch that grows with the ranks", points)


def scaling(cells: list[Cell], same: Callable[[Size], float], words: Callable[[float], str]) -> list[Point]:
    """The points of each series, scheme by scheme.

    Parameters
    ----------
    cells
        Of a submission.
    same
        What the sizes of a series have in common, besides all settings but the number of ranks, the size of the data
        parallelism and the global batch.
    words
        How that is said.
    """
    series: dict[tuple[str, float], list[Size]] = {}
    for size in _sizes(cells):
        series.setdefault((_fixed(example(size.cell)), same(size)), []).append(size)
    points: list[Point] = []
    for (_, value), sizes in series.items():
        if len({size.ranks for size in sizes}) > 1:
            points += _points(words(value), sorted(sizes, key=lambda size: size.ranks))
    return points


def _points(series: str, sizes: list[Size]) -> Iterator[Point]:
    rows = [{row.scheme: row for row in size.cell.rows} for size in sizes]
    for scheme in dict.fromkeys(scheme for found in rows for scheme in found):
        smallest, least = None, None
        for size, found in zip(sizes, rows, strict=True):
            if scheme not in found:
                continue
            speed = found[scheme].samples_per_s
            if smallest is None and speed:
                smallest, least = size, speed
            speedup = speed / least if speed and least else None
            yield Point(series, size, found[scheme], smallest, speedup)


def _sizes(cells: list[Cell]) -> Iterator[Size]:
    for cell in cells:
        settings = example(cell).settings
        ranks, batch = integer(settings, "ranks"), integer(settings, "train", "global_batch")
        if ranks and batch and ranks > 0 and batch > 0:
            yield Size(cell, ranks, integer(settings, "shape", "nodes"), batch)


def _fixed(run: RunResult) -> str:
    """What sizes of one series have in common: the work, and how it is split but for the data parallelism."""
    train, layout = member(run.settings, "train"), member(run.settings, "layout")
    same = {
        "model": member(run.settings, "model"),
        "data": member(run.settings, "data"),
        "train": {key: value for key, value in train.items() if key != "global_batch"} if train else None,
        "layout": {key: value for key, value in layout.items() if key != "dp"} if isinstance(layout, dict) else layout,
        "device": member(run.settings, "device"),
    }
    return json.dumps(same, sort_keys=True, default=str)


def _table(key: str, title: str, points: list[Point]) -> Table | None:
    if not points:
        return None
    each = "GPUs" if is_gpu(example(points[0].size.cell)) else "ranks"
    unit = seconds_unit(_step(point) for point in points)
    one = len({point.series for point in points}) == 1
    fields: list[Field[Point]] = [
        (SCHEME, lambda point: name(point.row.scheme)),
        (
            Column("series", "batch", words=True, help="What is the same at all sizes that are compared."),
            lambda point: name("" if one else point.series),
        ),
        (
            Column("nodes", "nodes"),
            lambda point: quantity(point.size.nodes, lambda nodes: "-" if nodes is None else f"{nodes:.0f}"),
        ),
        (Column("ranks", each), lambda point: quantity(point.size.ranks, lambda ranks: f"{ranks:.0f}")),
        (
            Column("step_seconds", f"step time ({unit.name})", help="Median step time, mean of the runs."),
            lambda point: quantity(_step(point), unit.show),
        ),
        (Column("samples_per_s", "samples/s", help="Global batch over that time."), lambda point: rate(point.row)),
        (
            Column("speedup", "speed-up", help="Samples/s over those of the scheme's own smallest size."),
            lambda point: quantity(point.speedup, significant),
        ),
        (
            Column("efficiency", "efficiency", help="Speed-up over the growth of the ranks; 100 % is ideal."),
            lambda point: quantity(point.efficiency, percent),
        ),
    ]
    what = f"{title} ({points[0].series})" if one else title
    note = "Efficiency is of each scheme against its own smallest size."
    return tabulate(key, printable(what), points, fields, notes=[note])


def _step(point: Point) -> float | None:
    return geometric(point.row, lambda run: run.step_seconds)
