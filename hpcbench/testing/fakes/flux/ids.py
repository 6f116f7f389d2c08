"""Flux's job ids: numbers of 64 bits, written in base 58 behind an ƒ. Facts: Flux RFC 19."""

import os
import re

_DIGITS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def f58(number: int) -> str:
    """As Flux prints an id: behind ``ƒ``, or ``f`` where the environment asks for ASCII."""
    text = ""
    while number:
        number, digit = divmod(number, 58)
        text = _DIGITS[digit] + text
    return ("f" if os.environ.get("FLUX_F58_FORCE_ASCII") else "ƒ") + (text or _DIGITS[0])


def decimal(text: str) -> int:
    """The number of an id in whichever form.

    Raises
    ------
    ValueError
        It is none.
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
    """The id of the n-th job: milliseconds in the upper bits, as Flux forms them."""
    return (1000 * count) << 24
