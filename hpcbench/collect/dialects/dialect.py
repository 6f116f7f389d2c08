"""What a dialect is: the kinds of lines that a framework prints, and the fields of each."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from hpcbench.collect.dialects.units import Unit, Value, compiled

_APART = r"(?<![A-Za-z_])"
"""Before a head: not within a word. A digit may stand there, where two lines were glued."""
_NEVER = r"(?!)"
Kind = Literal["step", "evaluation", "overflow", "end"]
"""``overflow``: a step that was skipped. ``end``: how the run ended, in words."""


@dataclass(frozen=True)
class Field:
    """One quantity of a line. Of several that give the same one, the first that is there counts."""

    name: str
    """As the framework prints it; ``*`` stands for any words."""
    attribute: str
    """Of `Step`; of an evaluation, what it was evaluated on: ``train``, ``valid`` or ``test``."""
    unit: Unit
    since_last: bool = False
    """It counts since the line before, where a record counts since the beginning."""
    form: str = ""
    """How it looks, where it does not look like the others of its line."""


@dataclass(frozen=True)
class Line:
    """One kind of line. It may begin anywhere in a line of the file: what stands before it is somebody's prefix."""

    head: str
    """Regular expression that it is known by. Its groups ``step`` and ``steps`` count; without ``step``, the last step
    before the line is meant. ``set`` names one of several sets of an evaluation, ``rank`` who printed it."""
    tail: str = ""
    """Regular expression by which a line is known to be whole; a number that was cut is a number, too. Without it, its
    `end` marks a line as whole, or its head says all."""
    joined: str = ""
    """What lies between head and end when the line was wrapped; stricter, so that nothing of others gets in."""
    end: str = ""
    """Tail of a line that nothing marks as whole: it counts at the end of its line, unless it was wrapped there."""
    form: str = ""
    """How a field looks: a regular expression with ``{name}`` and ``{value}``."""
    fields: tuple[Field, ...] = ()
    kind: Kind = "step"
    state: str = ""
    """Of an end: the state that it tells of."""
    note: str = ""
    """What a reader of such a line's numbers should know."""

    @cached_property
    def begins(self) -> re.Pattern[str]:
        """Finds its head."""
        return re.compile(_APART + self.head)

    @cached_property
    def ends(self) -> re.Pattern[str]:
        """Finds its tail."""
        return re.compile(self.tail or (_NEVER if self.end else ""))

    @cached_property
    def whole(self) -> re.Pattern[str] | None:
        """Matches it when it has been joined; None for one that is too short to be wrapped."""
        return re.compile(self.head + self.joined) if self.joined else None

    @cached_property
    def ends_with_line(self) -> re.Pattern[str] | None:
        """Finds its tail at the end of a line of the file."""
        return re.compile(rf"(?:{self.end})\s*$") if self.end else None

    def values(self, text: str) -> dict[str, Value]:
        """The fields of a line that is whole."""
        values: dict[str, Value] = {}
        for field, pattern in self._patterns:
            if field.attribute not in values and (found := pattern.search(text)):
                value = field.unit.convert(found[1])
                if value is not None:
                    values[field.attribute] = value
        return values

    @cached_property
    def _patterns(self) -> tuple[tuple[Field, re.Pattern[str]], ...]:
        return tuple((field, compiled(field.form or self.form, field.name, field.unit)) for field in self.fields)


@dataclass(frozen=True, eq=False)
class Dialect:
    """The lines of one framework."""

    name: str
    words: tuple[str, ...]
    """A line of the file that has none of them is not looked at more closely."""
    lines: tuple[Line, ...]
    engine: bool = False
    """Other frameworks are built on it: its lines stand in their logs, too."""

    def heads(self, text: str) -> list[tuple[Line, re.Match[str]]]:
        """Where its lines begin in a line of the file, in order; of two at one place the first of the table."""
        if not self._may_hold(text):
            return []
        found = [(line, match) for line in self.lines for match in line.begins.finditer(text)]
        found.sort(key=lambda head: head[1].start())
        return [head for i, head in enumerate(found) if i == 0 or head[1].start() >= found[i - 1][1].end()]

    def probes(self, text: str) -> bool:
        """Whether one of its step lines begins in a line of the file."""
        return self._may_hold(text) and any(line.kind == "step" and line.begins.search(text) for line in self.lines)

    def _may_hold(self, text: str) -> bool:
        for word in self.words:  # any() would take twice as long, for each line of the file  # noqa: SIM110
            if word in text:
                return True
        return False
