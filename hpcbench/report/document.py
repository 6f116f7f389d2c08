"""What a report says, before anything says how: chapters of tables, sentences and figures.

The tables of ``report.tables`` and the figures of ``report.plots`` make it; each writer of ``report.formats`` shows it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

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
