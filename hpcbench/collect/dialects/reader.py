"""Reader that converts lines of another framework to a `RunLog`."""

import math
from dataclasses import replace
from pathlib import Path

from hpcbench.collect.dialects.assemble import Assembler, LogRecord
from hpcbench.collect.dialects.dialect import Dialect
from hpcbench.collect.dialects.merge import Merge
from hpcbench.collect.dialects.texts import LONGEST_LINE, Text
from hpcbench.collect.dialects.units import Value
from hpcbench.collect.run_log import MOST_NOTES, RunLog
from hpcbench.collect.steps import Steps
from hpcbench.contract.damaged_line import DamagedLine
from hpcbench.contract.events import End
from hpcbench.contract.step_line import Step

_MANY_SKIPPED = 0.5
"""Fraction of skipped steps above which a note is added. The initial search for a loss scale skips fewer steps, except
in short logs."""


class DialectReader:
    """Line-by-line reader of a log. The memory use grows only with the number of steps.

    Parameters
    ----------
    path
        Path to store in the records. No file is opened here.
    dialect
        Dialect of the lines.
    """

    def __init__(self, path: Path, dialect: Dialect) -> None:
        self.log = RunLog(path, dialect.name)
        self._assembler = Assembler(dialect)
        self._merge = Merge({field.attribute for line in dialect.lines for field in line.fields if field.since_last})
        self._end: End | None = None
        self._last = 0
        self._overflowed: int | None = None
        self._ahead: dict[str, Value] = {}
        self._line_notes: dict[str, None] = {}

    def feed(self, text: Text) -> None:
        """Process the next line of the file."""
        self.log.lines = text.number
        if text.text is None:
            self.log.note(DamagedLine(text.number, f"a line of more than {LONGEST_LINE >> 20} MiB was skipped"))
            return
        for record in self._assembler.feed(text):
            self._take(record)

    def close(self) -> RunLog:
        """Finish the file."""
        log = self.log
        for record in self._assembler.close():
            self._take(record)
            log.cut = log.cut or (record.values is None and record.number == log.lines)
        self._merge.into(log)
        log.notes[:0] = [
            *(DamagedLine(1, note) for note in self._line_notes),
            *self._merge.remarks(),
            *_skipped(log.last_step),
        ]
        del log.notes[MOST_NOTES:]
        if end := self._how_it_ended(log.last_step):
            log.events.append(end)
        return log

    def so_far(self) -> RunLog:
        """Return the log of the lines read so far. A record that may continue on the next line is left out."""
        log = replace(self.log, steps=Steps(), events=[], notes=list(self.log.notes))
        self._merge.into(log)
        return log

    def _take(self, record: LogRecord) -> None:
        line = record.line
        step = record.before if record.group("step") is None else record.group("step")
        if line.kind == "end":
            self._end = End(line=record.number, state=line.state, steps=None)
            record.values = self._merge.missing(record.values or {})
            if record.values and step is not None:
                self._take_step(step, record)
        elif line.kind == "precision":
            self.log.precisions[str(record.groups["part"])] = str(record.groups["format"])
        elif line.ahead:
            self._ahead = self._ahead or record.values or {}
        elif line.kind == "overflow":
            self._overflow(record)
        elif record.values is None:
            what = "an evaluation" if line.kind == "evaluation" else f"step {step}"
            self.log.note(DamagedLine(record.number, f"the line of {what} is truncated"))
            self._ahead_of(record)
        elif line.kind == "evaluation":
            self._merge.evaluation(step, record)
        elif step is not None:
            self._take_step(step, record)
        if line.kind == "step":
            self._last = max(self._last, record.number)

    def _take_step(self, step: int, record: LogRecord) -> None:
        record.values = {**self._ahead_of(record), **(record.values or {})}
        self._merge.step(step, record)
        means = {field.attribute for field in record.line.fields if field.running_mean}
        self.log.running_means |= means & record.values.keys()
        if record.line.note:
            self._line_notes[record.line.note] = None

    def _ahead_of(self, record: LogRecord) -> dict[str, Value]:
        """Return the values that were printed before the line of the step to which they belong."""
        if record.group("step") is None:
            return {}
        values, self._ahead = self._ahead, {}
        return values

    def _overflow(self, record: LogRecord) -> None:
        """Count an overflow. Several ranks may report the same overflow, so only one rank's reports count."""
        rank = record.rank if record.group("rank") is None else record.group("rank")
        if not self._merge.overflows:
            self._overflowed = rank
        if rank == self._overflowed:
            self._merge.overflows.append(record.order)

    def _how_it_ended(self, last: Step | None) -> End | None:
        """Return how the run ended, as reported by the framework.

        If further steps follow the report, the report is ignored and the last step is used.
        """
        end = self._end if self._end is not None and self._end.line > self._last else None
        if end is None and last is not None and last.step == last.steps:
            end = End(line=last.line, state="completed", steps=None)
        if end is not None and last is not None:
            diverged = last.loss is not None and not math.isfinite(last.loss)
            end = replace(end, steps=last.step, state="nan" if diverged else end.state)
        return end


def _skipped(last: Step | None) -> list[DamagedLine]:
    """Return a note if most steps were skipped, because such a run barely trained."""
    skipped = last.skipped or 0 if last is not None else 0
    if last is None or skipped <= _MANY_SKIPPED * last.step:
        return []
    # Fewer steps are counted here than by the engine that skips steps.
    of_all = f" of {last.step} steps were skipped ({100 * skipped / max(last.step, 1):.0f} %)"
    fraction = of_all if skipped <= last.step else " steps were skipped"
    return [DamagedLine(last.line, f"{skipped}{fraction}: they took time, but did not change the weights")]
