"""Signals in the forms that users write: ``USR2``, ``SIGUSR2`` or ``12``."""

import signal

from fakes.programs import RefusedError


def signal_number(text: str) -> int:
    """Return the signal's number.

    Raises
    ------
    RefusedError
        The signal does not exist.
    """
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    numbers = {number.name: int(number) for number in signal.Signals}
    if name in numbers:
        return numbers[name]
    if text.isdigit() and int(text) in numbers.values():
        return int(text)
    raise RefusedError(f"{text}: Signal not supported")
