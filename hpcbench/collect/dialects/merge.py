"""Merging of lines that belong to the same step into one record.

The lines may come from different ranks or be of different kinds.
"""

from bisect import bisect
from dataclasses import dataclass, field
from typing import Any

from hpcbench.collect.dialects.assemble import LogRecord
from hpcbench.collect.dialects.dialect import Line
from hpcbench.collect.dialects.units import Value
from hpcbench.collect.run_log import RunLog
from hpcbench.contract.damaged_line import DamagedLine
from hpcbench.contract.events import Evaluation
from hpcbench.contract.step_line import Step


@dataclass
class _MergedRecord:
    line: int
    order: int
    rank: int | None
    steps: int | None
    values: dict[str, Value]
    kinds: set[Line]
    """Kinds of the lines that contained the values."""


@dataclass
class Merge:
    """Steps and evaluations read so far. Rank 0's value of a quantity takes precedence over the first printed value."""

    since_last: set[str]
    """Quantities that are counted since the previous line. The values of these quantities are summed."""
    overflows: list[int] = field(default_factory=list)
    """Positions in the file at which a skipped step is reported, one for each step."""
    _steps: dict[int, _MergedRecord] = field(default_factory=dict)
    _evaluations: dict[tuple[int | None, str], list[_MergedRecord]] = field(default_factory=dict)
    _ranks: int = 0
    _again: int = 0

    def step(self, step: int, record: LogRecord) -> None:
        """Add the values that a line contains for a step."""
        mine = _to_merged(record, record.values or {})
        merged = self._steps.setdefault(step, mine)
        if merged is mine:
            return
        if not merged.kinds.isdisjoint(mine.kinds) and not merged.values.keys().isdisjoint(mine.values):
            self._ranks += mine.rank != merged.rank
            self._again += mine.rank == merged.rank
        first, second = (mine, merged) if mine.rank == 0 and merged.rank != 0 else (merged, mine)
        first.values = second.values | first.values
        first.kinds |= second.kinds
        first.steps = second.steps if first.steps is None else first.steps
        self._steps[step] = first

    def missing(self, values: dict[str, Value]) -> dict[str, Value]:
        """Return those of the values whose quantity no step contains."""
        present = {name for merged in self._steps.values() for name in merged.values}
        return {name: value for name, value in values.items() if name not in present}

    def evaluation(self, step: int | None, record: LogRecord) -> None:
        """Add an evaluation.

        A rank may evaluate several times after a step. Other ranks report the same evaluations, which are not added
        again.
        """
        suffix = f"-{record.groups['set']}" if record.groups.get("set") else ""
        for split, loss in (record.values or {}).items():
            mine = _to_merged(record, {"loss": loss})
            earlier = self._evaluations.setdefault((step, split + suffix), [])
            if earlier and earlier[0].rank != mine.rank:
                self._ranks += 1
                if mine.rank == 0:
                    earlier[:] = [mine]
            else:
                earlier.append(mine)

    def into(self, log: RunLog) -> None:
        """Add all records to a log, in line order.

        More lines may be read afterwards, and all records may be added to another log.
        """
        total = dict.fromkeys(self.since_last, 0)
        for step, merged in sorted(self._steps.items(), key=lambda item: item[1].order):
            quantities: dict[str, Any] = dict(merged.values)
            for name in total.keys() & quantities.keys():
                total[name] += int(quantities[name])
                quantities[name] = total[name]
            skipped = bisect(self.overflows, merged.order)
            if skipped and "skipped" not in quantities:
                quantities["skipped"] = skipped
            log.steps.add(Step(step, merged.steps, line=merged.line, **quantities))
        for (after, split), evaluations in self._evaluations.items():
            for merged in evaluations:
                log.events.append(Evaluation(line=merged.line, step=after, split=split, loss=merged.values["loss"]))
        log.events.sort(key=lambda event: event.line)

    def remarks(self) -> list[DamagedLine]:
        """Return notes about omitted lines."""
        notes = []
        if self._ranks:
            notes.append(
                DamagedLine(
                    1,
                    f"lines of other ranks that were skipped: {self._ranks} (the line of rank 0 is used, or the first "
                    "line without one)",
                )
            )
        if self._again:
            notes.append(
                DamagedLine(1, f"lines that were skipped because their steps were already read: {self._again}")
            )
        return notes


def _to_merged(record: LogRecord, values: dict[str, Value]) -> _MergedRecord:
    return _MergedRecord(record.number, record.order, record.rank, record.group("steps"), values, {record.line})
