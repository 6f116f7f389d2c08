"""The declaration of a quantity: its name, its averages, and how reports show it."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from hpcbench.collect.run_log import RunLog
from hpcbench.contract.events import Event
from hpcbench.present.document import Column, Entry, Field
from hpcbench.present.notation import Unit, bytes_unit, flops_unit, loss, percent, seconds_unit, thousandths, whole
from hpcbench.report.measures import Measures, counted
from hpcbench.report.statistics import geometric_mean_of_known, mean_of_known, usable
from hpcbench.report.traffic import Unknown

Item = TypeVar("Item")
Value = float | Unknown | None
"""A value. Unknown means that it cannot be known; None means that the log does not give it."""
Scale = Callable[[Iterable[float | None], bool], Unit]
"""Gives the unit for some values. The flag tells whether the ranks compute on GPUs."""


def _seconds(values: Iterable[float | None], gpu: bool) -> Unit:
    return seconds_unit(values)


def _bytes(values: Iterable[float | None], gpu: bool) -> Unit:
    return bytes_unit(values)


def _always(write: Callable[[float | None], str]) -> Scale:
    return lambda values, gpu: Unit(1.0, "", write)


SECONDS, BYTES, FLOPS = _seconds, _bytes, flops_unit
NUMBER, COUNT, PERCENT = _always(Unit(1.0, "").show), _always(whole), _always(percent)
RATIO, LOSS = _always(thousandths), _always(loss)


@dataclass(frozen=True)
class Average:
    """A way to average the values of a scheme's runs."""

    words: str
    over: Callable[[Sequence[Measures], Callable[[Measures], Value]], Value]
    """Gives the average, from all runs of the scheme and a function that gives the value of one run."""


def _of_counted(average: Callable[[Sequence[float]], float | None]) -> Callable[..., Value]:
    """Return an average over the completed runs or, if there are none, over those with a known speed."""

    def over(runs: Sequence[Measures], value: Callable[[Measures], Value]) -> Value:
        values = [value(run) for run in counted(runs)]
        known = [one for one in values if one is not None and one != "unknown"]
        return "unknown" if "unknown" in values else average(known)

    return over


def _median(values: Sequence[float]) -> float | None:
    known = [value for value in values if usable(value)]
    return statistics.median(known) if known else None


def _highest(runs: Sequence[Measures], value: Callable[[Measures], Value]) -> Value:
    """Return the largest value over all runs, completed or not."""
    return max((one for run in runs if (one := value(run)) is not None and one != "unknown"), default=None)


MEAN = Average("mean of the runs", _of_counted(mean_of_known))
GEOMETRIC = Average("geometric mean of the runs", _of_counted(geometric_mean_of_known))
MEDIAN = Average("median of the runs", _of_counted(_median))
HIGHEST = Average("of the run with the most", _highest)


@dataclass(frozen=True)
class Exported:
    """A quantity's column in a table of the export. The steps' own columns are in `hpcbench.contract.step_line`."""

    table: Literal["runs", "channels", "phases"]
    kind: Literal["integer", "real"]
    event: type[Event] | None = None
    """Event of the log that holds a run's value, under the quantity's key."""
    remark: str = ""
    """Text that is added to the meaning."""

    def of(self, log: RunLog, key: str) -> float | None:
        """Return the value in the log's event."""
        found: float | None = getattr(log.said(self.event), key) if self.event else None
        return found


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A quantity that is measured, or follows from measurements."""

    key: str
    """Name for programs: the column of a table, of CSV and of the export, and the key in JSON."""
    head: str
    """Text above its column. ``{unit}`` and ``{each}`` (GPU or rank) are filled in."""
    unit: str
    """Unit of its values: s, B, FLOP/s ..., 1 for a plain number."""
    meaning: str
    """Meaning in one sentence, without a full stop."""
    label: str = ""
    """Text at an axis or in the legend of a plot."""
    scale: Scale = NUMBER
    """Gives the unit and the digits in which it is shown."""
    run: Callable[[Measures], Value] | None = None
    """Gives the value of a run; by default the value in the event of its exported column."""
    over_steps: Literal[
        "", "mean of the steps", "median of the steps", "95th percentile of the steps", "work over time", "last step"
    ] = ""
    """How the value of a run follows from its steps; empty if it does not."""
    over_runs: Average = MEAN
    """How the value of a scheme follows from those of its runs."""
    better: Literal["", "higher", "lower"] = ""
    table: str = ""
    """Name of the table that shows it; empty if none does."""
    group: int = 0
    """Group of its column in the table."""
    exported: Exported | None = None
    alarm: float | None = None
    """Whether a value is bad news."""
    of_schemes: bool = True
    """Whether schemes have a value of it. If not, it is only exported."""

    def of(self, run: Measures) -> Value:
        """Return the value of a run."""
        if self.run is not None:
            return self.run(run)
        return self.exported.of(run.run.log, self.key) if self.exported and run.run.log else None

    def over(self, runs: Sequence[Measures]) -> Value:
        """Return the value of a scheme, from all of its runs."""
        return self.over_runs.over(runs, self.of)

    def figure(self, runs: Sequence[Measures]) -> float | None:
        """Return the value of a scheme, if it is a number."""
        value = self.over(runs)
        return None if value == "unknown" else value

    def unit_of(self, values: Iterable[Value], *, gpu: bool = False) -> Unit:
        """Return the unit for showing some values."""
        return self.scale((value for value in values if value != "unknown"), gpu)

    def column(self, unit: Unit, *, gpu: bool = False, group: int | None = None, runs: bool = False) -> Column:
        """Its column in a table with a row for each run or each scheme."""
        each = "GPU" if gpu else "rank"
        head = self.head.format(unit=unit.name, each=each)
        return Column(self.key, head, group=self.group if group is None else group, help=self._help(unit, runs=runs))

    def entry(self, value: Value, unit: Unit) -> Entry:
        """Return the entry of a value in a table."""
        if value == "unknown":
            return Entry(value, value)
        return Entry(unit.show(value), value, "bad" if value is not None and value == self.alarm else "")

    def _help(self, unit: Unit, *, runs: bool) -> str:
        """Return the meaning, the unit if the head lacks it, the way of averaging, and which direction is better."""
        scaled = unit.name if "{unit}" not in self.head else ""
        average = "" if runs else self.over_runs.words
        how = ", ".join(words for words in (self.over_steps, average) if words)
        better = f"{self.better} is better" if self.better else ""
        said = [self.meaning, f"in {scaled}" if scaled else "", how, better]
        return " ".join(f"{words[0].upper()}{words[1:]}." for words in said if words)


def fields(
    quantities: Iterable[Quantity],
    items: Sequence[Item],
    value: Callable[[Quantity, Item], Value],
    *,
    gpu: bool = False,
    group: int | None = None,
    unit: Unit | None = None,
    runs: bool = False,
) -> list[Field[Item]]:
    """Columns of a table with their entries.

    Parameters
    ----------
    quantities
        Quantities of the columns.
    items
        Items of the rows.
    value
        Gives the value of a quantity for an item.
    gpu
        Whether the ranks compute on GPUs.
    group
        Group of all columns; by default each has the group of its quantity.
    unit
        Unit of all columns; by default each has a unit that fits its values.
    runs
        Whether a row is a run.
    """

    def one(quantity: Quantity) -> Field[Item]:
        own = unit or quantity.unit_of((value(quantity, item) for item in items), gpu=gpu)
        return quantity.column(own, gpu=gpu, group=group, runs=runs), lambda item: quantity.entry(
            value(quantity, item), own
        )

    return [one(quantity) for quantity in quantities]
