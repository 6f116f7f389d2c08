"""Several lines of one step, of several ranks or of several kinds, become one record."""

from dataclasses import dataclass, field
from typing import Any

from hpcbench.collect.dialects.units import Value
from hpcbench.collect.record import StepRecord
from hpcbench.collect.run_log import RunLog


@dataclass
class _Kept:
    line: int
    rank: int | None
    steps: int | None
    values: dict[str, Value]
    overflows: int
    """Steps that were reported as skipped before this one."""


@dataclass
class Merge:
    """The steps so far: of each quantity rank 0's value, else the first that was printed."""

    since_last: set[str]
    """Quantities that are counted from one line to the next, and become sums here."""
    overflows: int = 0
    """Steps that have been reported as skipped, each in a line of its own."""
    _steps: dict[int, _Kept] = field(default_factory=dict)
    _ranks: int = 0
    _again: int = 0

    def add(
        self,
        step: int,
        steps: int | None,
        rank: int | None,
        line: int,
        values: dict[str, Value],
    ) -> None:
        """Add what one line says of a step."""
        kept = self._steps.get(step)
        if kept is None:
            self._steps[step] = _Kept(line, rank, steps, values, self.overflows)
            return
        if not kept.values.keys().isdisjoint(values):
            self._ranks += rank != kept.rank
            self._again += rank == kept.rank
        if rank == 0 and kept.rank != 0:
            kept.line, kept.rank, kept.values = line, rank, kept.values | values
        else:
            kept.values = values | kept.values
        kept.steps = steps if kept.steps is None else kept.steps

    def into(self, log: RunLog) -> None:
        """Give the steps to a log, in the order of its lines."""
        total = dict.fromkeys(self.since_last, 0)
        for step, kept in sorted(self._steps.items(), key=lambda item: item[1].line):
            for name in total:
                if name in kept.values:
                    total[name] += int(kept.values[name])
                    kept.values[name] = total[name]
            if kept.overflows and "skipped" not in kept.values:
                kept.values["skipped"] = kept.overflows
            quantities: dict[str, Any] = kept.values
            log.steps.add(StepRecord(kept.line, step, kept.steps, **quantities))

    def remarks(self) -> list[str]:
        """What was left out."""
        found = []
        if self._ranks:
            found.append(f"lines of other ranks left out: {self._ranks}; rank 0's is used, else the first of a step")
        if self._again:
            found.append(f"lines of steps that stand above already left out: {self._again}")
        return found
