"""The grammar of a run's log: one line in, one record out.

A step line is ``step k/N | name value unit | ... |``. The closing bar says that the line is whole; one without it was
cut, and nothing of it is used. An event is one JSON object a line that begins with ``{"event": ``. Everything else
belongs to somebody else: the launcher, the MPI library, the interpreter.
"""

import json
import math
import re
from collections.abc import Callable
from typing import Any

from hpcbench.collect.record import Cut, Event, StepRecord

_STEP = re.compile(r"\s*step\s+([0-9]{1,18})/([0-9]{1,18})(.*)", re.DOTALL)
_CUT_HEAD = re.compile(r"\s*step(\s+([0-9]+(/[0-9]*)?)?)?$")
_EVENT = '{"event": '
_NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?(?:nan|inf|NAN|INF)")
_PREFIX = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}


def _real(value: str, unit: str) -> float:
    if unit or not _NUMBER.fullmatch(value):
        raise ValueError
    return float(value)


def _seconds(value: str, unit: str) -> float:
    scale = {"s": 1.0, "ms": 1e-3}[unit]
    return _real(value, "") * scale


def _flops(value: str, unit: str) -> float:
    matched = re.fullmatch(r"([KMGTPE]?)FLOPS/(rank|GPU)", unit)
    if not matched:
        raise ValueError
    return _real(value, "") * _PREFIX[matched[1]]


def _count(value: str, unit: str) -> int:
    if unit or not re.fullmatch(r"[0-9]{1,30}", value):
        raise ValueError
    return int(value)


def _bytes(value: str, unit: str) -> int:
    if unit != "B":
        raise ValueError
    return _count(value, "")


FIELDS: dict[str, tuple[str, Callable[[str, str], float | int]]] = {
    "loss": ("loss", _real),
    "time": ("seconds", _seconds),
    "samples/s": ("samples_per_s", _real),
    "model": ("model_flops_per_rank", _flops),
    "hardware": ("hardware_flops_per_rank", _flops),
    "lr": ("lr", _real),
    "grad-norm": ("gradient_norm", _real),
    "message": ("message_bytes", _bytes),
    "wire": ("wire_bytes", _bytes),
    "skipped": ("skipped", _count),
}
"""Name in the line -> (attribute of `StepRecord`, converter of value and unit)."""


def parse(text: str, line: int) -> StepRecord | Event | Cut | None:
    """Read one line.

    Parameters
    ----------
    text
        The line without its line end.
    line
        Its number, from 1.

    Returns
    -------
    StepRecord, Event, Cut or None
        None for a line that is not ours. A line of ours that does not hold to the grammar is a `Cut`; its numbers are
        not used, because the end of a number that was cut cannot be told from a number.
    """
    text = text.rstrip()
    if text.startswith(_EVENT):
        return _event(text, line)
    matched = _STEP.fullmatch(text)
    if matched:
        return _step(int(matched[1]), int(matched[2]), matched[3], line)
    if _CUT_HEAD.fullmatch(text):
        return Cut(line, "a step line was cut")
    return None


def _step(step: int, steps: int, rest: str, line: int) -> StepRecord | Cut | None:
    if not rest.strip():
        return Cut(line, "a step line was cut")
    if not rest.startswith(" |"):
        return None
    if not rest.endswith(" |") or len(rest) < 4:
        return Cut(line, f"the line of step {step} was cut")
    if not 1 <= step <= steps:
        return Cut(line, f"step {step} of {steps} cannot be")
    values: dict[str, Any] = {}
    for part in rest[2:-2].split(" | "):
        words = part.split()
        if len(words) not in (2, 3):
            return Cut(line, f"the line of step {step} is damaged at '{_short(part)}'")
        if words[0] not in FIELDS:
            continue
        name, convert = FIELDS[words[0]]
        try:
            value = convert(words[1], words[2] if len(words) == 3 else "")
        except (ValueError, KeyError):
            return Cut(line, f"the line of step {step} is damaged at '{_short(part)}'")
        if name in values:
            return Cut(line, f"the line of step {step} gives {words[0]} twice")
        values[name] = value
    return StepRecord(line, step, steps, **values)


def _event(text: str, line: int) -> Event | Cut:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return Cut(line, "an event was cut")
    name = data.get("event")
    if not isinstance(name, str):
        return Cut(line, "an event has no name")
    return Event(line, name, data)


def number(data: Any, *keys: str) -> float | None:
    """The number at the end of `keys` in nested JSON objects; None where there is none (a boolean is none)."""
    value = member(data, *keys)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def integer(data: Any, *keys: str) -> int | None:
    """The whole number at the end of `keys` in nested JSON objects; None where there is none."""
    value = number(data, *keys)
    return int(value) if value is not None and math.isfinite(value) and value == int(value) else None


def text(data: Any, *keys: str) -> str | None:
    """The string at the end of `keys` in nested JSON objects; None where there is none."""
    value = member(data, *keys)
    return value if isinstance(value, str) else None


def member(data: Any, *keys: str) -> Any:
    """What lies at the end of `keys` in nested JSON objects; None where nothing does."""
    for key in keys:
        if not isinstance(data, dict):
            return None
        data = data.get(key)
    return data


def printable(words: str, limit: int = 300) -> str:
    """One line that a terminal can be trusted with: control characters become spaces, and it ends somewhere."""
    clean = " ".join("".join(c if c.isprintable() else " " for c in words[: limit * 4]).split())
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


def _short(words: str) -> str:
    return printable(words, 40)
