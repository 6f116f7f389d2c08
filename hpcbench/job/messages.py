"""Lines that the driver prints into the log of its job."""

import contextlib
import os

_STANDARD_OUTPUT, _STANDARD_ERROR = 1, 2


def print_line(line: str) -> None:
    """Print a line. It may contain any characters."""
    _write(_STANDARD_OUTPUT, line)


def print_error(line: str) -> None:
    """Print a line to standard error. It may contain any characters."""
    _write(_STANDARD_ERROR, line)


def _write(descriptor: int, line: str) -> None:
    with contextlib.suppress(OSError):  # the log may be on the full disk
        os.write(descriptor, f"{line}\n".encode("utf-8", "backslashreplace"))
