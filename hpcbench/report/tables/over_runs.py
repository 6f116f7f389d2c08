"""One figure of a scheme from those of its runs."""

from collections.abc import Callable
from statistics import fmean, geometric_mean

from hpcbench.report.compare import Row
from hpcbench.report.measures import Measures, Unknown

Value = Callable[[Measures], float | None]


def counted(row: Row) -> list[Measures]:
    """The runs that the figures of a row rest on: the completed ones, or else those that have figures at all."""
    return [run for run in row.runs if run.run.state == "completed" or (row.partial and run.samples_per_s)]


def mean(row: Row, value: Value) -> float | None:
    """Arithmetic mean over the runs that have the figure."""
    known = _known(row, value)
    return fmean(known) if known else None


def geometric(row: Row, value: Value) -> float | None:
    """Geometric mean over the runs that have the figure, so that ratios of rows are means of their pairs' ratios."""
    known = [found for found in _known(row, value) if found > 0]
    return geometric_mean(known) if known else None


def highest(row: Row, value: Value) -> float | None:
    """The largest of all runs that have the figure, completed or not."""
    return max((found for run in row.runs if (found := value(run)) is not None), default=None)


def wire_over_message(row: Row, dimension: str) -> float | Unknown | None:
    """Mean over the runs of the wire bytes per message byte on one parallel dimension."""
    found = [one.wire_over_message for run in counted(row) for one in run.dimensions if one.dimension == dimension]
    if "unknown" in found:
        return "unknown"
    known = [ratio for ratio in found if ratio is not None and ratio != "unknown"]
    return fmean(known) if known else None


def _known(row: Row, value: Value) -> list[float]:
    return [found for run in counted(row) if (found := value(run)) is not None]
