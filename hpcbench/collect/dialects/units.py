"""The forms in which frameworks print values, and the number that each stands for."""

import re
from collections.abc import Callable
from dataclasses import dataclass

Value = float | int
NUMBER = (
    r"[-+]?(?:(?:[0-9]{1,3}(?:,[0-9]{3}){1,6}|[0-9]{1,30})(?:\.[0-9]{0,30})?(?:[eE][-+]?[0-9]{1,3})?|nan|inf|NAN|INF)"
)
"""Expression of any number, with or without separators of thousands."""
COUNT = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,5}|[0-9]{1,18})"
"""Expression of a whole number that fits 64 bits."""
_SCALE = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9, "T": 10**12, "P": 10**15, "E": 10**18, "Z": 10**21}
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Unit:
    """One way of printing a quantity."""

    name: str
    """Name of the unit in documents."""
    pattern: str
    """Regular expression of the printed value, and of its unit if that is glued to the number."""
    convert: Callable[[str], Value | None]
    """Gives the value in the unit of `Step` for the matched text; None for a text that stands for no value."""


def _plain(printed: str) -> float:
    return float(printed.replace(",", ""))


def _own(printed: str) -> float | None:
    """The loss of the rank itself; None for -1, which no mean of cross entropies can be."""
    value = _plain(printed)
    return None if value == -1 else value


def _count(printed: str) -> int:
    return int(printed.replace(",", ""))


def _scaled(printed: str) -> float:
    """A number with a letter: 1.23K is 1230.

    B and G both mean 10^9, because the same framework has printed both.
    """
    digits = printed.rstrip("KMGBTPEZ")
    return _plain(digits) * _SCALE[printed[len(digits) :]]


def _scaled_count(printed: str) -> int | None:
    value = round(_scaled(printed))
    return value if value <= _LARGEST else None


def _percent(printed: str) -> float | None:
    """A percentage as a part of 1; None for a negative one, which is not known yet."""
    value = _plain(printed.rstrip("%"))
    return None if value < 0 else value / 100


def _gib(printed: str) -> int | None:
    value = round(_plain(printed) * 2**30)
    return value if value <= _LARGEST else None


_SCALED = r"[-+]?[0-9]{1,30}(?:\.[0-9]{0,30})?(?:[eE][-+]?[0-9]{1,3})?[KMGBTPE]?"

PLAIN = Unit("number", NUMBER, _plain)
OWN = Unit("number; -1 where the rank has none", NUMBER, _own)
WHOLE = Unit("count", COUNT, _count)
FEW = Unit("count", r"[0-9]{1,9}", int)
SECONDS = Unit("s", NUMBER, _plain)
MILLISECONDS = Unit("ms", NUMBER, lambda printed: _plain(printed) / 1000)
TFLOPS = Unit("TFLOP/s", NUMBER, lambda printed: _plain(printed) * 1e12)
GLUED_FLOPS = Unit(
    "K to Z and FLOPS, glued to the number",
    r"[0-9]{1,30}(?:\.[0-9]{1,30})?[KMGTPEZ]?(?:FLOPS)?",
    lambda printed: _scaled(printed.removesuffix("FLOPS")),
)
PERCENT = Unit("%", NUMBER + "%", _percent)
GIB = Unit("GiB", r"[0-9]{1,12}(?:\.[0-9]{1,12})?", _gib)
SCALED = Unit("number, K to E", f"(?:{_SCALED}|nan|-?infE?)", _scaled)
SCALED_COUNT = Unit("count, K to E", r"[0-9]{1,15}(?:\.[0-9]{0,15})?[KMGBTPE]?", _scaled_count)
SCALED_MILLISECONDS = Unit("ms, K to E", _SCALED, lambda printed: _scaled(printed) / 1000)
SCALED_TFLOPS = Unit("TFLOP/s, K to E", _SCALED, lambda printed: _scaled(printed) * 1e12)


def compiled(form: str, name: str, unit: Unit) -> re.Pattern[str]:
    """The expression that finds one field; its group is the value.

    Parameters
    ----------
    form
        How the framework writes a field, with ``{name}`` and ``{value}``.
    name
        Name of the field; a ``*`` in it stands for any words.
    unit
        Unit of the value.
    """
    words = re.escape(name).replace(r"\*", "[^|:=,]{0,60}?")
    return re.compile(form.replace("{name}", words).replace("{value}", f"({unit.pattern})"))
