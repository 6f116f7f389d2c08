"""Declarations of quantities: names, averages, and presentation in reports."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from hpcbench.collect.run_log import RunLog
from hpcbench.contract.events import Event
from hpcbench.present.document import Column, Entry, Field
from hpcbench.present.notation import (
    DisplayUnit,
    bytes_unit,
    flops_unit,
    integer,
    loss,
    percent,
    ratio,
    seconds_unit,
)
from hpcbench.report.measures import Measures, select_counted
from hpcbench.report.statistics import average_known, average_known_geometrically, is_usable
from hpcbench.report.traffic import Unknown

Item = TypeVar("Item")
Value = float | Unknown | None
"""Value of a quantity.

``"unknown"`` means that the value cannot be computed, and None that the log does not contain it.
"""
Scale = Callable[[Iterable[float | None], bool], DisplayUnit]
"""Function that chooses the unit for a set of values. The flag states whether ranks compute on GPUs."""


def _ignore_gpu(choose: Callable[[Iterable[float | None]], DisplayUnit]) -> Scale:
    return lambda values, gpu: choose(values)


def _fix_scale(write: Callable[[float | None], str]) -> Scale:
    return lambda values, gpu: DisplayUnit(1.0, "", write)


SECONDS, BYTES, FLOPS = _ignore_gpu(seconds_unit), _ignore_gpu(bytes_unit), flops_unit
NUMBER, COUNT, PERCENT = _fix_scale(DisplayUnit(1.0, "").show), _fix_scale(integer), _fix_scale(percent)
RATIO, LOSS = _fix_scale(ratio), _fix_scale(loss)


@dataclass(frozen=True)
class Average:
    """A method to average values over a scheme's runs."""

    description: str
    """Name of the average in column descriptions."""
    over: Callable[[Sequence[Measures], Callable[[Measures], Value]], Value]
    """Function that averages over all runs of a scheme. The second argument computes a run's value."""


def _average_counted(average: Callable[[Sequence[float]], float | None]) -> Callable[..., Value]:
    """Return a function that averages over completed runs.

    If no run completed, it averages over the runs with a known speed.
    """

    def over(runs: Sequence[Measures], value: Callable[[Measures], Value]) -> Value:
        values = [value(run) for run in select_counted(runs)]
        numbers = [number for number in values if number is not None and number != "unknown"]
        return "unknown" if "unknown" in values else average(numbers)

    return over


def _compute_median(values: Sequence[float]) -> float | None:
    finite = [value for value in values if is_usable(value)]
    return statistics.median(finite) if finite else None


def _find_highest(runs: Sequence[Measures], value: Callable[[Measures], Value]) -> Value:
    """Return the largest value over all runs, completed or not."""
    return max((number for run in runs if (number := value(run)) is not None and number != "unknown"), default=None)


MEAN = Average("mean of the runs", _average_counted(average_known))
GEOMETRIC = Average("geometric mean of the runs", _average_counted(average_known_geometrically))
MEDIAN = Average("median of the runs", _average_counted(_compute_median))
HIGHEST = Average("of the run with the most", _find_highest)


@dataclass(frozen=True)
class Exported:
    """Column of a quantity in an export table. Step columns are declared in `hpcbench.contract.step_line`."""

    table: Literal["runs", "channels", "phases"]
    kind: Literal["integer", "real"]
    event: type[Event] | None = None
    """Log event that contains a run's value under the quantity's key."""
    remark: str = ""
    """Text that is appended to the quantity's description."""

    def read(self, log: RunLog, key: str) -> float | None:
        """Read the value from the log's event."""
        value: float | None = getattr(log.read_event(self.event), key) if self.event else None
        return value


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A quantity that is measured or derived from measurements."""

    key: str
    """Machine-readable name: column name in tables, CSV and exports, and key in JSON."""
    head: str
    """Column header. ``{unit}`` and ``{each}`` (GPU or rank) are replaced."""
    unit: str
    """Unit of the values, such as s, B or FLOP/s, or 1 for dimensionless values."""
    meaning: str
    """One-sentence description, without a final period."""
    label: str = ""
    """Label for axes and legends of plots."""
    scale: Scale = NUMBER
    """Function that chooses the unit and number of digits for a set of values."""
    run: Callable[[Measures], Value] | None = None
    """Function that computes a run's value. By default, the value is read from the event of `exported`."""
    over_steps: Literal[
        "",
        "mean of the steps",
        "median of the steps",
        "95th percentile of the steps",
        "99th percentile of the steps",
        "work over time",
        "last step",
    ] = ""
    """Kind of average over a run's steps. The text is empty if values are not averaged."""
    over_runs: Average = MEAN
    """How values are averaged over a scheme's runs."""
    better: Literal["", "higher", "lower"] = ""
    """Whether higher or lower values are better. The text is empty if neither is better."""
    table: str = ""
    """Name of the table that shows the quantity. The text is empty if no table shows it."""
    group: int = 0
    """Column group in the table."""
    exported: Exported | None = None
    alarm: float | None = None
    """Value that tables mark as bad, or None if no value is bad."""
    of_schemes: bool = True
    """Whether the quantity is shown for schemes. Otherwise it is only exported."""

    def compute(self, run: Measures) -> Value:
        """Compute a run's value."""
        if self.run is not None:
            return self.run(run)
        return self.exported.read(run.run.log, self.key) if self.exported and run.run.log else None

    def average(self, runs: Sequence[Measures]) -> Value:
        """Compute a scheme's value from all runs of the scheme."""
        return self.over_runs.over(runs, self.compute)

    def average_or_none(self, runs: Sequence[Measures]) -> float | None:
        """Compute a scheme's value, or return None if it is not a number."""
        value = self.average(runs)
        return None if value == "unknown" else value

    def choose_unit(self, values: Iterable[Value], *, gpu: bool = False) -> DisplayUnit:
        """Choose the unit for a set of values."""
        return self.scale((value for value in values if value != "unknown"), gpu)

    def make_column(
        self, unit: DisplayUnit, *, gpu: bool = False, group: int | None = None, runs: bool = False
    ) -> Column:
        """Make a column for a table with one row per run (`runs`) or per scheme."""
        each = "GPU" if gpu else "rank"
        head = self.head.format(unit=unit.name, each=each)
        return Column(
            self.key, head, group=self.group if group is None else group, help=self._describe(unit, runs=runs)
        )

    def make_entry(self, value: Value, unit: DisplayUnit) -> Entry:
        """Make the table entry of a value."""
        if value == "unknown":
            return Entry(value, value)
        return Entry(unit.show(value), value, "bad" if value is not None and value == self.alarm else "")

    def _describe(self, unit: DisplayUnit, *, runs: bool) -> str:
        """Describe the column: meaning, unit if missing from the header, averages, and whether higher is better."""
        scaled = unit.name if "{unit}" not in self.head else ""
        averages = filter(None, (self.over_steps, "" if runs else self.over_runs.description))
        better = f"{self.better} is better" if self.better else ""
        sentences = [self.meaning, f"in {scaled}" if scaled else "", ", ".join(averages), better]
        return " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences if sentence)


def make_fields(
    quantities: Iterable[Quantity],
    items: Sequence[Item],
    value: Callable[[Quantity, Item], Value],
    *,
    gpu: bool = False,
    group: int | None = None,
    unit: DisplayUnit | None = None,
    runs: bool = False,
) -> list[Field[Item]]:
    """Make columns for quantities, each with an entry function.

    `value` computes the value of a quantity for an item. By default, each column forms its own group, and its unit is
    chosen for its values. `runs` is True if rows represent runs.
    """

    def make_field(quantity: Quantity) -> Field[Item]:
        column_unit = unit or quantity.choose_unit((value(quantity, item) for item in items), gpu=gpu)
        return quantity.make_column(column_unit, gpu=gpu, group=group, runs=runs), lambda item: quantity.make_entry(
            value(quantity, item), column_unit
        )

    return [make_field(quantity) for quantity in quantities]
