"""Output of the driver to the job log."""

import contextlib
import os

_STANDARD_OUTPUT, _STANDARD_ERROR = 1, 2


def print_line(line: str) -> None:
    """Print a line, which may contain any characters."""
    _write(_STANDARD_OUTPUT, line)


def print_error(line: str) -> None:
    """Print a line to stderr. The line may contain any characters."""
    _write(_STANDARD_ERROR, line)


def _write(descriptor: int, line: str) -> None:
    with contextlib.suppress(OSError):  # the log may be on a full disk
        os.write(descriptor, f"{line}\n".encode("utf-8", "backslashreplace"))
