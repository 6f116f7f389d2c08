"""What all commands print alike: tables, as wide as the terminal or the file, and time spans."""

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

UNBOUND = 160
"""Width of a table in columns where no terminal limits it."""


def columns() -> int | None:
    """Width of the standard output in columns; None leaves it to the terminal."""
    return None if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal() else UNBOUND


def show_table(table: "Table", unbound: int = UNBOUND) -> None:
    """Print a table. Without a terminal, the blanks that rich adds at the end of lines are removed.

    Parameters
    ----------
    table
        The table to print.
    unbound
        Width in columns without a terminal.
    """
    from rich.console import Console

    if sys.stdout.isatty():
        Console().print(table)
        return
    text = io.StringIO()
    Console(file=text, width=unbound if columns() else None).print(table)
    print("\n".join(line.rstrip() for line in text.getvalue().splitlines()))


def span(seconds: float | None) -> str:
    """A time span as minutes and seconds, or hours, minutes and seconds."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
