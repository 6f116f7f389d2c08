"""Access to the entries of report tables."""

from hpcbench.present.document import Document, Entry, Table


def entries(document: Document, name: str) -> dict[str, dict[str, Entry]]:
    """Return the entries of the named tables, by the first value of row and column.

    If no such table exists, return an empty result.
    """
    blocks = [block for chapter in document.chapters for block in chapter.blocks]
    values_by_name = {}
    for table in (block for block in blocks if isinstance(block, Table) and block.name == name):
        names = [column.name for column in table.columns]
        values_by_name |= {str(row[0].value): dict(zip(names, row, strict=True)) for row in table.rows}
    return values_by_name
