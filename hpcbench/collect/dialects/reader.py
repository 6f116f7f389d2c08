"""Reads a log of one dialect, line by line, in memory that does not grow with the file but with its steps."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hpcbench.collect.dialects import prefix
from hpcbench.collect.dialects.dialect import Dialect, Line
from hpcbench.collect.dialects.merge import Merge
from hpcbench.collect.dialects.units import Value
from hpcbench.collect.record import Cut, Event
from hpcbench.collect.run_log import RunLog

LONGEST_LINE = 4 << 20
"""Bytes. No framework prints a longer one; what does is a dump of something."""
_LONGEST_RECORD = 1 << 14
"""Characters of one record; what a line of the file holds beyond them is not looked at."""
_PIECES = 12
"""Lines that one record may have been wrapped into."""
_RANKS = 4096
"""Ranks whose records may be open at a time."""
_NOTES = 20


@dataclass(frozen=True)
class Text:
    """One line of a file."""

    number: int
    """From 1."""
    text: str | None
    """Without colours and line end; None for one that is too long."""
    ended: bool
    """It has a line end."""


def texts(stream: BinaryIO) -> Iterator[Text]:
    """The lines of a file."""
    number = 0
    while raw := stream.readline(LONGEST_LINE):
        number += 1
        if len(raw) < LONGEST_LINE or raw.endswith(b"\n"):
            yield Text(number, prefix.plain(raw.decode("utf-8", "replace").rstrip("\r\n")), raw.endswith(b"\n"))
            continue
        while raw and not raw.endswith(b"\n"):
            raw = stream.readline(LONGEST_LINE)
        yield Text(number, None, raw.endswith(b"\n"))


@dataclass
class _Open:
    """A record whose end has not been seen."""

    line: Line
    number: int
    step: int | None
    steps: int | None
    set: str
    rank: int | None
    pieces: list[str]
    ended: bool


class Reader:
    """Makes a `RunLog` of the lines of a file.

    Parameters
    ----------
    path
        Named in records; nothing is opened here.
    dialect
        Whose lines are read.
    """

    def __init__(self, path: Path, dialect: Dialect) -> None:
        self.log = RunLog(path, dialect.name)
        self._dialect = dialect
        self._open: dict[int | None, _Open] = {}
        self._merge = Merge({field.attribute for line in dialect.lines for field in line.fields if field.since_last})
        self._step: int | None = None
        self._end: Event | None = None
        self._overflowed: int | None = None
        self._said: dict[str, None] = {}

    def feed(self, text: Text) -> None:
        """Take the next line of the file."""
        self.log.lines = text.number
        if text.text is None:
            self.note(Cut(text.number, f"a line of more than {LONGEST_LINE >> 20} MiB was passed over"))
            return
        heads = self._dialect.heads(text.text)
        if not heads and not self._open:
            return
        at = heads[0][1].start() if heads else len(text.text)
        rank, rest = prefix.split(text.text[:at])
        if rest and not rest.isspace():
            self._continue(rank, rest, text)
        for i, (line, match) in enumerate(heads):
            if i:
                said, _ = prefix.split(text.text[at : match.start()])
                rank = rank if said is None else said
            last = i + 1 == len(heads)
            end = len(text.text) if last else heads[i + 1][1].start()
            at = self._begin(line, match.groupdict(), rank, text, match.start(), end, text.ended or not last)

    def close(self) -> RunLog:
        """The file has ended."""
        log = self.log
        for open_ in list(self._open.values()):
            self._give_up(open_)
            log.cut = log.cut or open_.number == log.lines
        self._merge.into(log)
        log.notes[:0] = [Cut(1, words) for words in (*self._said, *self._merge.remarks())]
        del log.notes[_NOTES:]
        last = log.last_step
        if self._end is None and last is not None and last.step == last.steps:
            self._end = Event(last.line, "end", {"event": "end", "state": "completed"})
        if self._end is not None:
            if last is not None:
                diverged = last.loss is not None and not math.isfinite(last.loss)
                self._end.data.update({"steps": last.step} | ({"state": "nan"} if diverged else {}))
            log.events.append(self._end)
        return log

    def note(self, note: Cut) -> None:
        """Keep a remark on a line."""
        if len(self.log.notes) < _NOTES:
            self.log.notes.append(note)

    def _begin(
        self, line: Line, groups: dict[str, str | None], rank: int | None, text: Text, begin: int, end: int, ended: bool
    ) -> int:
        """A head was found; returns where its record ends, as far as that is known."""
        assert text.text is not None
        if line.kind == "end":
            self._end = Event(text.number, "end", {"event": "end", "state": line.state})
            return end
        said = groups.get("rank")
        if line.kind == "overflow":
            self._overflow(int(said) if said else rank or 0)
            return end
        step, steps = groups.get("step"), groups.get("steps")
        if step is not None and line.kind == "step":
            self._step = int(step)
            self._end = None  # what was said before a step is not the end
        record = _Open(
            line,
            text.number,
            self._step if step is None else int(step),
            int(steps) if steps else None,
            groups.get("set") or "",
            rank,
            [text.text[begin : min(end, begin + _LONGEST_RECORD)]],
            ended,
        )
        if rank in self._open:
            self._give_up(self._open[rank])
        found = line.ends.search(record.pieces[0]) if line.tail else None
        if found:
            self._keep(record, _values(line, record.pieces[0][: found.end()]))
            return begin + found.end()
        if len(self._open) >= _RANKS:
            self._give_up(next(iter(self._open.values())))
        self._open[rank] = record
        return end

    def _continue(self, rank: int | None, rest: str, text: Text) -> None:
        record = self._open.get(rank)
        if record is None and rank is None and self._open:
            # A terminal repeats no prefix.
            record = next(reversed(self._open.values()))
        if record is None:
            return
        record.pieces.append(rest)
        length = sum(map(len, record.pieces))
        if record.line.whole and length <= _LONGEST_RECORD:
            # A terminal cuts anywhere, a logger at a space, which it drops. The wrong one breaks names or numbers.
            ways = "".join(record.pieces), " ".join(piece.strip() for piece in record.pieces)
            found = [_values(record.line, match[0]) for way in ways if (match := record.line.whole.match(way))]
            if found:
                del self._open[record.rank]
                self._keep(record, max(found, key=len))
                return
        if len(record.pieces) > _PIECES or length > _LONGEST_RECORD:
            self._give_up(record)

    def _give_up(self, record: _Open) -> None:
        del self._open[record.rank]
        if record.ended and record.line.ends_with_line and record.line.ends_with_line.search(record.pieces[0]):
            self._keep(record, _values(record.line, record.pieces[0]))
            return
        what = "an evaluation" if record.line.kind == "evaluation" else f"step {record.step}"
        self.note(Cut(record.number, f"the line of {what} was cut"))

    def _keep(self, record: _Open, values: dict[str, Value]) -> None:
        line = record.line
        if line.kind == "evaluation":
            at = {} if record.step is None else {"step": record.step}
            for split, loss in values.items():
                name = f"{split}-{record.set}" if record.set else split
                data = {"event": "evaluation", **at, "split": name, "loss": loss}
                self.log.events.append(Event(record.number, "evaluation", data))
        elif record.step is not None:
            self._merge.add(record.step, record.steps, record.rank, record.number, values)
            if line.note:
                self._said[line.note] = None

    def _overflow(self, rank: int) -> None:
        if self._overflowed is None:
            self._overflowed = rank
        if rank == self._overflowed:
            self._merge.overflows += 1


def _values(line: Line, text: str) -> dict[str, Value]:
    """The fields of a line that is whole."""
    values: dict[str, Value] = {}
    for field, pattern in line.patterns:
        if field.attribute not in values and (found := pattern.search(text)):
            value = field.unit.convert(found[1])
            if value is not None:
                values[field.attribute] = value
    return values
