"""Values of JSON objects from files. Missing values and values of the wrong type become None."""

import math
from typing import Any


def get_number(data: Any, *keys: str) -> float | None:
    """Return the number at the end of `keys` in nested JSON objects, or None if it is missing or a boolean."""
    value = get_member(data, *keys)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def get_text(data: Any, *keys: str) -> str | None:
    """Return the string at the end of `keys` in nested JSON objects, or None if it is missing."""
    value = get_member(data, *keys)
    return value if isinstance(value, str) else None


def get_member(data: Any, *keys: str) -> Any:
    """Return the value at the end of `keys`, or None if it is missing."""
    for key in keys:
        if not isinstance(data, dict):
            return None
        data = data.get(key)
    return data


def get_integer(data: Any, *keys: str) -> int | None:
    """Return the integer at the end of `keys`, or None if it is missing or exceeds 64 bits."""
    number = get_member(data, *keys)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    return limit_integer(number) if isinstance(number, int) and not isinstance(number, bool) else None


def limit_integer(number: int | None) -> int | None:
    """Return the value if it is an integer of at most 64 bits, else None."""
    return number if number is not None and -(2**63) <= number < 2**63 else None
