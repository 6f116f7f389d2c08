"""How the speed of each scheme grows with the machine: strong and weak scaling."""

from hpcbench.collect.lines import printable
from hpcbench.collect.submission import Submission
from hpcbench.report.compare import Cell
from hpcbench.report.document import Column, Table
from hpcbench.report.measures import is_gpu
from hpcbench.report.notation import name, percent, quantity, seconds_unit, significant
from hpcbench.report.scaling import STRONG, WEAK, Kind, Point, scaling
from hpcbench.report.tables.comparison import SCHEME, rate
from hpcbench.report.tables.over_runs import geometric
from hpcbench.report.tables.tabulate import Field, tabulate
from hpcbench.report.titles import example


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
    unit = seconds_unit(_step(point) for point in points)
    one = len({point.series for point in points}) == 1
    fields: list[Field[Point]] = [
        (SCHEME, lambda point: name(point.row.scheme)),
        (
            Column("series", "series", words=True, help="What is the same at all sizes that are compared."),
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
    return tabulate(f"{kind.name}-scaling", printable(what), points, fields, notes=[note])


def _step(point: Point) -> float | None:
    return geometric(point.row, lambda run: run.step_seconds)
