"""Number formatting: digits, units, intervals."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hpcbench.contract.text import make_printable
from hpcbench.present.document import Column, Entry, Field, Item, Tone

NAMES = 60
"""Maximum displayed length of a name in characters. Names in files may be longer."""
_REASONS = 300
_FLOPS = ((1e15, "PFLOPS"), (1e12, "TFLOPS"), (1e9, "GFLOPS"), (1e6, "MFLOPS"), (1.0, "FLOPS"))
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % confidence interval.

    `low` and `high` are None if there is only one value.
    """

    estimate: float
    low: float | None
    high: float | None
    pairs: int
    """Number of values from which the estimate was computed, usually pairs of runs."""


def significant(value: float | None) -> str:
    """Format a number with four significant digits and without an exponent."""
    if value is None:
        return "-"
    if not math.isfinite(value) or value == 0:
        return str(value)
    decimals = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(decimals, 6)}f}"


@dataclass(frozen=True)
class DisplayUnit:
    """Unit of a column, and the format of its values."""

    scale: float
    """Size of the unit in base units."""
    name: str
    write: Callable[[float | None], str] = significant

    def show(self, value: float | None) -> str:
        """Format a value without its unit."""
        return self.write(None if value is None else value / self.scale)


def flops_unit(values: Iterable[float | None], gpu: bool) -> DisplayUnit:
    """Return the unit in which the largest of `values` (FLOP/s per rank) has one to three integer digits."""
    unit = _unit(values, _FLOPS, 1e12 if gpu else 1e9)
    return DisplayUnit(unit.scale, f"{unit.name}/{'GPU' if gpu else 'rank'}")


def seconds_unit(values: Iterable[float | None]) -> DisplayUnit:
    """Return the unit of time in which the largest of `values` (s) is at least one."""
    return _unit(values, _SECONDS, 1.0)


def bytes_unit(values: Iterable[float | None]) -> DisplayUnit:
    """Return the unit of memory in which the largest of `values` (B) is at least one."""
    return _unit(values, _BYTES, 2.0**30)


def _unit(values: Iterable[float | None], units: Sequence[tuple[float, str]], usual: float) -> DisplayUnit:
    largest = max((value for value in values if value and math.isfinite(value)), default=usual)
    return DisplayUnit(*next((unit for unit in units if largest >= unit[0]), units[-1]))


def ratio(value: float | None) -> str:
    """Format a ratio with three decimals."""
    return "-" if value is None else f"{value:.3f}"


def integer(value: float | None) -> str:
    """Format a number without decimals."""
    return "-" if value is None else f"{value:.0f}"


def percent(value: float | None) -> str:
    """Format a fraction as a percentage with one decimal."""
    return "-" if value is None else f"{100 * value:.1f} %"


def loss(value: float | None) -> str:
    """Format a loss with four decimals."""
    return "-" if value is None else f"{value:.4f}"


def speed_interval(interval: Interval | None) -> str:
    """Format a ratio of speeds with its interval."""
    return between(interval, "{:.2f}".format)


def loss_interval(interval: Interval | None) -> str:
    """Format a difference of losses with its interval."""
    return between(interval, "{:+.4f}".format)


def short(value: float) -> str:
    """Format a rate in GB/s or a fraction with three significant digits, or with two if it is below 1."""
    return f"{value:.{0 if value >= 99.5 else 1 if value >= 9.95 else 2}f}"


def rate(bytes_per_s: float) -> str:
    """Format a rate in GB/s. Rates below 1 GB/s are shown with three significant digits."""
    return f"{bytes_per_s / 1e9:.3g}" if bytes_per_s < 1e9 else short(bytes_per_s / 1e9)


def microseconds(seconds: float) -> str:
    """Format a time in microseconds with three significant digits."""
    return short(seconds * 1e6)


def error(value: float | None) -> str:
    """Format an error: ``0`` if zero, ``-`` if unknown."""
    return "-" if value is None else "0" if value == 0 else f"{value:.1e}"


def between(interval: Interval | None, show: Callable[[float], str], lone: str = " (1 pair)") -> str:
    """Format an estimate with the bounds of its interval, or with the text `lone` if it has no interval."""
    if interval is None:
        return "-"
    if interval.low is None or interval.high is None:
        return f"{show(interval.estimate)}{lone}"
    return f"{show(interval.estimate)} ({bounds(interval, show)})"


def bounds(interval: Interval, show: Callable[[float], str]) -> str:
    """Format the bounds of an interval, or ``1 pair`` if it has no bounds."""
    if interval.low is None or interval.high is None:
        return "1 pair"
    return f"{show(interval.low)} to {show(interval.high)}"


def parameters(count: float) -> str:
    """Format a number of parameters: ``0.8 M``, ``20.6 B``."""
    for scale, letter in ((1e9, "B"), (1e5, "M")):
        if count >= scale:
            return f"{count / max(scale, 1e6):.1f} {letter}"
    return f"{count / 1e3:.1f} K"


def name(text: str, tone: Tone = "") -> Entry:
    """Return an entry with a name from a file."""
    return Entry(make_printable(text, NAMES), make_printable(text) or None, tone)


def phrase(text: str, tone: Tone = "", source: str | None = None) -> Entry:
    """Return an entry with text from a file. The text may be longer than a name."""
    clean = make_printable(text, _REASONS)
    return Entry(clean, clean or None, tone, source)


def quantity(value: float | None, show: Callable[[float], str] = significant) -> Entry:
    """Return an entry with a number, or ``-`` if unknown."""
    return Entry() if value is None else Entry(show(value), value)


def figure_column(
    head: str,
    of: Callable[[Item], float | None],
    show: Callable[[float], str] = significant,
    *,
    group: int = 0,
    help: str = "",
) -> Field[Item]:
    """Return a numeric column, named after its header."""
    return Column(column_name(head), head, group=group, help=help), lambda item: quantity(of(item), show)


def text_column(head: str, of: Callable[[Item], str]) -> Field[Item]:
    """Return a text column, named after its header."""
    return Column(column_name(head), head, text=True), lambda item: phrase(of(item))


def column_name(head: str) -> str:
    """Derive a column's name from its header."""
    return re.sub(r"\W+", "_", head.replace("/", " per ")).strip("_").lower()


def estimate(interval: Interval | None, show: Callable[[Interval | None], str]) -> Entry:
    """Return an entry with an estimate and its interval. Sorting uses the estimate."""
    return Entry(show(interval), None if interval is None else interval.estimate)
