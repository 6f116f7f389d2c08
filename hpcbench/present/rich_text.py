"""Terminal output, fitted to the terminal width."""

import io
import sys
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from hpcbench.console import UNBOUND, columns
from hpcbench.contract.text import make_printable
from hpcbench.present.document import LONGEST_NAME, Document, Entry, Part, Sentences, Table, Tone, parts

_GAP, _NARROW_GAP = 3, 2
_LONGEST = 600
_STYLES: dict[Tone, str] = {"": "", "good": "green", "warning": "yellow", "bad": "red", "strong": "bold"}
SYMBOLS: dict[Tone, str] = {"good": "+ ", "warning": "? ", "bad": "! "}
"""Symbols before table text, for readers who do not see colors. ASCII works on every terminal."""


def show(document: Document) -> None:
    """Print a document. Output to files and pipes has no colors and no trailing blanks."""
    console = Console(width=columns(), highlight=False)
    if console.is_terminal:
        _print(document, console)
    else:
        sys.stdout.write(write(document, console.width))


def write(document: Document, width: int = UNBOUND) -> str:
    """Return a document as text without colors, `width` characters wide."""
    page = io.StringIO()
    _print(document, Console(file=page, width=width, highlight=False, force_terminal=False))
    return "".join(line.rstrip() + "\n" for line in page.getvalue().splitlines())


def _print(document: Document, console: Console) -> None:
    for i, chapter in enumerate(document.chapters):
        if i:
            console.print()
        _heading([chapter.title, chapter.subtitle], console)
        group = ""
        for k, block in enumerate(chapter.blocks):
            if block.group != group:
                group = block.group
                console.print()
                console.print(Text(group, style="bold underline"))
            if isinstance(block, Table):
                if k and not block.title:
                    console.print()
                _table(block, console)
            elif isinstance(block, Sentences):
                follows = k > 0 and isinstance(chapter.blocks[k - 1], Sentences)
                _sentences(block.lines, console, _STYLES[block.tone], apart=bool(k or chapter.title) and not follows)


def _heading(lines: Sequence[str], console: Console) -> None:
    printable = [make_printable(line, _LONGEST) for line in lines if line]
    one_line = "      ".join(printable)
    for line in [one_line] if printable and len(one_line) <= console.width else printable:
        console.print(Text(line, style="bold"))


def _table(table: Table, console: Console) -> None:
    if table.title:
        console.print()
        console.print(Text(make_printable(table.title, _LONGEST), style="bold"))
    table_parts = parts(table, console.width, _GAP, cell_len)
    gap = _GAP
    if len(table_parts) > 1:
        table_parts, gap = parts(table, console.width, _NARROW_GAP, cell_len), _NARROW_GAP
    for i, part in enumerate(table_parts):
        if i:
            console.print()
        console.print(_grid(table, part, gap))
    _sentences(table.notes, console)


def _grid(table: Table, part: Part, gap: int) -> Grid:
    """Return one part of a table. The first column and text columns may wrap, but numeric columns do not."""
    grid = Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for i in part:
        column = table.columns[i]
        head = Text(make_printable(column.head))
        if i == 0 or column.text:
            grid.add_column(head, overflow="fold", max_width=LONGEST_NAME if i == 0 else None)
        else:
            grid.add_column(head, justify="right", no_wrap=True)
    for row in table.rows:
        grid.add_row(*(_show_entry(row[i], is_words=table.columns[i].text) for i in part))
    return grid


def _show_entry(entry: Entry, *, is_words: bool) -> Text:
    symbol = SYMBOLS.get(entry.tone, "") if is_words and entry.value is not None else ""
    return Text(make_printable(symbol + entry.shown), style=_STYLES[entry.tone])


def _sentences(lines: Sequence[str], console: Console, style: str = "", *, apart: bool = True) -> None:
    for i, line in enumerate(lines):
        if i == 0 and apart:
            console.print()
        console.print(Text(make_printable(line, _LONGEST), style=style))
