"""Finds the records of a log. A line may hold several, and one record may be wrapped into several lines."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from hpcbench.collect.dialects import prefix
from hpcbench.collect.dialects.dialect import Dialect, Line
from hpcbench.collect.dialects.texts import Text
from hpcbench.collect.dialects.units import Value

_LONGEST = 1 << 14
"""Most characters of one record. Characters of a line beyond them are not looked at."""
_PIECES = 12
"""Most lines that one record may be wrapped into."""
_RANKS = 4096
"""Most ranks whose records may be open at a time."""


@dataclass
class LogRecord:
    """One record of the file."""

    line: Line
    number: int
    """Number of the file's line in which it begins."""
    order: int
    """Place of the record among all records of the file."""
    ended: bool
    """Whether the line, or the text known to follow in it, has an end."""
    rank: int | None
    """The rank that printed it, as far as a prefix tells."""
    groups: dict[str, str | None]
    """The groups of its head."""
    before: int | None
    """The last step that was printed before the record."""
    pieces: list[str]
    values: dict[str, Value] | None = None
    """The values; None if the record is not whole."""

    def group(self, name: str) -> int | None:
        """A number of the record's head."""
        digits = self.groups.get(name)
        return None if digits is None else int(digits)


class Assembler:
    """Finds the records of one dialect in the lines of a file, as they come."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._open: dict[int | None, LogRecord] = {}
        self._step: int | None = None
        self._counts: Counter[int] = Counter()
        self._found = 0

    def feed(self, text: Text) -> Iterator[LogRecord]:
        """Take the next line of the file. Yields the records that it completes, and those that are given up."""
        assert text.text is not None
        heads = self._dialect.heads(text.text)
        if not heads and not self._open:
            return
        starts = [match.start() for _, match in heads] + [len(text.text)]
        rank, rest = prefix.split(text.text[: starts[0]])
        if rest and not rest.isspace():
            yield from self._continue(rank, rest)
        at = starts[0]
        for (line, match), end in zip(heads, starts[1:], strict=True):
            rank = _or(prefix.split(text.text[at : match.start()])[0], rank)
            piece = text.text[match.start() : min(end, match.start() + _LONGEST)]
            ended = text.ended or end < len(text.text)
            self._found += 1
            found = LogRecord(line, text.number, self._found, ended, rank, match.groupdict(), self._step, [piece])
            if line.counted:
                self._counts[rank or 0] += 1  # rank 0 prints some of its lines without a prefix
                found.groups["step"] = str(self._counts[rank or 0])
            if line.kind == "step" and found.groups.get("step") is not None:
                self._step = found.group("step")
            whole = line.ends.search(piece)
            at = match.start() + whole.end() if whole else end
            yield from self._begin(found, piece[: whole.end()] if whole else None)

    def close(self) -> Iterator[LogRecord]:
        """End the file. Records that are still open are given up, or end with their line."""
        for found in list(self._open.values()):
            yield self._give_up(found)

    def _begin(self, found: LogRecord, whole: str | None) -> Iterator[LogRecord]:
        if found.line.kind in ("step", "evaluation") and found.rank in self._open:
            yield self._give_up(self._open[found.rank])
        if whole is not None:
            found.values = found.line.values(whole)
            yield found
            return
        if len(self._open) >= _RANKS:
            yield self._give_up(next(iter(self._open.values())))
        self._open[found.rank] = found

    def _continue(self, rank: int | None, rest: str) -> Iterator[LogRecord]:
        found = self._open.get(rank)
        if found is None and rank is None and self._open:
            found = next(reversed(self._open.values()))  # a terminal that wraps repeats no prefix
        if found is None:
            return
        found.pieces.append(rest)
        length = sum(map(len, found.pieces))
        if found.line.whole and length <= _LONGEST:
            # A terminal cuts anywhere, a logger at a space, which it drops. The wrong one breaks names or numbers.
            ways = "".join(found.pieces), " ".join(piece.strip() for piece in found.pieces)
            read = [found.line.values(match[0]) for way in ways if (match := found.line.whole.match(way))]
            if read:
                del self._open[found.rank]
                found.values = max(read, key=len)
                yield found
                return
        if len(found.pieces) > _PIECES or length > _LONGEST:
            yield self._give_up(found)

    def _give_up(self, found: LogRecord) -> LogRecord:
        del self._open[found.rank]
        ends = found.line.ends_with_line
        if ends and found.ended and ends.search(found.pieces[0]):
            found.values = found.line.values(found.pieces[0])
        return found


def _or(rank: int | None, other: int | None) -> int | None:
    return other if rank is None else rank
