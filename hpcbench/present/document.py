"""Format-independent documents: chapters of tables, sentences and figures."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, TypeVar

Tone = Literal["", "good", "warning", "bad", "strong"]


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    """Unique name within the table: letters, digits and underscores. Names do not change between versions."""
    head: str
    """Column header, including the unit."""
    text: bool = False
    """Whether the column contains text. Text may wrap, unlike numbers."""
    group: int = 0
    """Group of the column.

    If a table is too wide, the columns of a group stay together, and each part repeats the first column.
    """
    help: str = ""
    """One-sentence description of the column."""


@dataclass(frozen=True)
class Entry:
    """Table cell."""

    shown: str = "-"
    """Formatted value."""
    value: float | str | None = None
    """Unrounded value in the base unit (s, B, FLOP/s), used for sorting and machine-readable output.

    The value is None if it is unknown.
    """
    tone: Tone = ""
    source: str | None = None
    """Origin of the value as ``file:line``."""


@dataclass(frozen=True)
class Table:
    """Columns and rows of a table."""

    name: str
    """Name of the table: letters, digits and hyphens. Tables of different chapters may share a name."""
    title: str
    """Title of the table, or an empty string if the chapter title suffices."""
    columns: tuple[Column, ...]
    rows: tuple[tuple[Entry, ...], ...]
    notes: tuple[str, ...] = ()
    """Sentences below the table."""
    group: str = ""
    """Title of the details group, or an empty string for tables that are always visible.

    HTML pages show groups collapsed.
    """


@dataclass(frozen=True)
class Sentences:
    """Plain sentences, one per line."""

    lines: tuple[str, ...]
    tone: Tone = ""
    group: str = ""


@dataclass(frozen=True)
class Figure:
    """A plot, drawn on demand, so that matplotlib is imported only if a format shows figures."""

    name: str
    title: str
    caption: str
    """Description of the plot and its markers, used as caption and alternative text."""
    draw: Callable[[Any], None]
    """Function that draws into a ``matplotlib.figure.Figure`` and sets the figure size."""
    group: str = ""


Block = Table | Sentences | Figure


@dataclass(frozen=True)
class Chapter:
    """Blocks under a common title, such as all blocks about one cell."""

    title: str
    subtitle: str
    blocks: tuple[Block, ...]


def make_chapter(title: str, subtitle: str, blocks: Iterable[Block | None]) -> Chapter:
    """Return the chapter without its empty blocks."""
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
"""A column, and a function that returns an item's entry in this column."""


def tabulate(
    name: str,
    title: str,
    items: Sequence[Item],
    fields: Sequence[Field[Item]],
    *,
    notes: Sequence[str] = (),
    always: int = 1,
) -> Table | None:
    """Make a table with one row per item, omitting columns without values.

    Parameters
    ----------
    name, title, notes
        Name, title and notes of the table.
    items
        Items, one per row.
    fields
        Columns of the table.
    always
        Number of leading columns that are kept even if empty. If all other columns are empty, None is returned.
    """
    filled = [(column, [entry(item) for item in items]) for column, entry in fields]
    has_values = [any(entry.value is not None for entry in entries) for _, entries in filled[always:]]
    if not items or (has_values and not any(has_values)):
        return None
    shown = filled[:always] + [pair for pair, is_filled in zip(filled[always:], has_values, strict=True) if is_filled]
    rows = tuple(zip(*(entries for _, entries in shown), strict=True))
    return Table(name, title, tuple(column for column, _ in shown), rows, tuple(notes))


LONGEST_NAME = 24
"""Maximum width of the first column in characters. Longer names wrap. If a table is split, each part repeats this
column."""
_LONGEST_WORDS = 16
"""Minimum width of a text column in characters. Longer texts wrap."""

Part = tuple[int, ...]
"""Indices of columns that are shown side by side."""


def parts(table: Table, width: int, gap: int, length: Callable[[str], int] = len) -> list[Part]:
    """Split the columns of a table into parts that fit the width, where possible.

    Parameters
    ----------
    table
        The table.
    width
        Available width in characters.
    gap
        Number of spaces between two columns.
    length
        Function that returns the width of a text in characters.
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
