"""The user's mistakes, told in one line."""


class UserError(Exception):
    """Input that is wrong: the message names file, line, field and the remedy. Exit status 2."""
