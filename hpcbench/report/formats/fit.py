"""How a table that is too wide is parted: by groups of columns where that is enough, else by columns."""

from collections.abc import Callable
from itertools import groupby

from hpcbench.report.document import Table

LONGEST_NAME = 24
"""Letters of the first column in a line; it stands in each part, and is folded."""
_LONGEST_WORDS = 16
"""Letters that a column of words needs at least: it wraps."""

Part = tuple[int, ...]
"""Numbers of the columns that stand side by side."""


def parts(table: Table, width: int, gap: int, length: Callable[[str], int] = len) -> list[Part]:
    """Part the columns of a table so that each part fits, if any way of parting does.

    Parameters
    ----------
    table
        The table.
    width
        Columns of text that there are.
    gap
        Blanks between two columns of the table.
    length
        Columns of text that some words take.
    """
    need = _needs(table, length)
    rest = range(1, len(table.columns))
    groups = [tuple(members) for _, members in groupby(rest, key=lambda i: table.columns[i].group)]
    found: list[Part] = []
    for group in groups:
        whole = _width((0, *group), need, gap) <= width
        for piece in [group] if whole else [(i,) for i in group]:
            # What did not fit as a group begins a part of its own: the groups before it stay as they are.
            apart = not found or (not whole and piece == group[:1])
            if apart or _width((*found[-1], *piece), need, gap) > width:
                found.append((0, *piece))
            else:
                found[-1] += piece
    return found or [(0,)]


def _width(part: Part, need: list[int], gap: int) -> int:
    return sum(need[i] for i in part) + gap * (len(part) - 1)


def _needs(table: Table, length: Callable[[str], int]) -> list[int]:
    found = []
    for i, column in enumerate(table.columns):
        widest = max((length(row[i].shown) for row in table.rows), default=0)
        if i == 0:
            found.append(min(max(widest, length(column.head)), LONGEST_NAME))
        else:
            found.append(max(min(widest, _LONGEST_WORDS) if column.words else widest, length(column.head)))
    return found
