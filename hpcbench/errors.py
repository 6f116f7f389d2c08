"""Errors that are reported on one line."""


class UserError(Exception):
    """Invalid input. Each fault is reported on one line with file, line, field, and remedy. The exit status is 2."""

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.lines = [" ".join(fault.splitlines()) for fault in faults]


class TransitError(Exception):
    """A message was corrupted in transit. The exit status is 1."""
