"""Errors that are shown as one line."""


class UserError(Exception):
    """Invalid input. Each fault is one line with file, line, field and remedy. The exit status is 2."""

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.lines = [" ".join(fault.splitlines()) for fault in faults]


class TransitError(Exception):
    """A message that did not arrive as it was sent. The exit status is 1."""
