"""Columns of tables with a row for each scheme: its name, its quantities, and its estimates with an interval.

An estimate is mostly relative to the baseline. Each is declared once, with its tests.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hpcbench.present.document import Column, Entry, Field
from hpcbench.present.notation import Unit, between, estimate, loss_interval, name, significant, speed_interval
from hpcbench.report.compare import Row
from hpcbench.report.findings import PValue
from hpcbench.report.quantities import Quantity, make_fields
from hpcbench.report.quantities.speed import SAMPLES, STEP_SECONDS
from hpcbench.report.statistics import Interval

SCHEME = Column("scheme", "scheme", words=True, help="Which codec works on which dimension, by its name in the study.")


def scheme() -> Field[Row]:
    """Return the column of the schemes' names."""
    return SCHEME, lambda row: name(row.scheme)


def columns(
    quantities: Iterable[Quantity], rows: Sequence[Row], *, gpu: bool = False, group: int | None = None,
    unit: Unit | None = None,
) -> list[Field[Row]]:  # fmt: skip
    """Columns of quantities, see `make_fields`."""
    return make_fields(quantities, rows, lambda one, row: one.average(row.runs), gpu=gpu, group=group, unit=unit)


def samples(rows: Sequence[Row]) -> Field[Row]:
    """Samples/s, with a mark for runs that did not complete."""
    ((column, entry),) = columns([SAMPLES], rows, group=0)

    def marked(row: Row) -> Entry:
        found = entry(row)
        return replace(found, shown=f"{found.shown}*") if row.partial else found

    return column, marked


CHANGE = "vs baseline (95 % CI)"
"""Text above a difference, which stands beside the column of its quantity."""
Figure = Callable[[Row], float | str | None]


@dataclass(frozen=True)
class Estimate:
    """An estimate with its interval, from pairs of runs or from several."""

    key: str
    """Name for programs."""
    head: str
    """Text above its column."""
    meaning: str
    """Meaning in one sentence."""
    of: Callable[[Row], Interval | None]
    write: Callable[[Interval | None], str]
    count: str
    """Name, for programs, of the number of values that the estimate rests on."""

    def field(self, group: int = 0) -> Field[Row]:
        """Its column in a table, with the entry for each row."""
        return Column(self.key, self.head, group=group, help=self.meaning), self.entry

    def entry(self, row: Row) -> Entry:
        """Return the entry of a scheme in a table."""
        return estimate(self.of(row), self.write)

    def figures(self) -> dict[str, Figure]:
        """Estimate, interval and count, by their names for programs."""
        return {
            self.key: lambda row: found.estimate if (found := self.of(row)) else None,
            f"{self.key}_low": lambda row: found.low if (found := self.of(row)) else None,
            f"{self.key}_high": lambda row: found.high if (found := self.of(row)) else None,
            self.count: lambda row: found.pairs if (found := self.of(row)) else 0,
        }


SPEED = Estimate(
    "speed_ratio",
    CHANGE,
    "Samples/s over the baseline's in the same pairing, with its interval.",
    lambda row: row.speed,
    speed_interval,
    "speed_pairs",
)
LOSS = Estimate(
    "loss_difference",
    CHANGE,
    "Validation loss minus the baseline's at equal steps, with its interval.",
    lambda row: row.loss,
    loss_interval,
    "loss_pairs",
)
LOSS_IN_TIME = Estimate(
    "loss_in_time_difference",
    "vs baseline at equal time (95 % CI)",
    "Training loss minus the baseline's when the faster run of a pair ended, with its interval.",
    lambda row: row.loss_in_time,
    loss_interval,
    "loss_in_time_pairs",
)


STEP_TIME = Estimate(
    STEP_SECONDS.key,
    "step time in {unit} (95 % CI)",
    f"{STEP_SECONDS.meaning}: mean of the steps after the warm-up.",
    lambda row: row.step_seconds,
    lambda found: between(found, significant),
    "step_seconds_runs",
)
"""The estimate of the runs' step times, which is no difference."""


_TESTS: dict[str, Callable[[Row], PValue | None]] = {
    "speed_p_equal": lambda row: row.speed.equal if row.speed else None,
    "speed_p_at_margin": lambda row: row.speed.at_margin if row.speed else None,
    "loss_p_within": lambda row: row.loss.within if row.loss else None,
    "loss_p_apart": lambda row: row.loss.apart if row.loss else None,
    "loss_in_time_p_within": lambda row: row.loss_in_time.within if row.loss_in_time else None,
    "loss_in_time_p_apart": lambda row: row.loss_in_time.apart if row.loss_in_time else None,
}
"""Hypotheses of `hpcbench.report.findings`. Each has a p-value, and one adjusted for the whole report."""


def _raw(of: Callable[[Row], PValue | None]) -> Figure:
    return lambda row: found.raw if (found := of(row)) else None


def _adjusted(of: Callable[[Row], PValue | None]) -> Figure:
    return lambda row: found.adjusted if (found := of(row)) else None


def _both(tests: Mapping[str, Callable[[Row], PValue | None]]) -> dict[str, Figure]:
    return {f"{name}{end}": p(of) for name, of in tests.items() for end, p in (("", _raw), ("_adjusted", _adjusted))}


TESTS: dict[str, Figure] = {
    "loss_in_time_margin": lambda row: row.loss_in_time.margin if row.loss_in_time else None,
    **_both(_TESTS),
    "speed_pairs_enough": lambda row: row.speed.enough if row.speed else None,
    "loss_pairs_enough": lambda row: row.loss.enough if row.loss else None,
    "loss_in_time_pairs_enough": lambda row: row.loss_in_time.enough if row.loss_in_time else None,
}
"""Values of the tests of the differences, by their names for programs."""
LATER_TESTS: dict[str, Figure] = {
    **_both({"speed_p_apart": lambda row: row.speed.apart if row.speed else None}),
    "loss_difference_worst": lambda row: row.loss.worst if row.loss else None,
}
"""The same, of later versions."""
