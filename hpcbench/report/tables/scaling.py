"""How speed grows with the machine: sizes of one study, and their table.

Sizes are cells that differ in nothing but the size of the machine. Whether they show strong or weak scaling is decided
by the settings: the same global batch, or the same batch a rank.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hpcbench.collect.submission import RunResult, Submission
from hpcbench.contract.text import printable
from hpcbench.contract.values import integer, member
from hpcbench.report.compare import Cell, Row
from hpcbench.report.document import Column, Field, Table, tabulate
from hpcbench.report.measures import is_gpu
from hpcbench.report.notation import name, percent, quantity, significant, whole
from hpcbench.report.quantities.quantity import fields
from hpcbench.report.quantities.speed_quantities import STEP_SECONDS
from hpcbench.report.tables.by_scheme import SCHEME, samples
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
class Kind:
    """A way for the work to grow, or not, with the machine."""

    name: str
    same: Callable[[Size], float]
    """What of the batch is the same at all sizes."""
    words: str
    """How that is said."""


STRONG = Kind("strong", lambda size: size.batch, "global batch {:.0f}")
WEAK = Kind("weak", lambda size: size.batch / size.ranks, "batch {:.4g} a rank")


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


def scaling(cells: list[Cell], kind: Kind) -> list[Point]:
    """The points of each series, scheme by scheme.

    A series is of cells that have all settings in common but the global batch and the layout, and of the batch what
    the kind says.
    """
    series: dict[tuple[str, float], list[Size]] = {}
    for size in _sizes(cells):
        series.setdefault((_fixed(example(size.cell)), kind.same(size)), []).append(size)
    points: list[Point] = []
    for (_, value), found in series.items():
        for sizes in _apart(found):
            if len({size.ranks for size in sizes}) > 1:
                words = ", ".join([*_own(sizes, cells), kind.words.format(value)])
                points += _points(words, sorted(sizes, key=lambda size: size.ranks))
    return points


def _own(sizes: list[Size], cells: list[Cell]) -> list[str]:
    """The values of the matrix that tell a series from others."""
    first, *rest = [size.cell.values for size in sizes]
    own = {key: value for key, value in first.items() if all(values.get(key) == value for values in rest)}
    return [f"{key} {value}" for key, value in own.items() if any(cell.values.get(key) != value for cell in cells)]


def _apart(sizes: list[Size]) -> list[list[Size]]:
    """Sizes by their layout, the data parallelism aside, unless each has its own number of ranks anyway."""
    if len({size.ranks for size in sizes}) == len(sizes):
        return [sizes]
    groups: dict[str, list[Size]] = {}
    for size in sizes:
        groups.setdefault(_layout(example(size.cell)), []).append(size)
    return list(groups.values())


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
    """The work, and how it is done but for its size."""
    same = {key: member(run.settings, key) for key in ("model", "data", "train", "device")}
    if isinstance(same["train"], dict):
        same["train"] = {key: value for key, value in same["train"].items() if key != "global_batch"}
    return json.dumps(same, sort_keys=True)


def _layout(run: RunResult) -> str:
    layout = member(run.settings, "layout")
    if isinstance(layout, dict):
        layout = {key: value for key, value in layout.items() if key != "dp"}
    return json.dumps(layout, sort_keys=True)


def strong_scaling(submission: Submission, cells: list[Cell]) -> Table | None:
    """The same global batch on more and more ranks."""
    return _table(STRONG, "Strong scaling: the same global batch on more ranks", scaling(cells, STRONG))


def weak_scaling(submission: Submission, cells: list[Cell]) -> Table | None:
    """A global batch that grows with the ranks."""
    return _table(WEAK, "Weak scaling: a global batch that grows with the ranks", scaling(cells, WEAK))


def _table(kind: Kind, title: str, points: list[Point]) -> Table | None:
    if not points:
        return None
    each = "GPUs" if is_gpu(example(points[0].size.cell)) else "ranks"
    one = len({point.series for point in points}) == 1
    rates, rate = samples([point.row for point in points])
    made: list[Field[Point]] = [
        (SCHEME, lambda point: name(point.row.scheme)),
        (
            Column("series", "series", words=True, help="What is the same at all sizes that are compared."),
            lambda point: name("" if one else point.series),
        ),
        (Column("nodes", "nodes"), lambda point: quantity(point.size.nodes, whole)),
        (Column("ranks", each), lambda point: quantity(point.size.ranks, whole)),
        *fields([STEP_SECONDS], points, lambda one, point: one.over(point.row.runs)),
        (rates, lambda point: rate(point.row)),
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
    return tabulate(f"{kind.name}-scaling", printable(what), points, made, notes=[note])
