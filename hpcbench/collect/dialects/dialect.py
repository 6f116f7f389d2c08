"""Description of a dialect: the kinds of lines that a framework prints, and their fields."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from hpcbench.collect.dialects.units import PrintedUnit, Value, compiled

_APART = r"(?<![A-Za-z_])"
"""Expression for the position before `Line.head`, which must not be within a word.

A digit may precede the position, because two lines may have been joined.
"""
_NEVER = r"(?!)"
Kind = Literal["step", "evaluation", "overflow", "end", "precision"]
"""Kinds of lines.

``overflow`` lines report a skipped step, and ``end`` lines report how the run ended. ``precision`` lines report the
number format (group ``format``) of a part of the program (group ``part``).
"""


@dataclass(frozen=True)
class Field:
    """A quantity in a line. If several fields contain the same quantity, the first field is used."""

    name: str
    """Name that the framework prints. ``*`` matches any words."""
    attribute: str
    """Attribute of `Step`. For an evaluation, the evaluated set: ``train``, ``valid`` or ``test``."""
    unit: PrintedUnit
    since_last: bool = False
    """Whether the printed value is counted since the previous line.

    Records contain the count since the start of the run.
    """
    running_mean: bool = False
    """Whether the printed value is the mean over all steps so far.

    Each record contains the mean over only the steps since the previous record.
    """
    form: str = ""
    """Format of the field, if it differs from other fields in the line."""


@dataclass(frozen=True)
class Line:
    """A kind of log line. A log line may begin anywhere in a line of the file, because a prefix may precede it."""

    head: str
    """Regular expression for the beginning of the line.

    The groups ``step`` and ``steps`` are the step number and the number of steps. Without ``step``, the line belongs to
    the last step before the line. ``set`` is the name of the evaluated set, and ``rank`` is the rank that printed the
    line.
    """
    tail: str = ""
    """Regular expression for the end of a complete line. It is needed because a truncated number is also a number.

    Without `tail`, a complete line is recognized by `end`, or `head` matches the entire line.
    """
    joined: str = ""
    """Expression for the text between `head` and `end` if the line was wrapped.

    The expression is stricter than for complete lines, so that unrelated text is not matched.
    """
    end: str = ""
    """End of a line without a closing mark.

    The match must be at the end of a line in the file, unless the line was wrapped there.
    """
    form: str = ""
    """Format of a field: a regular expression with ``{name}`` and ``{value}``."""
    fields: tuple[Field, ...] = ()
    kind: Kind = "step"
    state: str = ""
    """State that an ``end`` line reports."""
    note: str = ""
    """Note about the numbers in the line."""
    ahead: bool = False
    """Whether a line without a step belongs to the next printed step."""
    counted: bool = False
    """Whether the parser counts lines without a step, starting at 1, and uses the count as the step number."""

    @cached_property
    def begins(self) -> re.Pattern[str]:
        """Expression that finds `head` in a line of the file."""
        return re.compile(("" if self.head.startswith(r"\{") else _APART) + self.head)  # no word has a brace

    @cached_property
    def ends(self) -> re.Pattern[str]:
        """Expression that finds `tail` in a line of the file."""
        return re.compile(self.tail or (_NEVER if self.end else ""))

    @cached_property
    def whole(self) -> re.Pattern[str] | None:
        """Expression that matches the joined parts of the line, or None if the line is too short to be wrapped."""
        return re.compile(self.head + self.joined) if self.joined else None

    @cached_property
    def ends_with_line(self) -> re.Pattern[str] | None:
        """Expression that finds `end` at the end of a line of the file."""
        return re.compile(rf"(?:{self.end})\s*$") if self.end else None

    def values(self, text: str) -> dict[str, Value]:
        """Return the field values of a complete line."""
        values: dict[str, Value] = {}
        for field, pattern in self._patterns:
            if field.attribute not in values and (match := pattern.search(text)):
                value = field.unit.convert(match[1])
                if value is not None:
                    values[field.attribute] = value
        return values

    @cached_property
    def _patterns(self) -> tuple[tuple[Field, re.Pattern[str]], ...]:
        return tuple((field, compiled(field.form or self.form, field.name, field.unit)) for field in self.fields)


@dataclass(frozen=True, eq=False)
class Dialect:
    """Log lines of one framework."""

    name: str
    markers: tuple[str, ...]
    """Texts that occur in lines of the dialect. Lines without any of these texts are skipped."""
    lines: tuple[Line, ...]
    engine: bool = False
    """Whether other frameworks are based on this framework, so that their logs also contain lines of this framework.

    The dialect of an engine may include the lines of another engine.
    """

    def heads(self, text: str) -> list[tuple[Line, re.Match[str]]]:
        """Return the positions in a line of the file where lines of the dialect begin, in order.

        If two lines begin at the same position, the line that comes first in the table is used.
        """
        if not self._may_hold(text):
            return []
        matches = [(line, match) for line in self.lines for match in line.begins.finditer(text)]
        matches.sort(key=lambda head: head[1].start())
        return [head for i, head in enumerate(matches) if i == 0 or head[1].start() >= matches[i - 1][1].end()]

    def probes(self, text: str) -> bool:
        """Return whether a step line of the dialect begins in a line of the file."""
        return self._may_hold(text) and any(line.begins.search(text) for line in self._numbered)

    @cached_property
    def _numbered(self) -> tuple[Line, ...]:
        steps = (line for line in self.lines if line.kind == "step")
        return tuple(line for line in steps if line.counted or "step" in line.begins.groupindex)

    def _may_hold(self, text: str) -> bool:
        for word in self.markers:  # any() would take twice as long, for each line of the file  # noqa: SIM110
            if word in text:
                return True
        return False
