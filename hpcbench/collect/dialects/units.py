"""Formats in which frameworks print values, and their conversion to numbers."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from hpcbench.contract.values import limit_integer

Value = float | int
NUMBER = (
    r"[-+]?(?:(?:[0-9]{1,3}(?:,[0-9]{3}){1,6}|[0-9]{1,30})(?:\.[0-9]{0,30})?(?:[eE][-+]?[0-9]{1,3})?|nan|inf|NAN|INF)"
)
"""Expression for any number, with or without thousands separators."""
COUNT = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,5}|[0-9]{1,18})"
"""Expression for an integer that fits in 64 bits."""
_SCALE = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9, "T": 10**12, "P": 10**15, "E": 10**18, "Z": 10**21}


@dataclass(frozen=True)
class PrintedUnit:
    """A format in which a quantity is printed."""

    name: str
    """Name of the unit in documents."""
    pattern: str
    """Regular expression for the printed value, including its unit if no space separates them."""
    convert: Callable[[str], Value | None]
    """Function that converts the matched text to the unit of `Step`. The function returns None for a missing value."""


def _plain(printed: str) -> float:
    return float(printed.replace(",", ""))


def _rank_loss(printed: str) -> float | None:
    """Return the loss of the rank, or None for -1, which is not a possible cross entropy."""
    value = _plain(printed)
    return None if value == -1 else value


def _count(printed: str) -> int:
    return int(printed.replace(",", ""))


def _scaled(printed: str) -> float:
    """Convert a number with a suffix: 1.23K is 1230.

    Both B and G mean 10^9, because the same framework has used both.
    """
    digits = printed.rstrip("KMGBTPEZ")
    return _plain(digits) * _SCALE[printed[len(digits) :]]


def _scaled_count(printed: str) -> int | None:
    return limit_integer(round(_scaled(printed)))


def _percent(printed: str) -> float | None:
    """Convert a percentage to a fraction. Return None for negative values, which mean "not known yet"."""
    value = _plain(printed.rstrip("%"))
    return None if value < 0 else value / 100


def _gib(printed: str) -> int | None:
    return limit_integer(round(_plain(printed) * 2**30))


_SCALED = r"[-+]?[0-9]{1,30}(?:\.[0-9]{0,30})?(?:[eE][-+]?[0-9]{1,3})?[KMGBTPE]?"

PLAIN = PrintedUnit("number", NUMBER, _plain)
OWN = PrintedUnit("number; -1 where the rank has none", NUMBER, _rank_loss)
WHOLE = PrintedUnit("count", COUNT, _count)
FEW = PrintedUnit("count", r"[0-9]{1,9}", int)
SECONDS = PrintedUnit("s", NUMBER, _plain)
MILLISECONDS = PrintedUnit("ms", NUMBER, lambda printed: _plain(printed) / 1000)
TFLOPS = PrintedUnit("TFLOP/s", NUMBER, lambda printed: _plain(printed) * 1e12)
GLUED_FLOPS = PrintedUnit(
    "K to Z and FLOPS, glued to the number",
    r"[0-9]{1,30}(?:\.[0-9]{1,30})?[KMGTPEZ]?(?:FLOPS)?",
    lambda printed: _scaled(printed.removesuffix("FLOPS")),
)
PERCENT = PrintedUnit("%", NUMBER + "%", _percent)
GIB = PrintedUnit("GiB", r"[0-9]{1,12}(?:\.[0-9]{1,12})?", _gib)
SCALED = PrintedUnit("number, K to E", f"(?:{_SCALED}|nan|-?infE?)", _scaled)
SCALED_COUNT = PrintedUnit("count, K to E", r"[0-9]{1,15}(?:\.[0-9]{0,15})?[KMGBTPE]?", _scaled_count)
SCALED_MILLISECONDS = PrintedUnit("ms, K to E", _SCALED, lambda printed: _scaled(printed) / 1000)
SCALED_TFLOPS = PrintedUnit("TFLOP/s, K to E", _SCALED, lambda printed: _scaled(printed) * 1e12)


def compiled(form: str, name: str, unit: PrintedUnit) -> re.Pattern[str]:
    """Return a regular expression that matches a field. The expression's group contains the value.

    Parameters
    ----------
    form
        Format of a field, with ``{name}`` and ``{value}``.
    name
        Name of the field; ``*`` matches any words.
    unit
        Format and unit of the value.
    """
    escaped = re.escape(name).replace(r"\*", "[^|:=,]{0,60}?")
    return re.compile(form.replace("{name}", escaped).replace("{value}", f"({unit.pattern})"))
