"""Console output: tables that fit the width of the terminal or file, and formatted time spans."""

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

UNBOUND = 160
"""Table width in columns if the output is not a terminal."""


def columns() -> int | None:
    """Return the output width in columns, or None to use the terminal width."""
    return None if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal() else UNBOUND


def show_table(table: "Table", unbound: int = UNBOUND) -> None:
    """Print a table. Without a terminal, the trailing blanks added by rich are removed.

    Parameters
    ----------
    table
        The table to print.
    unbound
        Table width in columns if the output is not a terminal.
    """
    from rich.console import Console

    if sys.stdout.isatty():
        Console().print(table)
        return
    text = io.StringIO()
    Console(file=text, width=unbound if columns() else None).print(table)
    print("\n".join(line.rstrip() for line in text.getvalue().splitlines()))


def span(seconds: float | None) -> str:
    """Format a time span as minutes and seconds, or as hours, minutes, and seconds."""
    if seconds is None:
        return "-"
    total = round(seconds)
    hours, minutes = divmod(total // 60, 60)
    return f"{hours}:{minutes:02}:{total % 60:02}" if hours else f"{minutes}:{total % 60:02}"
