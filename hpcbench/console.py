"""How wide to print."""

import os
import sys

UNBOUND = 160
"""Columns where there is no terminal to fit into."""


def columns() -> int | None:
    """Width of what goes to standard output; None leaves it to the terminal."""
    return None if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal() else UNBOUND
