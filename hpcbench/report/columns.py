"""Columns of tables with one row per scheme: name, quantities, and estimates with intervals.

Most estimates are relative to the baseline. Each estimate is declared once, together with its tests.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hpcbench.present.document import Column, Entry, Field, Tone
from hpcbench.present.notation import DisplayUnit, between, estimate, loss_interval, name, significant, speed_interval
from hpcbench.report.compare import SchemeRow, choose_common_rate
from hpcbench.report.measures import is_gpu
from hpcbench.report.quantities import Quantity, make_fields
from hpcbench.report.quantities.speed import RATES, STEP_SECONDS
from hpcbench.report.statistics import Interval

SCHEME = Column(
    "scheme", "scheme", text=True, help="Name of the scheme in the study; a scheme assigns codecs to dimensions."
)


SCHEME_NAME: Field[SchemeRow] = SCHEME, lambda row: name(row.scheme)
"""Column of scheme names."""


def make_columns(
    quantities: Iterable[Quantity],
    rows: Sequence[SchemeRow],
    *,
    gpu: bool = False,
    group: int | None = None,
    unit: DisplayUnit | None = None,
) -> list[Field[SchemeRow]]:
    """Make columns of quantities (see `make_fields`)."""
    return make_fields(
        quantities, rows, lambda quantity, row: quantity.average(row.runs), gpu=gpu, group=group, unit=unit
    )


def make_rate_column(rows: Sequence[SchemeRow], rate: int | None = None) -> Field[SchemeRow]:
    """Make the column of the speed, by default of the rate that the rows have. An asterisk marks incomplete runs."""
    index = choose_common_rate(rows) if rate is None else rate
    gpu = any(is_gpu(run.run) for row in rows for run in row.runs)
    ((column, entry),) = make_columns([RATES[index]], rows, gpu=gpu, group=0)

    def add_star(row: SchemeRow) -> Entry:
        return replace(entry(row), shown=f"{entry(row).shown}*") if row.partial else entry(row)

    return column, add_star


def show_finding(finding: str | None, tones: Mapping[str, Tone] | None = None) -> Entry:
    """Return the table entry of a finding. If `tones` is given, a finding that is not in `tones` is a warning."""
    if not finding:
        return Entry()
    return Entry(finding, finding, tones.get(finding, "warning") if tones else "")


CHANGE = "vs baseline (95 % CI)"
"""Header of a column of differences. The column follows the column of the values themselves."""
Figure = Callable[[SchemeRow], Any]
"""Function that computes a machine-readable value of a scheme."""


@dataclass(frozen=True)
class IntervalColumn:
    """A column of estimates with intervals, computed from pairs of runs or from several runs."""

    key: str
    """Machine-readable name."""
    head: str
    """Column header."""
    meaning: str
    of: Callable[[SchemeRow], Interval | None]
    write: Callable[[Interval | None], str]
    count: str
    """Machine-readable name of the estimate's sample size."""

    def field(self, group: int = 0) -> Field[SchemeRow]:
        """Return the table column with its entry function."""
        return Column(self.key, self.head, group=group, help=self.meaning), self.entry

    def entry(self, row: SchemeRow) -> Entry:
        """Return the table entry of a scheme."""
        return estimate(self.of(row), self.write)

    def figures(self) -> dict[str, Figure]:
        """Return functions that compute the estimate, interval and count, keyed by machine-readable name."""
        parts = {self.key: "estimate", f"{self.key}_low": "low", f"{self.key}_high": "high", self.count: "pairs"}
        return {name: partial(self._read, part) for name, part in parts.items()}

    def _read(self, part: str, row: SchemeRow) -> Any:
        return getattr(self.of(row), part, 0 if part == "pairs" else None)


SPEED = IntervalColumn(
    "speed_ratio",
    CHANGE,
    "Speed (work per second) divided by the baseline's in the same pairing, with its interval.",
    lambda row: row.speed,
    speed_interval,
    "speed_pairs",
)
LOSS = IntervalColumn(
    "loss_difference",
    CHANGE,
    "Validation loss minus the baseline's at equal steps, with its interval.",
    lambda row: row.loss,
    loss_interval,
    "loss_pairs",
)
LOSS_IN_TIME = IntervalColumn(
    "loss_in_time_difference",
    "vs baseline at equal time (95 % CI)",
    "Training loss minus the baseline's when the faster run of a pair ended, with its interval.",
    lambda row: row.loss_in_time,
    loss_interval,
    "loss_in_time_pairs",
)


STEP_TIME = IntervalColumn(
    STEP_SECONDS.key,
    "step time in {unit} (95 % CI)",
    f"{STEP_SECONDS.meaning}: mean of the steps after the warm-up.",
    lambda row: row.step_seconds,
    lambda interval: between(interval, significant),
    "step_seconds_runs",
)
"""Estimated step time of the runs. Unlike the other estimates, the step time is not a difference."""


def follow(path: str) -> Callable[[Any], Any]:
    """Return a function that reads a nested attribute, such as ``speed.equal``.

    The function returns None if an attribute on the path is None.
    """
    names = path.split(".")

    def read(value: Any) -> Any:
        for attribute in names:
            value = None if value is None else getattr(value, attribute)
        return value

    return read


def _read_p_values(**paths: str) -> dict[str, Figure]:
    """Return functions that read raw and adjusted p-values of findings."""
    ends = {"": "raw", "_adjusted": "adjusted"}
    return {f"{name}{end}": follow(f"{path}.{kind}") for name, path in paths.items() for end, kind in ends.items()}


TESTS: dict[str, Figure] = {
    "loss_in_time_margin": follow("loss_in_time.margin"),
    **_read_p_values(
        speed_p_equal="speed.equal",
        speed_p_at_margin="speed.at_margin",
        loss_p_within="loss.within",
        loss_p_apart="loss.apart",
        loss_in_time_p_within="loss_in_time.within",
        loss_in_time_p_apart="loss_in_time.apart",
    ),
    "speed_pairs_enough": follow("speed.enough"),
    "loss_pairs_enough": follow("loss.enough"),
    "loss_in_time_pairs_enough": follow("loss_in_time.enough"),
}
"""Test results for the differences, keyed by machine-readable name."""
LATER_TESTS: dict[str, Figure] = {
    **_read_p_values(speed_p_apart="speed.apart"),
    "loss_difference_worst": follow("loss.worst"),
}
"""Results of tests that were added in later versions."""
