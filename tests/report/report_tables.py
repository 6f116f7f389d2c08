"""Access to the cells and tables of reports."""

from pathlib import Path

from hpcbench.present.document import Document, Entry, Table
from hpcbench.report.build import build
from hpcbench.report.compare import Cell
from hpcbench.report.sections import read


def cells(root: Path) -> list[Cell]:
    """Return the cells of a submission or log."""
    ((_, compared_cells),) = read([root]).sections
    return compared_cells


def cell(root: Path) -> Cell:
    """Return the only cell of a submission or log."""
    (only,) = cells(root)
    return only


def tables(document: Document, name: str) -> list[Table]:
    """Return the tables of this name."""
    blocks = [block for chapter in document.chapters for block in chapter.blocks]
    return [block for block in blocks if isinstance(block, Table) and block.name == name]


def entries(document: Document, name: str) -> dict[str, dict[str, Entry]]:
    """Return the entries of the named tables, by the first value of row and column.

    If no such table exists, return an empty result.
    """
    values_by_name = {}
    for shown in tables(document, name):
        names = [column.name for column in shown.columns]
        values_by_name |= {str(row[0].value): dict(zip(names, row, strict=True)) for row in shown.rows}
    return values_by_name


def table(root: Path, name: str) -> dict[str, dict[str, Entry]]:
    """Return the entries of a submission's table by scheme and column."""
    return entries(build(read([root]).sections, [name]), name)
