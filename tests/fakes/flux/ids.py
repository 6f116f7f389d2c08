"""Flux's job ids: numbers of 64 bits, written in base 58 behind an ƒ. Facts: Flux RFC 19."""

import os
import re

_DIGITS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def f58(number: int) -> str:
    """An id in the form that Flux prints: behind ``ƒ``, or behind ``f`` if the environment asks for ASCII."""
    text = ""
    while number:
        number, digit = divmod(number, 58)
        text = _DIGITS[digit] + text
    return ("f" if os.environ.get("FLUX_F58_FORCE_ASCII") else "ƒ") + (text or _DIGITS[0])


def decimal(text: str) -> int:
    """The number of an id in any form.

    Raises
    ------
    ValueError
        The text is no id.
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


def fluid(count: int) -> int:
    """The id of the n-th job, formed like Flux's: milliseconds in the upper bits."""
    return (1000 * count) << 24
