"""Failures that are told in one line."""


class UserError(Exception):
    """Input that is wrong: the message names file, line, field and the remedy. Exit status 2."""


class TransitError(Exception):
    """A message did not arrive as it was sent. Exit status 1."""
