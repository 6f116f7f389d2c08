"""The description of a dialect: the kinds of lines that a framework prints, and the fields of each."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from hpcbench.collect.dialects.units import PrintedUnit, Value, compiled

_APART = r"(?<![A-Za-z_])"
"""Expression for the text before a head, which is not within a word.

A digit may stand there if two lines were glued.
"""
_NEVER = r"(?!)"
Kind = Literal["step", "evaluation", "overflow", "end"]
"""Kinds of lines. ``overflow``: a step that was skipped. ``end``: how the run ended, in words."""


@dataclass(frozen=True)
class Field:
    """One quantity of a line. If several fields give the same quantity, the first one counts."""

    name: str
    """Name that the framework prints. ``*`` stands for any words."""
    attribute: str
    """Attribute of `Step`; for an evaluation, the evaluated set: ``train``, ``valid`` or ``test``."""
    unit: PrintedUnit
    since_last: bool = False
    """Whether it counts since the previous line, although a record counts since the beginning."""
    running_mean: bool = False
    """Whether it is the mean over all steps since the beginning, although a record has the mean of its own steps."""
    form: str = ""
    """Form of the field, if it differs from the other fields of its line."""


@dataclass(frozen=True)
class Line:
    """One kind of line. It may begin anywhere in a line of the file, because a prefix may stand before it."""

    head: str
    """Regular expression of its beginning.

    Its groups ``step`` and ``steps`` count. Without ``step``, the line belongs to the last step before it. ``set``
    names one of several sets of an evaluation, and ``rank`` the rank that printed it.
    """
    tail: str = ""
    """Regular expression of the end that shows that a line is whole, because a number that was cut is still a number.

    Without it, the line's `end` marks a whole line, or its head holds everything.
    """
    joined: str = ""
    """Expression for the text between head and end if the line was wrapped.

    It is stricter, so that no other text gets in.
    """
    end: str = ""
    """End of a line that has no mark of being whole.

    It counts at the end of the file's line, unless the line was wrapped there.
    """
    form: str = ""
    """Form of a field: a regular expression with ``{name}`` and ``{value}``."""
    fields: tuple[Field, ...] = ()
    kind: Kind = "step"
    state: str = ""
    """State that the line of an end reports."""
    note: str = ""
    """Note for readers of the line's numbers."""
    ahead: bool = False
    """Whether a line without a step belongs to the next step that is printed."""
    counted: bool = False
    """Whether lines without a step are numbered here, from 1."""

    @cached_property
    def begins(self) -> re.Pattern[str]:
        """Expression that finds its head."""
        return re.compile(("" if self.head.startswith(r"\{") else _APART) + self.head)  # no word has a brace

    @cached_property
    def ends(self) -> re.Pattern[str]:
        """Expression that finds its tail."""
        return re.compile(self.tail or (_NEVER if self.end else ""))

    @cached_property
    def whole(self) -> re.Pattern[str] | None:
        """Expression that matches the joined line; None for a line that is too short to be wrapped."""
        return re.compile(self.head + self.joined) if self.joined else None

    @cached_property
    def ends_with_line(self) -> re.Pattern[str] | None:
        """Expression that finds its tail at the end of a line of the file."""
        return re.compile(rf"(?:{self.end})\s*$") if self.end else None

    def values(self, text: str) -> dict[str, Value]:
        """Return the values of the fields of a whole line."""
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
    """The lines of one framework."""

    name: str
    markers: tuple[str, ...]
    """Texts that mark lines of the dialect. Lines without any of them are skipped."""
    lines: tuple[Line, ...]
    engine: bool = False
    """Whether other frameworks are built on it, so that its lines stand in their logs, too.

    Engines read each other's lines.
    """

    def heads(self, text: str) -> list[tuple[Line, re.Match[str]]]:
        """Return the places where its lines begin in a line of the file, in order.

        If two begin at one place, the first of the table counts.
        """
        if not self._may_hold(text):
            return []
        matches = [(line, match) for line in self.lines for match in line.begins.finditer(text)]
        matches.sort(key=lambda head: head[1].start())
        return [head for i, head in enumerate(matches) if i == 0 or head[1].start() >= matches[i - 1][1].end()]

    def probes(self, text: str) -> bool:
        """Return whether one of its step lines begins in a line of the file. Lines without a step belong to others."""
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
