"""Merges several lines of one step, from several ranks or of several kinds, into one record."""

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
class _Kept:
    line: int
    order: int
    rank: int | None
    steps: int | None
    values: dict[str, Value]
    kinds: set[Line]
    """The kinds of lines that gave the values."""


@dataclass
class Merge:
    """The steps and evaluations so far. Each quantity has rank 0's value, else the first that was printed."""

    since_last: set[str]
    """Quantities that are counted from one line to the next, and are summed here."""
    overflows: list[int] = field(default_factory=list)
    """Places in the file that each tell of one skipped step."""
    _steps: dict[int, _Kept] = field(default_factory=dict)
    _evaluations: dict[tuple[int | None, str], list[_Kept]] = field(default_factory=dict)
    _ranks: int = 0
    _again: int = 0

    def step(self, step: int, found: LogRecord) -> None:
        """Add the values that one line gives for a step."""
        mine = _kept(found, found.values or {})
        kept = self._steps.setdefault(step, mine)
        if kept is mine:
            return
        if not kept.kinds.isdisjoint(mine.kinds) and not kept.values.keys().isdisjoint(mine.values):
            self._ranks += mine.rank != kept.rank
            self._again += mine.rank == kept.rank
        first, second = (mine, kept) if mine.rank == 0 and kept.rank != 0 else (kept, mine)
        first.values = second.values | first.values
        first.kinds |= second.kinds
        first.steps = second.steps if first.steps is None else first.steps
        self._steps[step] = first

    def missing(self, values: dict[str, Value]) -> dict[str, Value]:
        """Return the values of quantities that no step has."""
        present = {name for kept in self._steps.values() for name in kept.values}
        return {name: value for name, value in values.items() if name not in present}

    def evaluation(self, step: int | None, found: LogRecord) -> None:
        """Add an evaluation.

        One rank may make several after a step. Those of other ranks are the same evaluations.
        """
        suffix = f"-{found.groups['set']}" if found.groups.get("set") else ""
        for split, loss in (found.values or {}).items():
            mine = _kept(found, {"loss": loss})
            kept = self._evaluations.setdefault((step, split + suffix), [])
            if kept and kept[0].rank != mine.rank:
                self._ranks += 1
                if mine.rank == 0:
                    kept[:] = [mine]
            else:
                kept.append(mine)

    def into(self, log: RunLog) -> None:
        """Give all records to a log, in the order of its lines. More lines may follow, and be given to another log."""
        total = dict.fromkeys(self.since_last, 0)
        for step, kept in sorted(self._steps.items(), key=lambda item: item[1].order):
            quantities: dict[str, Any] = dict(kept.values)
            for name in total.keys() & quantities.keys():
                total[name] += int(quantities[name])
                quantities[name] = total[name]
            skipped = bisect(self.overflows, kept.order)
            if skipped and "skipped" not in quantities:
                quantities["skipped"] = skipped
            log.steps.add(Step(step, kept.steps, line=kept.line, **quantities))
        for (after, split), evaluations in self._evaluations.items():
            for kept in evaluations:
                log.events.append(Evaluation(line=kept.line, step=after, split=split, loss=kept.values["loss"]))
        log.events.sort(key=lambda event: event.line)

    def remarks(self) -> list[DamagedLine]:
        """Notes about lines that were left out."""
        found = []
        if self._ranks:
            found.append(
                DamagedLine(1, f"lines of other ranks left out: {self._ranks}; rank 0's is used, else the first")
            )
        if self._again:
            found.append(DamagedLine(1, f"lines left out because their steps stand above:  {self._again}"))
        return found


def _kept(found: LogRecord, values: dict[str, Value]) -> _Kept:
    return _Kept(found.number, found.order, found.rank, found.group("steps"), values, {found.line})
