"""Bulk parser for step lines. Most step lines of a log have the same shape and differ only in their numbers.

The shape is derived from a line that `step_line.parse` has read. One regular expression matches lines of this shape,
and the numbers are converted column by column. `step_line.parse` reads all other lines. Both parsers return the same
result for every line that both can read.
"""

import re
from array import array
from collections.abc import Iterator
from typing import Any

from hpcbench.contract.step_line import FIELDS, TYPECODES

Columns = dict[str, "array[Any]"]

# The lengths are bounded, so that a matching line is not much longer than the original one. Lines with NaN or infinity
# are rare and are read one by one. The value of an unknown field is not used.
_VALUE = {"d": "([-+.0-9eE]{1,40})", "q": "([0-9]{1,30})", "": "[!-~]{1,40}"}
_LONGEST = 2000
"""Maximum size in bytes of a line from which a shape is derived.

The limit prevents patterns from being built from arbitrary content.
"""
_HEAD = re.compile(r"step +[0-9]{1,18}/([0-9]{1,18})")


class LineShape:
    """Common shape of a log's step lines.

    Parameters
    ----------
    pattern
        Expression that matches a step line of this shape, with its line end. Its groups are the step number and the
        values.
    steps
        Number of planned steps.
    fields
        Attribute of `Step` for each value, and the factor that converts the value to the attribute's unit.
    """

    def __init__(self, pattern: str, steps: int, fields: list[tuple[str, float]]) -> None:
        # The second branch matches all lines that do not fit the first one, so each line is exactly one match.
        self._pattern = re.compile((pattern + r"|.*\n").encode())
        self._steps = steps
        self._fields = fields

    def runs(self, block: bytes, line: int) -> Iterator[tuple[int, Columns | None]]:
        """Divide a block of lines into sections that are parsed in bulk or line by line.

        Parameters
        ----------
        block
            Complete lines.
        line
            Number of the first line in the file.

        Yields
        ------
        end, columns
            Number of lines from the start of the block to the end of the section, and the columns of the section. The
            columns are None if the lines must be read one by one.
        """
        rows = self._pattern.findall(block)
        begin = 0
        for end in [*(i for i, row in enumerate(rows) if not row[0]), len(rows)]:
            if end > begin:
                yield end, self._columns(rows[begin:end], line + begin)
            if end < len(rows):
                yield end + 1, None
            begin = end + 1

    def _columns(self, rows: list[tuple[bytes, ...]], line: int) -> Columns | None:
        steps, *values = zip(*rows, strict=True)
        columns: Columns = {
            "step": array("q", map(int, steps)),
            "line": array("q", range(line, line + len(rows))),
            "steps": array("q", [self._steps]) * len(rows),
        }
        if min(columns["step"]) < 1 or max(columns["step"]) > self._steps:
            return None
        try:
            for (name, worth), texts in zip(self._fields, values, strict=True):
                columns[name] = _converted(TYPECODES[name], texts, worth)
        except (ValueError, OverflowError):
            return None
        return columns


def shape_of(raw: bytes) -> LineShape | None:
    """Return the shape of a step line that `step_line.parse` has read, or None if its notation is unusual."""
    if len(raw) > _LONGEST or not raw.isascii():
        return None
    head, *parts = raw.decode().removesuffix("\r").removesuffix(" |").split(" | ")
    matched = _HEAD.fullmatch(head)
    if not matched:
        return None
    pattern = f"step {{1,18}}([0-9]{{1,18}})/{matched[1]}"
    fields = []
    for part in parts:
        tokens = part.split()
        if len(tokens) < 2 or part != " ".join(tokens):
            return None
        name, _, *unit = tokens
        attribute, worth = "", 1.0
        if name in FIELDS:
            attribute, units = FIELDS[name]
            worth = units["".join(unit)]
            fields.append((attribute, worth))
        value = _VALUE[TYPECODES.get(attribute, "")]
        pattern += re.escape(f" | {name} ") + value + "".join(re.escape(f" {word}") for word in unit)
    return LineShape(pattern + r" \|\r?\n", int(matched[1]), fields) if fields else None


def _converted(typecode: str, texts: tuple[bytes, ...], worth: float) -> "array[Any]":
    if typecode == "q":
        return array("q", map(int, texts))
    numbers = map(float, texts)
    return array("d", numbers if worth == 1 else [number * worth for number in numbers])
