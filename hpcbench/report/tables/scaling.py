"""The growth of speed with the machine: the sizes of a study, and their table.

Sizes are cells that differ only in the size of the machine. The settings decide whether they show strong scaling (the
same global batch) or weak scaling (the same batch per rank).
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hpcbench.collect.submission import RunResult, Submission
from hpcbench.contract.text import make_printable
from hpcbench.present.document import Column, Field, Table, tabulate
from hpcbench.present.notation import bytes_unit, name, percent, quantity, seconds_unit, significant, whole
from hpcbench.report.columns import SCHEME, samples
from hpcbench.report.compare import Cell, Row
from hpcbench.report.measures import is_gpu
from hpcbench.report.quantities import make_fields
from hpcbench.report.quantities.resources import DEVICE, HOST_RANK, PHASES
from hpcbench.report.quantities.speed import STEP_SECONDS
from hpcbench.report.statistics import mean_of_known
from hpcbench.report.tables.by_scheme import shares
from hpcbench.report.titles import example


@dataclass(frozen=True)
class RunSize:
    """A cell as one point of a series."""

    cell: Cell
    ranks: int
    nodes: int | None
    batch: int
    """Number of sequences in a step."""


@dataclass(frozen=True)
class Kind:
    """A kind of scaling: how the work grows with the machine."""

    name: str
    same: Callable[[RunSize], float]
    """Gives the property of the batch that is the same at all sizes."""
    words: str
    """The property in words."""


STRONG = Kind("strong", lambda size: size.batch, "global batch {:.0f}")
WEAK = Kind("weak", lambda size: size.batch / size.ranks, "batch {:.4g} a rank")


@dataclass(frozen=True)
class ScalingPoint:
    """One scheme at one size, relative to the smallest size at which the scheme has a speed."""

    series: str
    """Text for the properties that are the same at all its sizes."""
    size: RunSize
    row: Row
    smallest: RunSize | None
    speedup: float | None
    """Samples/s divided by those at the smallest size."""

    @property
    def efficiency(self) -> float | None:
        """Samples/s per rank divided by those at the smallest size. 1 is ideal for both strong and weak scaling."""
        if self.speedup is None or self.smallest is None:
            return None
        return self.speedup * self.smallest.ranks / self.size.ranks


def list_points(cells: list[Cell], kind: Kind) -> list[ScalingPoint]:
    """Return the points of each series, scheme by scheme.

    A series has cells with equal settings, except for the global batch and the layout, and with the property of the
    batch that the kind says.
    """
    series: dict[tuple[str, float], list[RunSize]] = {}
    modes = has_modes(cells)
    for size in _sizes(cells):
        series.setdefault((_fixed(example(size.cell), modes=modes), kind.same(size)), []).append(size)
    points: list[ScalingPoint] = []
    for (_, value), found in series.items():
        for own, sizes in _by_mode(found).items() if modes else ((None, sizes) for sizes in _apart(found)):
            if len({size.ranks for size in sizes}) > 1:
                words = ", ".join([*(_own(sizes, cells) if own is None else [own]), kind.words.format(value)])
                points += _points(words, sorted(sizes, key=lambda size: size.ranks))
    return points


def has_modes(cells: list[Cell]) -> bool:
    """Whether a cell has tensor parallelism on a grid. Then each series has one mode."""
    return any(_tensor(size) != "1d" for size in _sizes(cells))


def _tensor(size: RunSize) -> str:
    return example(size.cell).settings.layout.tensor


def _by_mode(sizes: list[RunSize]) -> dict[str, list[RunSize]]:
    """Sizes of each mode of tensor parallelism, by its name.

    A size without tensor parallelism belongs to every mode.
    """
    groups: dict[str, list[RunSize]] = {}
    layouts = {_layout(example(size.cell), modes=True) for size in sizes}
    for layout in sorted(layouts):
        mine = [size for size in sizes if _layout(example(size.cell), modes=True) == layout]
        alone = [size for size in mine if (example(size.cell).settings.layout.tp or 1) == 1]
        stated = example(mine[0].cell).settings.layout
        shared = ("cp",) if (stated.cp or 1) > 1 else ()
        others = ("dp", *shared, "pp") if len(layouts) > 1 else ()
        rest = [f"{key} {getattr(stated, key)}" for key in others]
        for mode in sorted({_tensor(size) for size in mine if size not in alone}):
            own = [size for size in mine if size not in alone and _tensor(size) == mode]
            groups[" ".join([f"tensor {mode}", *rest])] = [*alone, *own]
    return groups


def _own(sizes: list[RunSize], cells: list[Cell]) -> list[str]:
    """Return the values of the matrix that distinguish a series from others."""
    first, *rest = [size.cell.values for size in sizes]
    own = {key: value for key, value in first.items() if all(values.get(key) == value for values in rest)}
    return [f"{key} {value}" for key, value in own.items() if any(cell.values.get(key) != value for cell in cells)]


def _apart(sizes: list[RunSize]) -> list[list[RunSize]]:
    """Names of sizes by their layout without data parallelism, unless each has its own number of ranks anyway."""
    if len({size.ranks for size in sizes}) == len(sizes):
        return [sizes]
    groups: dict[str, list[RunSize]] = {}
    for size in sizes:
        groups.setdefault(_layout(example(size.cell)), []).append(size)
    return list(groups.values())


def _points(series: str, sizes: list[RunSize]) -> Iterator[ScalingPoint]:
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
            yield ScalingPoint(series, size, found[scheme], smallest, speedup)


def _sizes(cells: list[Cell]) -> Iterator[RunSize]:
    for cell in cells:
        settings = example(cell).settings
        ranks, batch = settings.ranks, settings.train.global_batch
        if ranks and batch and ranks > 0 and batch > 0:
            yield RunSize(cell, ranks, settings.shape.nodes, batch)


def _fixed(run: RunResult, *, modes: bool) -> str:
    """Return the settings of the work and of how it is done, without the size.

    On grids, which cut samples, the number of samples at a time belongs to the size, too.
    """
    of_size = ("global_batch", "micro_batch") if modes else ("global_batch",)
    same = {key: run.settings.raw.get(key) for key in ("model", "data", "train", "device")}
    if isinstance(same["train"], dict):
        same["train"] = {key: value for key, value in same["train"].items() if key not in of_size}
    return json.dumps(same, sort_keys=True)


def _layout(run: RunResult, *, modes: bool = False) -> str:
    layout = run.settings.raw.get("layout")
    of_size = ("tp", "tensor", "depth") if modes else ("dp",)
    if isinstance(layout, dict):
        layout = {key: value for key, value in layout.items() if key not in of_size}
    return json.dumps(layout, sort_keys=True)


def strong_scaling(submission: Submission, cells: list[Cell]) -> Table | None:
    """Points with the same global batch on more and more ranks."""
    title = "Strong scaling: the same global batch on more ranks"
    return _table(STRONG, title, list_points(cells, STRONG), modes=has_modes(cells))


def weak_scaling(submission: Submission, cells: list[Cell]) -> Table | None:
    """Points with a global batch that grows with the ranks."""
    title = "Weak scaling: a global batch that grows with the ranks"
    return _table(WEAK, title, list_points(cells, WEAK), modes=has_modes(cells))


def _of_modes(points: list[ScalingPoint]) -> list[Field[ScalingPoint]]:
    """Quantities that papers on tensor grids compare: seconds of both passes per sample, bytes and memory of a rank."""

    def passes(point: ScalingPoint) -> float | None:
        parts = [one.average_or_none(point.row.runs) for one in PHASES if one.key in ("forward_s", "backward_s")]
        return None if None in parts else sum(part or 0.0 for part in parts) / point.size.batch

    def sent(point: ScalingPoint) -> float | None:
        each = [(sum(one.message_bytes for one in run.channels), shares(run)) for run in point.row.counted]
        return mean_of_known([nbytes / share if share else None for nbytes, share in each])

    seconds, size = seconds_unit(map(passes, points)), bytes_unit(map(sent, points))
    return [
        (
            Column("pass_seconds", f"a sample ({seconds.name})", help="Seconds forward and backward over the samples."),
            lambda point: quantity(passes(point), seconds.show),
        ),
        (
            Column("rank_bytes", f"sent ({size.name})", help="Message bytes of a rank in a step."),
            lambda point: quantity(sent(point), size.show),
        ),
        *make_fields([DEVICE, HOST_RANK], points, lambda one, point: one.average(point.row.runs)),
    ]


def _table(kind: Kind, title: str, points: list[ScalingPoint], *, modes: bool) -> Table | None:
    if not points:
        return None
    each = "GPUs" if is_gpu(example(points[0].size.cell)) else "ranks"
    one = len({point.series for point in points}) == 1
    rates, rate = samples([point.row for point in points])
    made: list[Field[ScalingPoint]] = [
        (SCHEME, lambda point: name(point.row.scheme)),
        (
            Column("series", "series", words=True, help="Properties that are the same at all compared sizes."),
            lambda point: name("" if one else point.series),
        ),
        (Column("nodes", "nodes"), lambda point: quantity(point.size.nodes, whole)),
        (Column("ranks", each), lambda point: quantity(point.size.ranks, whole)),
        *make_fields([STEP_SECONDS], points, lambda one, point: one.average(point.row.runs)),
        (rates, lambda point: rate(point.row)),
        (
            Column("speedup", "speed-up", help="Samples/s over those of the scheme's own smallest size."),
            lambda point: quantity(point.speedup, significant),
        ),
        (
            Column("efficiency", "efficiency", help="Speed-up over the growth of the ranks; 100 % is ideal."),
            lambda point: quantity(point.efficiency, percent),
        ),
        *(_of_modes(points) if modes else []),
    ]
    what = f"{title} ({points[0].series})" if one else title
    note = "Efficiency is of each scheme against its own smallest size."
    return tabulate(f"{kind.name}-scaling", make_printable(what), points, made, notes=[note])
