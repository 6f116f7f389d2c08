"""A table from its columns, each with what stands in it."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from hpcbench.report.document import Column, Entry, Table

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
