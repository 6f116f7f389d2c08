"""Errors that are shown as one line."""


class UserError(Exception):
    """Input is wrong. Each fault is a line, which names file, line, field and the remedy. Exit status 2."""

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.lines = [" ".join(fault.splitlines()) for fault in faults]


class TransitError(Exception):
    """A message did not arrive as it was sent. Exit status 1."""
