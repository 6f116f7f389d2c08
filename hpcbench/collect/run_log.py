"""Reader of a run's log file: steps and events with their line numbers.

The log is parsed incrementally, so a growing log is read only once. Damaged lines are reported in notes and not used.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from hpcbench.collect.bulk import LineShape, shape_of
from hpcbench.collect.steps import Steps
from hpcbench.contract import log_line
from hpcbench.contract.damaged_line import DamagedLine
from hpcbench.contract.ending import Ending
from hpcbench.contract.events import End, Environment, Evaluation, Event, Rank, Start
from hpcbench.contract.step_line import Step
from hpcbench.contract.text import make_printable
from hpcbench.errors import UserError

LONGEST_LINE = 16 << 20
"""Maximum length in bytes of a line that is read.

The limit is large enough for the environment event of about 100,000 ranks.
"""
_CHUNK = 1 << 16
MOST_NOTES = 20
"""Maximum number of notes per log."""
E = TypeVar("E", bound=Event)


@dataclass
class RunLog:
    """The content of a log."""

    path: Path
    dialect: str = "hpcbench"
    """Dialect name of the log."""
    steps: Steps = field(default_factory=Steps)
    events: list[Event] = field(default_factory=list)
    notes: list[DamagedLine] = field(default_factory=list)
    """Notes about truncated, damaged or duplicate lines. Only the first `MOST_NOTES` are stored."""
    lines: int = 0
    cut: bool = False
    """Whether the file's last line is not terminated, or the last line printed by hpcbench is incomplete."""
    starts: int = 0
    running_means: set[str] = field(default_factory=set)
    """Quantities whose printed value is the mean over all steps so far."""
    precisions: dict[str, str] = field(default_factory=dict)
    """Least precise number format that another framework's log reports for each of ``comm`` and ``linear``."""

    def event(self, kind: type[E]) -> E | None:
        """Return the last event of this kind, or None if there is none."""
        return next((event for event in reversed(self.events) if isinstance(event, kind)), None)

    def read_event(self, kind: type[E]) -> E:
        """Return the last event of this kind, or an event with empty fields if there is none."""
        return self.event(kind) or kind.read({})

    def note(self, note: DamagedLine) -> None:
        """Store a note about a line, unless the limit is reached."""
        if len(self.notes) < MOST_NOTES:
            self.notes.append(note)

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """The ranks in the environment event. The tuple is empty if the log does not contain the event."""
        return self.read_event(Environment).world or ()

    @property
    def last_step(self) -> Step | None:
        """Record of the highest step number."""
        return self.steps.last

    @property
    def planned_steps(self) -> int | None:
        """Number of planned steps.

        If the log does not contain this number, the number of steps of a completed run is used.
        """
        last = self.last_step
        if last is None or last.steps is not None:
            return last.steps if last else None
        return last.step if self.read_event(End).state == "completed" else None

    @property
    def resumed_from(self) -> int:
        """Step of the checkpoint from which the run continued, or 0 if there was no checkpoint."""
        return max(self.read_event(Start).resumed_from or 0, 0)

    def missing_steps(self) -> list[int]:
        """Return the steps that are missing from the log before its last step.

        Other frameworks may print only every nth step.
        """
        last = self.last_step
        if last is None or self.dialect != "hpcbench" or last.step == len(self.steps) + self.resumed_from:
            return []
        # A damaged log may contain any step number, so only the first gaps are listed.
        missing: list[int] = []
        for step in range(self.resumed_from + 1, last.step):
            if step not in self.steps:
                missing.append(step)
                if len(missing) > MOST_NOTES:
                    break
        return missing

    @property
    def evaluations(self) -> dict[int, float]:
        """Validation losses, keyed by the step after which they were computed.

        If a step has several losses, the last is used.
        """
        losses: dict[int, float] = {}
        for event in self.events:
            if isinstance(event, Evaluation) and event.split == "valid" and event.step is not None:
                losses |= {} if event.loss is None else {event.step: event.loss}
        return losses

    def final_loss(self) -> float | None:
        """Return the validation loss after the last planned step, or None if there is none."""
        planned = self.planned_steps
        return None if planned is None else self.evaluations.get(planned)

    @property
    def diverged_at(self) -> int | None:
        """The first step whose loss is NaN or infinite."""
        if all(map(math.isfinite, self.steps.column("loss"))):
            return None
        return next(int(step) for step, loss in self.steps.columns("step", "loss") if not math.isfinite(loss))

    @property
    def ending(self) -> Ending:
        """End of the log, for `resolve_run`."""
        end, last = self.event(End), self.last_step
        return Ending(
            path=self.path,
            lines=self.lines,
            begun=self.event(Start) is not None or last is not None,
            state=end.state if end else None,
            reason=end.reason or "" if end else "",
            end_line=end.line if end else None,
            step=last.step if last else None,
            steps=last.steps if last else None,
            loss=last.loss if last else None,
            step_line=last.line if last else None,
            cut=self.cut,
            from_hpcbench=self.dialect == "hpcbench",
            program=self.dialect != "hpcbench" and self.starts > 0,
            diverged=self.diverged_at,
        )

    def where(self, line: int | None = None) -> str:
        """Return ``file:line`` for a line, by default the last line."""
        return f"{self.path}:{self.lines if line is None else line}"


class LogReader:
    """Incremental reader of a log.

    Parameters
    ----------
    path
        Path to store in records and errors. No file is opened here.
    """

    def __init__(self, path: Path) -> None:
        self.log = RunLog(path)
        self._rest = bytearray()
        self._overlong = False
        self._shape: LineShape | None = None

    def feed(self, chunk: bytes) -> None:
        """Process the next bytes of the file."""
        begin = 0
        if self._overlong:
            begin = chunk.find(b"\n") + 1
            self.log.lines += bool(begin)
            self._overlong = not begin
        end = max(chunk.rfind(b"\n") + 1, begin)
        if end > begin:
            self._rest += chunk[begin:end]
            self._block(bytes(self._rest))
            self._rest.clear()
        self._rest += b"" if self._overlong else chunk[end:]
        if len(self._rest) > LONGEST_LINE:
            self._rest.clear()
            self._overlong = True

    def close(self) -> RunLog:
        """Finish the file.

        A last line without a line ending counts as truncated.
        """
        if self._rest or self._overlong:
            self.log.lines += 1
            record = log_line.parse(self._rest.decode("utf-8", "replace"), self.log.lines)
            if record is not None:
                self.log.note(DamagedLine(self.log.lines, "the last line is truncated"))
            self.log.cut = self.log.cut or record is not None
            self._rest.clear()
        return self.log

    def _block(self, block: bytes) -> None:
        """Process complete lines. Once the shape of step lines is known, lines are parsed in bulk."""
        begin = 0
        while self._shape is None and begin < len(block):
            end = block.index(b"\n", begin)
            raw = block[begin:end]
            self._shape = shape_of(raw) if isinstance(self._line(raw), Step) else None
            begin = end + 1
        if self._shape is not None and begin < len(block):
            self._bulk(block[begin:], self._shape)

    def _bulk(self, block: bytes, shape: LineShape) -> None:
        log, raw = self.log, None
        begin = alone = 0
        for end, columns in shape.runs(block, log.lines + 1):
            if columns is not None and log.steps.extend(columns):
                log.lines += end - begin
                log.cut = False
            else:
                raw = raw or block.split(b"\n")
                for line in raw[begin:end]:
                    self._line(line)
                alone += end - begin
            begin = end
        if 2 * alone > begin:
            self._shape = None  # the shape of most lines has changed

    def _line(self, raw: bytes) -> Step | Event | DamagedLine | None:
        log = self.log
        log.lines += 1
        if len(raw) > LONGEST_LINE:
            return None
        record = log_line.parse(raw.decode("utf-8", "replace"), log.lines)
        if isinstance(record, Step):
            record = self._step(record)
        if isinstance(record, DamagedLine):
            log.note(record)
        elif isinstance(record, Event):
            self._event(record)
        if record is not None:
            log.cut = isinstance(record, DamagedLine)
        return record

    def _event(self, event: Event) -> None:
        log = self.log
        if isinstance(event, Start):
            log.starts += 1
            if log.starts > 1:
                log.note(DamagedLine(event.line, "the run started again at this line: the lines above are not used"))
                log.steps.clear()
                log.events.clear()
        log.events.append(event)

    def _step(self, record: Step) -> Step | DamagedLine:
        try:
            first = self.log.steps.add(record)
        except OverflowError:
            return DamagedLine(
                record.line, f"the line of step {record.step} contains a number that does not fit in 64 bits"
            )
        if first is not record:
            self.log.note(
                DamagedLine(record.line, f"step {record.step} is also in line {first.line}, which is used instead")
            )
        return record


def read(path: Path) -> RunLog:
    """Read a whole log file.

    Raises
    ------
    UserError
        The file is missing, a directory, or cannot be read.
    """
    reader = LogReader(path)
    name = make_printable(str(path))
    try:
        if path.exists() and not path.is_file():
            kind = "a directory" if path.is_dir() else "not a regular file"
            raise UserError(f"{name}: is {kind}: give a log file")
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                reader.feed(chunk)
    except FileNotFoundError:
        raise UserError(f"{name}: no such file: give a directory of results or a log file") from None
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror}") from None
    return reader.close()
