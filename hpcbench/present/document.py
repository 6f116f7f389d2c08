"""Results for readers, without a format: chapters of tables, sentences and figures."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, TypeVar

Tone = Literal["", "good", "warning", "bad", "strong"]


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    """Name of the column, unique in its table: letters, digits and underscores, the same in every version."""
    head: str
    """Text above the column, with the unit."""
    text: bool = False
    """Whether the column contains text, which may wrap, and not figures."""
    group: int = 0
    """Group of the column.

    Columns of a group stay together if a table is too wide; the first column then begins each part.
    """
    help: str = ""
    """Meaning of the column, in a sentence."""


@dataclass(frozen=True)
class Entry:
    """The content of one row in one column."""

    shown: str = "-"
    """The value in the form that a person reads."""
    value: float | str | None = None
    """The value, not rounded and in the base unit (s, B, FLOP/s), for sorting and for programs.

    None if it is not known.
    """
    tone: Tone = ""
    source: str | None = None
    """``file:line`` where it was read."""


@dataclass(frozen=True)
class Table:
    """Rows of entries under columns."""

    name: str
    """Name of the table: letters, digits and hyphens. Chapters may have tables of the same name."""
    title: str
    """Title of the table; empty if its chapter's title is enough."""
    columns: tuple[Column, ...]
    rows: tuple[tuple[Entry, ...], ...]
    notes: tuple[str, ...] = ()
    """Sentences below the table."""
    group: str = ""
    """Title of the group of details that it belongs to; empty if readers need it at once. Pages fold groups."""


@dataclass(frozen=True)
class Sentences:
    """Plain sentences, one a line."""

    lines: tuple[str, ...]
    tone: Tone = ""
    group: str = ""


@dataclass(frozen=True)
class Figure:
    """A plot. It is drawn when a format asks for it, because nothing else needs matplotlib."""

    name: str
    title: str
    caption: str
    """What the plot shows and what its marks mean, for print and for readers who cannot see it."""
    draw: Callable[[Any], None]
    """Function that draws into a ``matplotlib.figure.Figure`` and sets its size."""
    group: str = ""


Block = Table | Sentences | Figure


@dataclass(frozen=True)
class Chapter:
    """Blocks under one title, such as those about the schemes of one cell."""

    title: str
    subtitle: str
    blocks: tuple[Block, ...]


def make_chapter(title: str, subtitle: str, blocks: Iterable[Block | None]) -> Chapter:
    """Return a chapter of those blocks that have something to show."""
    return Chapter(title, subtitle, tuple(block for block in blocks if block is not None and not _is_empty(block)))


def _is_empty(block: Block) -> bool:
    return not (block.lines if isinstance(block, Sentences) else block.rows if isinstance(block, Table) else True)


@dataclass(frozen=True)
class Document:
    """The results of a command."""

    title: str
    chapters: tuple[Chapter, ...]


Item = TypeVar("Item")
Field = tuple[Column, Callable[[Item], Entry]]
"""A column, and a function that gives its entry for an item."""


def tabulate(
    name: str,
    title: str,
    items: Sequence[Item],
    fields: Sequence[Field[Item]],
    *,
    notes: Sequence[str] = (),
    always: int = 1,
) -> Table | None:
    """Make a table with a row for each item, without columns in which no item has a value.

    Parameters
    ----------
    name, title, notes
        Name, title and notes of the table.
    items
        Items of the rows.
    fields
        Columns of the table.
    always
        Number of first columns that are kept even if they are empty. If no other column has a value, None is returned.
    """
    filled = [(column, [entry(item) for item in items]) for column, entry in fields]
    has_values = [any(entry.value is not None for entry in entries) for _, entries in filled[always:]]
    if not items or (has_values and not any(has_values)):
        return None
    shown = filled[:always] + [pair for pair, is_filled in zip(filled[always:], has_values, strict=True) if is_filled]
    rows = tuple(zip(*(entries for _, entries in shown), strict=True))
    return Table(name, title, tuple(column for column, _ in shown), rows, tuple(notes))


LONGEST_NAME = 24
"""Largest number of letters of the first column in a line. It is repeated in each part, and longer names are folded."""
_LONGEST_WORDS = 16
"""Smallest width of a column of words in letters. Longer words wrap."""

Part = tuple[int, ...]
"""Indices of the columns that are shown side by side."""


def parts(table: Table, width: int, gap: int, length: Callable[[str], int] = len) -> list[Part]:
    """Split the columns of a table so that each part fits, if that is possible.

    Parameters
    ----------
    table
        The table.
    width
        Available columns of text.
    gap
        Blanks between two columns of the table.
    length
        Function that returns the columns of text that some words take.
    """
    need = _needs(table, length)
    others = range(1, len(table.columns))
    groups = [tuple(members) for _, members in groupby(others, key=lambda i: table.columns[i].group)]
    split: list[Part] = []
    for group in groups:
        fits = _width((0, *group), need, gap) <= width
        for piece in [group] if fits else [(i,) for i in group]:
            # A group that does not fit begins a new part. The groups before it do not change.
            apart = not split or (not fits and piece == group[:1])
            if apart or _width((*split[-1], *piece), need, gap) > width:
                split.append((0, *piece))
            else:
                split[-1] += piece
    return split or [(0,)]


def _width(part: Part, need: list[int], gap: int) -> int:
    return sum(need[i] for i in part) + gap * (len(part) - 1)


def _needs(table: Table, length: Callable[[str], int]) -> list[int]:
    needs = []
    for i, column in enumerate(table.columns):
        widest = max((length(row[i].shown) for row in table.rows), default=0)
        if i == 0:
            needs.append(min(max(widest, length(column.head)), LONGEST_NAME))
        else:
            needs.append(max(min(widest, _LONGEST_WORDS) if column.text else widest, length(column.head)))
    return needs
