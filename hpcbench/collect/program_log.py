"""Reader of the log of a user's program, which contains the program's lines and hpcbench's events.

The lines are parsed with the dialect of the program's framework, or with the regular expressions in the study. A time
stamp precedes each line. If the program does not print its speed, the speed is computed from the time stamps.
"""

import re
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcbench.collect.dialects.prefix import plain
from hpcbench.collect.dialects.reader import DialectReader
from hpcbench.collect.dialects.table import DIALECTS
from hpcbench.collect.dialects.texts import LONGEST_LINE, Text
from hpcbench.collect.run_log import RunLog
from hpcbench.collect.steps import Steps
from hpcbench.contract import events
from hpcbench.contract.damaged_line import DamagedLine
from hpcbench.contract.events import Evaluation, Event, Start
from hpcbench.contract.program import LogForm, LogLines
from hpcbench.contract.settings import LoggedSettings
from hpcbench.contract.stamp import strip_stamp
from hpcbench.contract.step_line import TYPECODES, Step

OWN = "own lines"
"""Dialect name for lines that are described in a study."""
_SPEEDS = ("seconds", "samples_per_s", "tokens_per_s", "tokens_per_s_per_rank")


class _LinesReader:
    """Reader that matches lines against the regular expressions in a study."""

    def __init__(self, path: Path, form: LogLines) -> None:
        self.log = RunLog(path, OWN)
        self._every = form.every
        self._line = re.compile(form.line)
        self._evaluation = re.compile(form.evaluation) if form.evaluation is not None else None
        self._step = 0

    def feed(self, text: Text) -> None:
        """Process the next line."""
        self.log.lines = text.number
        if text.text is None or not text.ended:
            return
        if self._evaluation is not None and (match := self._evaluation.search(text.text)):
            values = self._numbers(match, text.number)
            if "loss" in values:
                at = int(values.get("step", self._step))
                self.log.events.append(Evaluation(line=text.number, step=at, split="valid", loss=values["loss"]))
        elif match := self._line.search(text.text):
            values = self._numbers(match, text.number)
            step = int(values.pop("step", self._step + self._every))
            steps = values.pop("steps", None)
            if step not in self.log.steps:
                self._step = step
                self.log.steps.add(Step(step, None if steps is None else int(steps), line=text.number, **values))

    def so_far(self) -> RunLog:
        """Return the log of the lines read so far."""
        return replace(self.log, events=list(self.log.events), notes=list(self.log.notes))

    def _numbers(self, match: "re.Match[str]", line: int) -> dict[str, Any]:
        """Return the values of the regular expression's groups.

        If the text of a group is not a number, omit the group and add a note.
        """
        values: dict[str, Any] = {}
        for name, digits in match.groupdict().items():
            if digits is None:
                continue
            try:
                value = float(digits.replace(",", ""))
                values[name] = int(value) if TYPECODES[name] == "q" else value
            except (ValueError, OverflowError):
                self.log.note(DamagedLine(line, f"the value of {name} in the line is not a number"))
        return values


class ProgramReader:
    """Incremental reader of the log of a user's program.

    Parameters
    ----------
    path
        Path to store in the records. No file is opened here.
    form
        Format in which the program prints its steps.
    """

    def __init__(self, path: Path, form: LogForm) -> None:
        self._path, self._form = path, form
        self._lines = self._fresh()
        self._events: list[Event] = []
        self._notes: list[DamagedLine] = []
        self._rest = b""
        self._number = 0
        self._stamps = array("d")

    def feed(self, chunk: bytes) -> None:
        """Process the next bytes of the file."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for raw in lines:
            self._take(raw, ended=True)

    def close(self) -> RunLog:
        """Finish the file. A last line without a line ending is not used, because it may be truncated."""
        if self._rest:
            self._take(self._rest, ended=False)
            self._rest = b""
        return self.log

    @property
    def log(self) -> RunLog:
        """Return the log of the lines read so far."""
        log = self._lines.so_far()
        log.lines = self._number
        log.events = sorted([*log.events, *self._events], key=lambda event: event.line)
        log.notes = [*self._notes, *log.notes]
        log.starts = sum(isinstance(event, Start) for event in self._events)
        self._tell_times(log)
        return log

    def _fresh(self) -> "DialectReader | _LinesReader":
        if isinstance(self._form, LogLines):
            return _LinesReader(self._path, self._form)
        dialect = next(dialect for dialect in DIALECTS if dialect.name.lower() == self._form)
        return DialectReader(self._path, dialect)

    def _take(self, raw: bytes, *, ended: bool) -> None:
        self._number += 1
        seconds, line = strip_stamp(raw)
        self._stamps.append(-1.0 if seconds is None else seconds)
        text = line.decode("utf-8", "replace").rstrip("\r") if len(line) <= LONGEST_LINE else None
        if seconds is None:
            if text is not None and text.startswith(events.BEGIN):
                self._event(events.parse_event(text, self._number))
            return
        self._lines.feed(Text(self._number, None if text is None else plain(text), ended))

    def _event(self, event: Event | DamagedLine) -> None:
        if isinstance(event, DamagedLine):
            self._notes.append(event)
            return
        if isinstance(event, Start) and self._events:
            self._notes = [DamagedLine(event.line, "the run started again at this line: the lines above are not used")]
            self._events.clear()
            self._lines = self._fresh()
        self._events.append(event)

    def _tell_times(self, log: RunLog) -> None:
        """Compute step times from the time stamps of the lines, if the program does not print its speed.

        The time between two step lines is divided equally among the steps.
        """
        steps = list(log.steps.values())
        if any(getattr(step, name) is not None for step in steps for name in _SPEEDS):
            return
        log.steps = Steps()
        before: Step | None = None
        for step in steps:
            if before is not None and step.step > before.step:
                taken = self._stamps[step.line - 1] - self._stamps[before.line - 1]
                step = replace(step, seconds=taken / (step.step - before.step))
            before = step
            log.steps.add(step)

    def find_times(self, log: RunLog) -> dict[int, float]:
        """Return the time at which each step's line was printed, in seconds since the start of the program."""
        return {step.step: self._stamps[step.line - 1] for step in log.steps.values()}


def read_program(path: Path, form: LogForm) -> RunLog:
    """Read the whole log of a program's run.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    return feed_all(path, form).close()


def feed_all(path: Path, form: LogForm) -> ProgramReader:
    """Return a reader that has processed the whole log.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    reader = ProgramReader(path, form)
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 16):
            reader.feed(chunk)
    return reader


def form_of(settings: LoggedSettings) -> LogForm | None:
    """Return the log format of a run's program, or None if the run does not start a user's program."""
    form = settings.program.log
    if isinstance(form, dict):
        return LogLines.model_validate(form)
    dialects = {dialect.name.lower() for dialect in DIALECTS}
    return form if isinstance(form, str) and form in dialects else None  # type: ignore[return-value]
