"""Errors that are shown as one line."""


class UserError(Exception):
    """Input is wrong. The message names file, line, field and the remedy. Exit status 2."""


class TransitError(Exception):
    """A message did not arrive as it was sent. Exit status 1."""
