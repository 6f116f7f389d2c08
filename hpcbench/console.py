"""How wide to print, and tables for terminals and files."""

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

UNBOUND = 160
"""Columns where there is no terminal to fit into."""


def columns() -> int | None:
    """Width of what goes to standard output; None leaves it to the terminal."""
    return None if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal() else UNBOUND


def show_table(table: "Table", unbound: int = UNBOUND) -> None:
    """Print a table; where there is no terminal, without the blanks that rich fills its lines up with.

    Parameters
    ----------
    table
        What to print.
    unbound
        Columns where there is no terminal.
    """
    from rich.console import Console

    if sys.stdout.isatty():
        Console().print(table)
        return
    text = io.StringIO()
    Console(file=text, width=unbound if columns() else None).print(table)
    print("\n".join(line.rstrip() for line in text.getvalue().splitlines()))
