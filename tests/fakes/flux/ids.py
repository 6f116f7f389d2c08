"""Flux's job ids: 64-bit numbers, written in base 58 after an ƒ. Sources: Flux RFC 19."""

import os
import re

_DIGITS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def format_id(number: int) -> str:
    """Return an id as Flux prints it: after ``ƒ``, or after ``f`` if the environment requests ASCII."""
    text = ""
    while number:
        number, digit = divmod(number, 58)
        text = _DIGITS[digit] + text
    return ("f" if os.environ.get("FLUX_F58_FORCE_ASCII") else "ƒ") + (text or _DIGITS[0])


def parse_id(text: str) -> int:
    """Return the number of an id in any form.

    Raises
    ------
    ValueError
        The text is not an id.
    """
    if text.isdigit():
        return int(text)
    match = re.fullmatch(f"[ƒf]([{_DIGITS}]+)", text)
    if not match:
        raise ValueError(f"{text} is not a valid Flux jobid")
    number = 0
    for digit in match[1]:
        number = number * 58 + _DIGITS.index(digit)
    return number


def make_id(count: int) -> int:
    """Return the id of the n-th job, which contains milliseconds in its upper bits, like the ids of Flux."""
    return (1000 * count) << 24
