"""Tables of the OSU micro-benchmarks and of nccl-tests (rccl-tests): sizes, latencies and bandwidths.

Both print a heading, then a line for each size. A line counts only if it has exactly the heading's columns and each has
the right form. Other lines between them (warnings, output of other ranks) are passed over.
"""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from hpcbench.collect.dialects.prefix import split
from hpcbench.collect.dialects.texts import texts

Tool = Literal["OSU micro-benchmarks", "nccl-tests"]
_VALIDATION = "validation"

_OSU_TITLE = re.compile(
    r"(?:# ?)?OSU (?P<name>\S.{0,120}?)(?: Test| Benchmark)?(?: v(?P<version>[0-9][0-9A-Za-z.]{0,20}))?"
)
_OSU_SIZED = re.compile(r"#?\s*Size\s+")
_OSU_COLUMNS = tuple(
    (re.compile(pattern), name, scale)
    for pattern, name, scale in (
        (r"(?:Avg )?Lat(?:ency)? ?\(us\)", "seconds", 1e-6),
        (r"Min Lat(?:ency)? ?\(us\)", "seconds_min", 1e-6),
        (r"Max Lat(?:ency)? ?\(us\)", "seconds_max", 1e-6),
        (r"P50 Tail Lat ?\(us\)", "seconds_p50", 1e-6),
        (r"P90 Tail Lat ?\(us\)", "seconds_p90", 1e-6),
        (r"P99 Tail Lat ?\(us\)", "seconds_p99", 1e-6),
        (r"Overall ?\(us\)", "seconds_overall", 1e-6),
        (r"Compute ?\(us\)", "seconds_compute", 1e-6),
        (r"Pure Comm\. ?\(us\)", "seconds_pure", 1e-6),
        (r"Overlap ?\(%\)", "overlap", 1e-2),
        (r"Bandwidth ?\(MB/s\)|MB/s", "bytes_per_s", 1e6),
        (r"Messages/s", "messages_per_s", 1.0),
        (r"Iterations", "iterations", 1.0),
        (r"Validation", _VALIDATION, 1.0),
    )
)
"""Heading of a column, its quantity, and the factor from a printed figure to s, B/s, or a part of 1."""
_NCCL_HEADING = re.compile(
    r"#\s+size\s+count\s+type(?P<redop>\s+redop)?(?P<root>\s+root)?(?:\s+time\s+algbw\s+busbw\s+(?:#wrong|error)){2}"
)
_NCCL_NAME = re.compile(r"# Collective test concluded: (?P<name>[a-z_]{1,60})")
_NCCL_COLUMNS = (("seconds", 1e-6), ("algorithm_bytes_per_s", 1e9), ("bus_bytes_per_s", 1e9))
_NUMBER = re.compile(r"[0-9]{1,30}(?:\.[0-9]{0,30})?(?:[eE][-+]?[0-9]{1,2})?")
_SIZE = re.compile(r"[0-9]{1,18}")
_LONGEST = 4096
"""Most characters of a line of a table."""


@dataclass(frozen=True)
class Size:
    """One line of a table."""

    line: int
    bytes: int | None
    """Message size in bytes; None for an operation without one, such as a barrier."""
    values: dict[str, float]
    """Value of each quantity in its base unit (s, B/s, 1/s, part of 1)."""
    wrong: int | None = None
    """Number of wrong elements; None if nothing was checked."""


@dataclass
class Microbenchmark:
    """One table of one tool."""

    path: Path
    tool: Tool
    name: str
    """Name that the tool prints; empty if it prints none."""
    version: str
    line: int
    """Number of the heading's line."""
    quantities: tuple[str, ...]
    """Quantities in the order of the columns: the keys that `Size.values` may have."""
    sizes: list[Size] = field(default_factory=list)


def load(path: Path) -> list[Microbenchmark]:
    """All tables of a file; none if it cannot be read.

    Prefixes of launchers, and colours, are removed.
    """
    try:
        with path.open("rb") as stream:
            return read((split(line.text or "")[1] for line in texts(stream)), path)
    except OSError:
        return []


_Row = Callable[[list[str], int], Size | None]
"""Makes the result of a line from its words and number; None if it is no line of the table."""


def read(lines: Iterable[str], path: Path) -> list[Microbenchmark]:
    """All tables of a file that hold at least one line.

    Parameters
    ----------
    lines
        Lines without prefixes of launchers, and without line ends.
    path
        Path for the results. No file is opened here.
    """
    found: list[Microbenchmark] = []
    title: re.Match[str] | None = None
    row: _Row | None = None
    for number, text in enumerate(lines, 1):
        if len(text) > _LONGEST:
            continue
        if matched := _OSU_TITLE.fullmatch(text.strip()):
            title, row = matched, None
        elif title and (columns := _osu_columns(text)):
            quantities = tuple(name for name, _ in columns if name != _VALIDATION)
            version = title["version"] or ""
            found.append(Microbenchmark(path, "OSU micro-benchmarks", title["name"], version, number, quantities))
            row = partial(_osu_row, columns, bool(_OSU_SIZED.match(text)))
        elif matched := _NCCL_HEADING.fullmatch(text.rstrip()):
            quantities = tuple(name + place for place in ("", "_in_place") for name, _ in _NCCL_COLUMNS)
            found.append(Microbenchmark(path, "nccl-tests", "", "", number, quantities))
            row = partial(_nccl_row, 3 + bool(matched["redop"]) + bool(matched["root"]))
        elif (matched := _NCCL_NAME.match(text)) and found and not found[-1].name:
            found[-1].name = matched["name"]
        elif row and (size := row(text.split(), number)):
            found[-1].sizes.append(size)
    return [table for table in found if table.sizes]


def _osu_columns(text: str) -> list[tuple[str, float]]:
    """Quantities of a heading, in order; none if it is no heading, or has an unknown column."""
    rest = _OSU_SIZED.sub("", text, count=1).lstrip("# ").rstrip()
    columns: list[tuple[str, float]] = []
    while rest:
        known = ((pattern.match(rest), name, scale) for pattern, name, scale in _OSU_COLUMNS)
        column, name, scale = next((one for one in known if one[0]), (None, "", 0.0))
        if column is None or (name, scale) in columns:
            return []
        columns.append((name, scale))
        rest = rest[column.end() :].lstrip()
    return columns


def _osu_row(columns: list[tuple[str, float]], sized: bool, words: list[str], line: int) -> Size | None:
    if len(words) != sized + len(columns) or (sized and not _SIZE.fullmatch(words[0])):
        return None
    values: dict[str, float] = {}
    wrong = None
    for (name, scale), word in zip(columns, words[sized:], strict=True):
        if name == _VALIDATION and word in ("Pass", "Fail"):
            wrong = int(word == "Fail")
        elif name != _VALIDATION and _NUMBER.fullmatch(word):
            values[name] = float(word) * scale
        else:
            return None
    return Size(line, int(words[0]) if sized else None, values, wrong)


def _nccl_row(lead: int, words: list[str], line: int) -> Size | None:
    if len(words) != lead + 8 or not (_SIZE.fullmatch(words[0]) and _SIZE.fullmatch(words[1])):
        return None
    values: dict[str, float] = {}
    wrong: int | None = 0
    for place, part in (("", words[lead : lead + 4]), ("_in_place", words[lead + 4 :])):
        *figures, errors = part
        if not all(map(_NUMBER.fullmatch, figures)) or not (errors == "N/A" or _NUMBER.fullmatch(errors)):
            return None
        for (name, scale), word in zip(_NCCL_COLUMNS, figures, strict=True):
            values[name + place] = float(word) * scale
        wrong = None if wrong is None or errors == "N/A" else wrong + math.ceil(float(errors))
    return Size(line, int(words[0]), values, wrong)
