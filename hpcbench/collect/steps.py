"""The steps of a log, kept as columns: a thousand logs of a thousand steps are a million records."""

from collections.abc import Iterator, Mapping
from dataclasses import fields

from hpcbench.collect.record import StepRecord

COLUMNS = tuple(field.name for field in fields(StepRecord) if field.name not in ("line", "step", "steps"))
"""The quantities that a step may have."""


class Steps(Mapping[int, StepRecord]):
    """Step number -> record, in the order of the file."""

    def __init__(self) -> None:
        self._records: dict[int, StepRecord] = {}

    def add(self, record: StepRecord) -> StepRecord:
        """Keep a record, unless its step is there; returns the one that is kept."""
        return self._records.setdefault(record.step, record)

    def clear(self) -> None:
        """Forget all."""
        self._records.clear()

    def __getitem__(self, step: int) -> StepRecord:
        return self._records[step]

    def __iter__(self) -> Iterator[int]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def last(self) -> StepRecord | None:
        """The record of the highest step."""
        return self._records[max(self._records)] if self._records else None

    def column(self, name: str, *, first: int = 0) -> list[float]:
        """One quantity of the steps from number `first` on, in the order of the file; steps that lack it are left out.

        Parameters
        ----------
        name
            One of `COLUMNS`, or ``step``.
        first
            Step number to begin with.
        """
        values = (getattr(record, name) for step, record in self._records.items() if step >= first)
        return [value for value in values if value is not None]

    def columns(self, *names: str, first: int = 0) -> list[tuple[float, ...]]:
        """Several quantities side by side, of the steps from number `first` on that have all of them."""
        rows = []
        for step, record in self._records.items():
            if step >= first:
                row = tuple(getattr(record, name) for name in names)
                if None not in row:
                    rows.append(row)
        return rows
