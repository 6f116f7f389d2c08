"""One figure of a scheme from those of its runs."""

import statistics
from collections.abc import Callable

from hpcbench.report import traffic
from hpcbench.report.averages import geometric_mean_of_known, mean_of_known, mean_unless_unknown
from hpcbench.report.compare import Row
from hpcbench.report.measures import Measures
from hpcbench.report.statistics import usable
from hpcbench.report.traffic import Unknown

Value = Callable[[Measures], float | None]


def mean(row: Row, value: Value) -> float | None:
    """Arithmetic mean over the runs that count and have the figure."""
    return mean_of_known(map(value, row.counted))


def geometric(row: Row, value: Value) -> float | None:
    """Geometric mean over the runs that count and have the figure."""
    return geometric_mean_of_known(map(value, row.counted))


def median(row: Row, value: Value) -> float | None:
    """Median over the runs that count and have the figure."""
    known = [found for found in map(value, row.counted) if found is not None and usable(found)]
    return statistics.median(known) if known else None


def highest(row: Row, value: Value) -> float | None:
    """The largest of all runs that have the figure, completed or not."""
    return max((found for run in row.runs if (found := value(run)) is not None), default=None)


def coded_part(row: Row, dimension: str) -> float | Unknown | None:
    """The part of the bytes on one parallel dimension that went through the codecs that they were for."""
    return traffic.coded_part([one for run in row.counted for one in run.dimensions if one.dimension == dimension])


def wire_over_message(row: Row, dimension: str) -> float | Unknown | None:
    """Mean over the runs of the wire bytes per message byte on one parallel dimension."""
    sent = [one for run in row.counted for one in run.dimensions if one.dimension == dimension]
    return mean_unless_unknown(one.wire_over_message for one in sent)
