"""What a report says, before anything says how: chapters of tables, sentences and figures.

The tables of ``report.tables`` and the figures of ``report.plots`` make it; each writer of ``report.formats`` shows it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, TypeVar

Tone = Literal["", "good", "warning", "bad", "strong"]


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    """Unique in its table: letters, digits and underscores, the same in every version."""
    head: str
    """What stands above it, with the unit."""
    words: bool = False
    """Words, which may wrap, and not figures."""
    group: int = 0
    """Columns of one group stay together where a table is too wide; the first column then begins each part."""
    help: str = ""
    """What the column means, in a sentence."""


@dataclass(frozen=True)
class Entry:
    """What stands in one row of one column."""

    shown: str = "-"
    """As a person reads it."""
    value: float | str | None = None
    """Unrounded, in the base unit (s, B, FLOP/s): what sorts and what programs read. None where nothing is known."""
    tone: Tone = ""
    source: str | None = None
    """``file:line`` that it was read from."""


@dataclass(frozen=True)
class Table:
    """Rows of entries under columns."""

    name: str
    """Letters, digits and hyphens; chapters may have tables of the same name."""
    title: str
    """Empty where the title of its chapter says it all."""
    columns: tuple[Column, ...]
    rows: tuple[tuple[Entry, ...], ...]
    notes: tuple[str, ...] = ()
    """Sentences that belong to it."""


@dataclass(frozen=True)
class Sentences:
    """Plain sentences, one a line."""

    lines: tuple[str, ...]
    tone: Tone = ""


@dataclass(frozen=True)
class Figure:
    """A plot. It is drawn when a format asks for it, because nobody else needs matplotlib."""

    name: str
    title: str
    caption: str
    """What is seen, and what the marks mean, for print and for those who cannot see it."""
    draw: Callable[[Any], None]
    """Draws into a ``matplotlib.figure.Figure``, which it gives a size."""


Block = Table | Sentences | Figure


@dataclass(frozen=True)
class Chapter:
    """What belongs together under one title, such as the schemes of one cell."""

    title: str
    subtitle: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    chapters: tuple[Chapter, ...]


Item = TypeVar("Item")
Field = tuple[Column, Callable[[Item], Entry]]
"""A column, and what stands in it for an item."""


def tabulate(
    name: str,
    title: str,
    items: Sequence[Item],
    fields: Sequence[Field[Item]],
    *,
    notes: Sequence[str] = (),
    always: int = 1,
) -> Table | None:
    """One row an item, without the columns in which no item has a value.

    Parameters
    ----------
    name, title, notes
        Of the table.
    items
        What its rows are of.
    fields
        Its columns.
    always
        Number of the first columns that are kept although empty. With no more than those there is no table.
    """
    made = [(column, [entry(item) for item in items]) for column, entry in fields]
    known = [any(entry.value is not None for entry in entries) for _, entries in made[always:]]
    if not items or (known and not any(known)):
        return None
    kept = made[:always] + [one for one, filled in zip(made[always:], known, strict=True) if filled]
    rows = tuple(zip(*(entries for _, entries in kept), strict=True))
    return Table(name, title, tuple(column for column, _ in kept), rows, tuple(notes))


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
