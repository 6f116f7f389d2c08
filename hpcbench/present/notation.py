"""The notation of figures: digits, units, intervals."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from hpcbench.contract.text import make_printable
from hpcbench.present.document import Column, Entry, Field, Item, Tone

NAMES = 60
"""Largest number of letters of a name that are shown. A name from a file may be longer."""
_REASONS = 300
_FLOPS = ((1e15, "PFLOPS"), (1e12, "TFLOPS"), (1e9, "GFLOPS"), (1e6, "MFLOPS"), (1.0, "FLOPS"))
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % confidence interval.

    `low` and `high` are None if there is only one value, because one value has no interval.
    """

    estimate: float
    low: float | None
    high: float | None
    pairs: int
    """Number of values of the estimate; usually of pairs of runs."""


def significant(value: float | None) -> str:
    """Format a figure with four significant digits, without an exponent."""
    if value is None:
        return "-"
    if not math.isfinite(value) or value == 0:
        return str(value)
    decimals = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(decimals, 6)}f}"


@dataclass(frozen=True)
class DisplayUnit:
    """Unit of a column, with the format of its figures."""

    scale: float
    """Size of the unit in base units."""
    name: str
    write: Callable[[float | None], str] = significant

    def show(self, value: float | None) -> str:
        """Format a figure without its unit."""
        return self.write(None if value is None else value / self.scale)


def flops_unit(values: Iterable[float | None], gpu: bool) -> DisplayUnit:
    """Return the unit that gives the largest of `values` (FLOP/s per rank) one to three digits before the point."""
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


def ratio(value: float | Literal["unknown"] | None) -> str:
    """Format a ratio with three decimals."""
    return "-" if value is None else value if value == "unknown" else f"{value:.3f}"


def thousandths(value: float | None) -> str:
    """Format a figure with three decimals."""
    return ratio(value)


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
    """Format GB/s or a share with three significant digits; two below 1."""
    return f"{value:.{0 if value >= 99.5 else 1 if value >= 9.95 else 2}f}"


def rate(bytes_per_s: float) -> str:
    """Format a rate in GB/s. Rates below 1 GB/s keep three significant digits."""
    return f"{bytes_per_s / 1e9:.3g}" if bytes_per_s < 1e9 else short(bytes_per_s / 1e9)


def microseconds(seconds: float) -> str:
    """Format a time in microseconds with three significant digits."""
    return short(seconds * 1e6)


def error(value: float | None) -> str:
    """Format an error; ``0`` if it is zero, ``-`` if it is not known."""
    return "-" if value is None else "0" if value == 0 else f"{value:.1e}"


def between(interval: Interval | None, show: Callable[[float], str], lone: str = " (1 pair)") -> str:
    """Format an estimate with the bounds of its interval, or with the text `lone` if it has none."""
    if interval is None:
        return "-"
    if interval.low is None or interval.high is None:
        return f"{show(interval.estimate)}{lone}"
    return f"{show(interval.estimate)} ({bounds(interval, show)})"


def bounds(interval: Interval, show: Callable[[float], str]) -> str:
    """Format the bounds of an interval; ``1 pair`` if it has none."""
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
    """Return the entry of a name from a file."""
    return Entry(make_printable(text, NAMES), make_printable(text) or None, tone)


def phrase(text: str, tone: Tone = "", source: str | None = None) -> Entry:
    """Return the entry of a text from a file, which may be longer than a name."""
    clean = make_printable(text, _REASONS)
    return Entry(clean, clean or None, tone, source)


def quantity(value: float | None, show: Callable[[float], str] = significant) -> Entry:
    """Return the entry of a figure; ``-`` if it is not known."""
    return Entry() if value is None else Entry(show(value), value)


def figure_column(
    head: str,
    of: Callable[[Item], float | None],
    show: Callable[[float], str] = significant,
    *,
    group: int = 0,
    help: str = "",
) -> Field[Item]:
    """Return a column of figures, named after its head."""
    return Column(column_name(head), head, group=group, help=help), lambda item: quantity(of(item), show)


def text_column(head: str, of: Callable[[Item], str], help: str = "") -> Field[Item]:
    """Return a column of text, named after its head."""
    return Column(column_name(head), head, text=True, help=help), lambda item: phrase(of(item))


def column_name(head: str) -> str:
    """Derive the name of a column from its header."""
    return re.sub(r"\W+", "_", head.replace("/", " per ")).strip("_").lower()


def estimate(interval: Interval | None, show: Callable[[Interval | None], str]) -> Entry:
    """Return the entry of an estimate with its interval, which is sorted by the estimate."""
    return Entry(show(interval), None if interval is None else interval.estimate)
