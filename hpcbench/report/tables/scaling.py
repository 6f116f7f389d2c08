"""Scaling tables: speed as a function of machine size.

Points are cells that differ only in machine size. A fixed global batch shows strong scaling, and a fixed batch per
rank shows weak scaling.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hpcbench.collect.submission import Submission
from hpcbench.contract.settings import LoggedSettings
from hpcbench.contract.text import make_printable
from hpcbench.present.document import Column, Field, Table, tabulate
from hpcbench.present.notation import bytes_unit, integer, name, percent, quantity, seconds_unit, significant
from hpcbench.report.columns import SCHEME, make_rate_column
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.measures import is_gpu
from hpcbench.report.quantities import make_fields
from hpcbench.report.quantities.resources import DEVICE, HOST_RANK, PHASES
from hpcbench.report.quantities.speed import STEP_SECONDS
from hpcbench.report.statistics import average_known
from hpcbench.report.tables.by_scheme import count_shares
from hpcbench.report.titles import find_example, write_settings


@dataclass(frozen=True)
class RunSize:
    """Size of a cell's runs, as a point of a scaling series."""

    cell: Cell
    settings: LoggedSettings
    ranks: int
    batch: int
    """Number of sequences per step."""


@dataclass(frozen=True)
class ScalingKind:
    """Kind of scaling, such as strong or weak scaling."""

    name: str
    same: Callable[[RunSize], float]
    """Function that computes the batch property that is constant over all sizes."""
    template: str
    """Description of the property."""


STRONG = ScalingKind("strong", lambda size: size.batch, "global batch {:.0f}")
WEAK = ScalingKind("weak", lambda size: size.batch / size.ranks, "batch {:.4g} per rank")


@dataclass(frozen=True)
class ScalingPoint:
    """A scheme at one size, relative to the smallest size with a known speed."""

    series: str
    """Description of the properties that are constant over the series."""
    size: RunSize
    row: SchemeRow
    smallest: RunSize | None
    speedup: float | None
    """Samples/s relative to the smallest size."""

    @property
    def efficiency(self) -> float | None:
        """Samples/s per rank relative to the smallest size. The ideal value is 1 for both strong and weak scaling."""
        if self.speedup is None or self.smallest is None:
            return None
        return self.speedup * self.smallest.ranks / self.size.ranks


def list_points(cells: list[Cell], kind: ScalingKind) -> list[ScalingPoint]:
    """List the points of each series, by scheme.

    Cells of a series have the same settings except for the global batch and the layout. These cells also have the same
    batch property (`ScalingKind.same`).
    """
    series: dict[tuple[str, float], list[RunSize]] = {}
    modes = has_modes(cells)
    # On tensor grids, which split samples, the micro-batch is part of the size.
    of_size = ("global_batch", "micro_batch") if modes else ("global_batch",)
    for size in _list_sizes(cells):
        same = write_settings(size.settings, ("model", "data", "train", "device"), {"train": of_size})
        series.setdefault((same, kind.same(size)), []).append(size)
    points: list[ScalingPoint] = []
    for (_, value), members in series.items():
        for properties, sizes in _group_by_mode(members) if modes else _group_by_layout(members, cells):
            if len({size.ranks for size in sizes}) > 1:
                text = ", ".join([*properties, kind.template.format(value)])
                points += _make_points(text, sorted(sizes, key=lambda size: size.ranks))
    return points


_OF_MODE = ("tp", "tensor", "depth")
"""Layout fields that may differ within a series of one mode of tensor parallelism."""
_OF_SERIES = ("dp", "cp", "context", "pp", "ep", "chunks", "stages")
"""Other layout fields, which distinguish the series of a mode."""


def has_modes(cells: list[Cell]) -> bool:
    """Return whether any cell uses tensor parallelism on a grid.

    In this case, each series contains a single mode of tensor parallelism.
    """
    return any(size.settings.layout.tensor != "1d" for size in _list_sizes(cells))


def _group_by_mode(sizes: list[RunSize]) -> list[tuple[list[str], list[RunSize]]]:
    """Group the sizes by mode of tensor parallelism. A size without tensor parallelism belongs to every mode."""
    groups: list[tuple[list[str], list[RunSize]]] = []
    layouts = [members for _, members in sorted(_index_by_layout(sizes, *_OF_MODE).items())]
    stated = [members[0].settings.layout for members in layouts]
    distinct = [name for name in _OF_SERIES if len({getattr(layout, name) for layout in stated}) > 1]
    for members, layout in zip(layouts, stated, strict=True):
        alone = [size for size in members if (size.settings.layout.tp or 1) == 1]
        split = [size for size in members if (size.settings.layout.tp or 1) != 1]
        other_settings = [f"{name} {getattr(layout, name)}" for name in distinct]
        for mode in sorted({size.settings.layout.tensor for size in split}):
            of_mode = [size for size in split if size.settings.layout.tensor == mode]
            groups.append(([" ".join([f"tensor {mode}", *other_settings])], [*alone, *of_mode]))
    return groups


def _list_distinct(sizes: list[RunSize], cells: list[Cell]) -> list[str]:
    """List the matrix values that distinguish a series from others."""
    first, *others = [size.cell.values for size in sizes]
    common = {key: value for key, value in first.items() if all(values.get(key) == value for values in others)}
    return [f"{key} {value}" for key, value in common.items() if any(cell.values.get(key) != value for cell in cells)]


def _group_by_layout(sizes: list[RunSize], cells: list[Cell]) -> list[tuple[list[str], list[RunSize]]]:
    """Group the sizes by layout, ignoring data parallelism.

    If no two sizes have the same number of ranks, there is one group.
    """
    apart = len({size.ranks for size in sizes}) == len(sizes)
    groups = [sizes] if apart else _index_by_layout(sizes, "dp").values()
    return [(_list_distinct(members, cells), members) for members in groups]


def _index_by_layout(sizes: list[RunSize], *of_size: str) -> dict[str, list[RunSize]]:
    """Group the sizes by layout, without the fields in `of_size`."""
    layouts: dict[str, list[RunSize]] = {}
    for size in sizes:
        layouts.setdefault(write_settings(size.settings, ["layout"], {"layout": of_size}), []).append(size)
    return layouts


def _make_points(series: str, sizes: list[RunSize]) -> Iterator[ScalingPoint]:
    rows = [{row.scheme: row for row in size.cell.rows} for size in sizes]
    for scheme in dict.fromkeys(scheme for rows_by_scheme in rows for scheme in rows_by_scheme):
        smallest, least = None, None
        for size, rows_by_scheme in zip(sizes, rows, strict=True):
            if scheme not in rows_by_scheme:
                continue
            speed = rows_by_scheme[scheme].samples_per_s
            if smallest is None and speed:
                smallest, least = size, speed
            speedup = speed / least if speed and least else None
            yield ScalingPoint(series, size, rows_by_scheme[scheme], smallest, speedup)


def _list_sizes(cells: list[Cell]) -> Iterator[RunSize]:
    for cell in cells:
        settings = find_example(cell).settings
        ranks, batch = settings.ranks, settings.train.global_batch
        if ranks and batch and ranks > 0 and batch > 0:
            yield RunSize(cell, settings, ranks, batch)


def tabulate_strong_scaling(submission: Submission, cells: list[Cell]) -> Table | None:
    """Make the strong-scaling table, for points with the same global batch."""
    return _make_table(STRONG, "Strong scaling: the same global batch on more ranks", cells)


def tabulate_weak_scaling(submission: Submission, cells: list[Cell]) -> Table | None:
    """Make the weak-scaling table, for points with the same batch per rank."""
    return _make_table(WEAK, "Weak scaling: a global batch that grows with the ranks", cells)


def _make_mode_columns(points: list[ScalingPoint]) -> list[Field[ScalingPoint]]:
    """Make the columns that papers on tensor grids compare: time of both passes per sample, bytes and memory."""

    def passes(point: ScalingPoint) -> float | None:
        parts = [
            quantity.average_or_none(point.row.runs)
            for quantity in PHASES
            if quantity.key in ("forward_s", "backward_s")
        ]
        return None if None in parts else sum(part or 0.0 for part in parts) / point.size.batch

    def sent(point: ScalingPoint) -> float | None:
        each = [
            (sum(channel.message_bytes for channel in run.channels), count_shares(run)) for run in point.row.counted
        ]
        return average_known([nbytes / share if share else None for nbytes, share in each])

    seconds, size = seconds_unit(map(passes, points)), bytes_unit(map(sent, points))
    return [
        (
            Column(
                "pass_seconds",
                f"per sample ({seconds.name})",
                help="Seconds of the forward and backward passes per sample.",
            ),
            lambda point: quantity(passes(point), seconds.show),
        ),
        (
            Column("rank_bytes", f"sent ({size.name})", help="Message bytes per rank and step."),
            lambda point: quantity(sent(point), size.show),
        ),
        *make_fields([DEVICE, HOST_RANK], points, lambda quantity, point: quantity.average(point.row.runs)),
    ]


def _make_table(kind: ScalingKind, title: str, cells: list[Cell]) -> Table | None:
    points = list_points(cells, kind)
    if not points:
        return None
    each = "GPUs" if is_gpu(find_example(points[0].size.cell)) else "ranks"
    is_single = len({point.series for point in points}) == 1
    rates, rate = make_rate_column([point.row for point in points], 0)
    fields: list[Field[ScalingPoint]] = [
        (SCHEME, lambda point: name(point.row.scheme)),
        (
            Column("series", "series", text=True, help="Properties that are the same at all compared sizes."),
            lambda point: name("" if is_single else point.series),
        ),
        (Column("nodes", "nodes"), lambda point: quantity(point.size.settings.shape.nodes, integer)),
        (Column("ranks", each), lambda point: quantity(point.size.ranks, integer)),
        *make_fields([STEP_SECONDS], points, lambda quantity, point: quantity.average(point.row.runs)),
        (rates, lambda point: rate(point.row)),
        (
            Column("speedup", "speed-up", help="Samples/s divided by those at the scheme's smallest size."),
            lambda point: quantity(point.speedup, significant),
        ),
        (
            Column("efficiency", "efficiency", help="Speed-up divided by the growth of the ranks; 100 % is ideal."),
            lambda point: quantity(point.efficiency, percent),
        ),
        *(_make_mode_columns(points) if has_modes(cells) else []),
    ]
    what = f"{title} ({points[0].series})" if is_single else title
    note = "The efficiency of each scheme is relative to its own smallest size."
    return tabulate(f"{kind.name}-scaling", make_printable(what), points, fields, notes=[note])
