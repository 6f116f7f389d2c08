"""Search for records in a log. A line may contain several records, and a record may be wrapped over several lines."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from hpcbench.collect.dialects import prefix
from hpcbench.collect.dialects.dialect import Dialect, Line
from hpcbench.collect.dialects.texts import Text
from hpcbench.collect.dialects.units import Value

_LONGEST = 1 << 14
"""Maximum length of a record in characters. The remaining characters of a line are ignored."""
_PIECES = 12
"""Maximum number of lines that a record may be wrapped over."""
_RANKS = 4096
"""Maximum number of ranks with incomplete records at a time."""


@dataclass
class LogRecord:
    """A record of a log file."""

    line: Line
    number: int
    """Number of the line on which the record begins."""
    order: int
    """Index of the record among all records of the file."""
    ended: bool
    """Whether the record's end was found, or the line of the record is terminated."""
    rank: int | None
    """Rank that printed the record, or None if no prefix contains it."""
    groups: dict[str, str | None]
    """Groups of the regular expression that matched the beginning of the record."""
    before: int | None
    """Last step that was printed before the record."""
    pieces: list[str]
    values: dict[str, Value] | None = None
    """Values of the record, or None if it is incomplete."""

    def group(self, name: str) -> int | None:
        """Return the group `name` of the record's beginning as a number."""
        digits = self.groups.get(name)
        return None if digits is None else int(digits)


class Assembler:
    """Incremental search for the records of one dialect in the lines of a file."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._open: dict[int | None, LogRecord] = {}
        self._step: int | None = None
        self._counts: Counter[int] = Counter()
        self._count = 0

    def feed(self, text: Text) -> Iterator[LogRecord]:
        """Process the next line of the file.

        Yield the records that this line completes, and records that are abandoned.
        """
        assert text.text is not None
        heads = self._dialect.heads(text.text)
        if not heads and not self._open:
            return
        starts = [match.start() for _, match in heads] + [len(text.text)]
        rank, continuation = prefix.split(text.text[: starts[0]])
        if continuation and not continuation.isspace():
            yield from self._continue(rank, continuation)
        at = starts[0]
        for (line, match), end in zip(heads, starts[1:], strict=True):
            printed_rank = prefix.split(text.text[at : match.start()])[0]
            rank = rank if printed_rank is None else printed_rank
            piece = text.text[match.start() : min(end, match.start() + _LONGEST)]
            ended = text.ended or end < len(text.text)
            self._count += 1
            record = LogRecord(line, text.number, self._count, ended, rank, match.groupdict(), self._step, [piece])
            if line.counted:
                self._counts[rank or 0] += 1  # rank 0 prints some of its lines without a prefix
                record.groups["step"] = str(self._counts[rank or 0])
            if line.kind == "step" and record.groups.get("step") is not None:
                self._step = record.group("step")
            ending = line.ends.search(piece)
            at = match.start() + ending.end() if ending else end
            yield from self._begin(record, piece[: ending.end()] if ending else None)

    def close(self) -> Iterator[LogRecord]:
        """Finish the file. Incomplete records are abandoned, or end with their line."""
        for record in list(self._open.values()):
            yield self._give_up(record)

    def _begin(self, record: LogRecord, text: str | None) -> Iterator[LogRecord]:
        if record.line.kind in ("step", "evaluation") and record.rank in self._open:
            yield self._give_up(self._open[record.rank])
        if text is not None:
            record.values = record.line.values(text)
            yield record
            return
        if len(self._open) >= _RANKS:
            yield self._give_up(next(iter(self._open.values())))
        self._open[record.rank] = record

    def _continue(self, rank: int | None, continuation: str) -> Iterator[LogRecord]:
        record = self._open.get(rank)
        if record is None and rank is None and self._open:
            record = next(reversed(self._open.values()))  # a wrapping terminal does not repeat prefixes
        if record is None:
            return
        record.pieces.append(continuation)
        length = sum(map(len, record.pieces))
        if record.line.whole and length <= _LONGEST:
            # A terminal wraps at any character; a logger wraps at a space and drops it. Joining the lines in the wrong
            # way would break names or numbers.
            ways = "".join(record.pieces), " ".join(piece.strip() for piece in record.pieces)
            read = [record.line.values(match[0]) for way in ways if (match := record.line.whole.match(way))]
            if read:
                del self._open[record.rank]
                record.values = max(read, key=len)
                yield record
                return
        if len(record.pieces) > _PIECES or length > _LONGEST:
            yield self._give_up(record)

    def _give_up(self, record: LogRecord) -> LogRecord:
        del self._open[record.rank]
        ends = record.line.ends_with_line
        if ends and record.ended and ends.search(record.pieces[0]):
            record.values = record.line.values(record.pieces[0])
        return record
