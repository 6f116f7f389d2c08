"""The grammar of a run's log: one line in, one record out.

A step line is ``step k/N | name value unit | ... |``. The closing bar says that the line is whole; one without it was
cut, and nothing of it is used. An event is one JSON object a line that begins with ``{"event": ``. Everything else
belongs to somebody else: the launcher, the MPI library, the interpreter.
"""

import json
import math
import re
from typing import Any

from hpcbench.collect.record import Cut, Event, StepRecord
from hpcbench.collect.steps import TYPECODES
from hpcbench.contract.text import printable as printable

_STEP = re.compile(r"\s*step\s+([0-9]{1,18})/([0-9]{1,18})(.*)", re.DOTALL)
_CUT_HEAD = re.compile(r"\s*step(\s+([0-9]+(/[0-9]*)?)?)?$")
_EVENT = '{"event": '
_NUMBERS = {
    "d": re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?(?:nan|inf|NAN|INF)"),
    "q": re.compile(r"[0-9]{1,30}"),
}
_PREFIX = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}

_PLAIN = {"": 1.0}
_SECONDS = {"s": 1.0, "ms": 1e-3}
_BYTES = {"B": 1.0}
_FLOPS = {f"{prefix}FLOPS/{one}": scale for prefix, scale in _PREFIX.items() for one in ("rank", "GPU")}

FIELDS: dict[str, tuple[str, dict[str, float]]] = {
    "loss": ("loss", _PLAIN),
    "time": ("seconds", _SECONDS),
    "samples/s": ("samples_per_s", _PLAIN),
    "model": ("model_flops_per_rank", _FLOPS),
    "hardware": ("hardware_flops_per_rank", _FLOPS),
    "lr": ("lr", _PLAIN),
    "grad-norm": ("gradient_norm", _PLAIN),
    "loss-scale": ("loss_scale", _PLAIN),
    "message": ("message_bytes", _BYTES),
    "wire": ("wire_bytes", _BYTES),
    "skipped": ("skipped", _PLAIN),
}
"""Name in the line -> (attribute of `StepRecord`, what each unit that it may have is worth)."""


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
        name, units = FIELDS[words[0]]
        unit = words[2] if len(words) == 3 else ""
        if unit not in units or not _NUMBERS[TYPECODES[name]].fullmatch(words[1]):
            return Cut(line, f"the line of step {step} is damaged at '{_short(part)}'")
        if name in values:
            return Cut(line, f"the line of step {step} gives {words[0]} twice")
        values[name] = int(words[1]) if TYPECODES[name] == "q" else float(words[1]) * units[unit]
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


def objects(data: Any, *keys: str) -> list[dict[str, Any]]:
    """The objects in the JSON array at the end of `keys`; none where there is no array."""
    value = member(data, *keys)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _short(words: str) -> str:
    return printable(words, 40)
