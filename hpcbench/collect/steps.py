"""Column storage for the steps of a log. A report may read a million step records."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import compress
from operator import lt
from typing import Any

from hpcbench.contract.step_line import QUANTITIES, TYPECODES, Step

COLUMNS = tuple(quantity.name for quantity in QUANTITIES)
"""Names of all step quantities."""


class Steps(Mapping[int, Step]):
    """Step records keyed by step number, in file order. Records are created on access."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove all records."""
        self._columns = {"step": _Column("step"), "line": _Column("line")}
        self._highest = -1
        # Row of each step. None while the step numbers increase, because bisection then finds the row.
        self._rows: dict[int, int] | None = None

    def add(self, record: Step) -> Step:
        """Store a record, unless the step already has one. Return the stored record.

        Raises
        ------
        OverflowError
            A number does not fit in 64 bits. No part of the record is stored.
        """
        row = self._row(record.step)
        if row is not None:
            return self._record(row)
        given = {name: value for name, value in vars(record).items() if value is not None}
        self._append({name: array(TYPECODES[name], (value,)) for name, value in given.items()})
        return record

    def extend(self, columns: Mapping[str, "array[Any]"]) -> bool:
        """Store many records at once if the step numbers increase. Otherwise store none.

        Parameters
        ----------
        columns
            Values keyed by attribute of `Step`, in nonempty arrays that have the same length and the types in
            `TYPECODES`. ``step`` and ``line`` are required.

        Returns
        -------
        bool
            Whether the records were stored.
        """
        numbers = columns["step"]
        if not self._is_above(numbers[0]) or not all(map(lt, numbers, numbers[1:])):
            return False
        self._append(columns)
        return True

    def __getitem__(self, step: int) -> Step:
        row = self._row(step)
        if row is None:
            raise KeyError(step)
        return self._record(row)

    def __contains__(self, step: object) -> bool:
        return isinstance(step, int) and self._row(step) is not None

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def last(self) -> Step | None:
        """Record of the highest step."""
        return self._record(self._highest) if self else None

    def column(self, name: str, *, first: int = 0) -> list[float]:
        """Return the values of a quantity for all steps from `first` on, in file order.

        Steps without a value are omitted.

        Parameters
        ----------
        name
            One of `COLUMNS`, ``step`` or ``line``.
        first
            First step number.

        Raises
        ------
        KeyError
            There is no such quantity.
        """
        return self.aligned(name, first=first)[0]

    def columns(self, *names: str, first: int = 0) -> list[tuple[float, ...]]:
        """For each step from `first` on that contains all quantities, return a tuple of their values."""
        return list(zip(*self.aligned(*names, first=first), strict=True))

    def aligned(self, *names: str, first: int = 0) -> list[list[float]]:
        """Return the same values as `columns`, but as one list per quantity instead of one tuple per step."""
        columns = [self._columns.get(name) or _Column(name) for name in names]
        begin = bisect_left(self._numbers, first) if self._rows is None else 0
        end = min(len(column.values) for column in columns)
        masks = [column.present[begin:end] for column in columns if column.present is not None]
        if self._rows is not None:
            masks.append(bytearray(step >= first for step in self._numbers[begin:end]))
        values = [column.values[begin:end].tolist() for column in columns]
        if masks:
            complete = [all(row) for row in zip(*masks, strict=True)]
            values = [list(compress(column, complete)) for column in values]
        return values

    @property
    def _numbers(self) -> "array[int]":
        return self._columns["step"].values

    def _is_above(self, step: int) -> bool:
        return not self or self._numbers[self._highest] < step

    def _row(self, step: int) -> int | None:
        if self._rows is not None:
            return self._rows.get(step)
        row = bisect_left(self._numbers, step)
        return row if row < len(self) and self._numbers[row] == step else None

    def _record(self, row: int) -> Step:
        return Step(**{name: column.at(row) for name, column in self._columns.items()})

    def _append(self, columns: Mapping[str, "array[Any]"]) -> None:
        begin, numbers = len(self), columns["step"]
        above = self._is_above(numbers[0])
        if not above and self._rows is None:
            self._rows = {step: row for row, step in enumerate(self._numbers)}
        for name, values in columns.items():
            if name not in self._columns:
                self._columns[name] = _Column(name)
            self._columns[name].extend(begin, values)
        if self._rows is not None:
            self._rows.update(zip(numbers, range(begin, len(self)), strict=True))
        if above:
            self._highest = len(self) - 1


class _Column:
    """Values of one quantity, up to the last row with a value."""

    def __init__(self, name: str) -> None:
        self.values: array[Any] = array(TYPECODES[name])
        self.present: bytearray | None = None
        """Whether each row has a value, or None if all rows do."""

    def extend(self, row: int, values: "array[Any]") -> None:
        """Store values from `row` on. Skipped rows have no value."""
        missing = row - len(self.values)
        if missing:
            self.present = bytearray(b"\1") * len(self.values) if self.present is None else self.present
            self.present += bytes(missing)
            self.values.frombytes(bytes(missing * values.itemsize))
        if self.present is not None:
            self.present += b"\1" * len(values)
        self.values.extend(values)

    def at(self, row: int) -> Any:
        """Return the value of a row, or None if it is missing."""
        there = row < len(self.values) and (self.present is None or self.present[row])
        return self.values[row] if there else None
