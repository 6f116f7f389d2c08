"""Search for tables of the OSU micro-benchmarks and nccl-tests (or rccl-tests) in a file.

Warnings, output of other ranks and launcher prefixes may be mixed with the table lines. A row is used only if its
columns match the heading and have the expected format.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from hpcbench.collect.benchmark_tables import nccl, nccl_json, osu
from hpcbench.collect.benchmark_tables.columns import NUMBER, SIZE, VALIDATION, BenchmarkColumn, Heading
from hpcbench.collect.benchmark_tables.table import Microbenchmark, TableRow
from hpcbench.collect.dialects.prefix import split
from hpcbench.collect.dialects.texts import texts

__all__ = ["Microbenchmark", "TableRow", "load", "read"]
_LONGEST = 4096
"""Maximum length of a table line in characters."""
_MARKDOWN = re.compile(r"\\([#_*<>\[\]|~`+-])")
_TIME = r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} [0-9]{4} ?)?"
_GLUED = re.compile(
    r"(?<=\S)(?="
    # Open MPI's tag, with or without its time, and torchrun's
    rf"{_TIME}\[[^\[\]\s,]{{0,100}},[0-9]{{1,7}}\]<std(?:out|err|diag)>:"
    r"|\[(?:default|rank)[0-9]{1,7}\]:"
    r"|# (?:OSU |Size |Datatype: |Collective test |nThread |Out of bounds |Avg bus )"
    r"|#\s{1,20}(?:size\s|\(B\)))"
)
"""Positions at which a line begins within another line because several processes wrote at the same time."""


def load(path: Path) -> list[Microbenchmark]:
    """Read all tables of a file, including tables without rows. Return no tables if the file cannot be read."""
    try:
        with path.open("rb") as stream:
            begin = stream.read(1)
            if begin == b"{" and path.stat().st_size <= nccl_json.LARGEST:
                table = nccl_json.read_json((begin + stream.read()).decode("utf-8", "replace"), path)
                return [table] if table else []
            stream.seek(0)
            return read((line.text or "" for line in texts(stream)), path)
    except OSError:
        return []


def read(lines: Iterable[str], path: Path) -> list[Microbenchmark]:
    """Read all tables that have a heading.

    Parameters
    ----------
    lines
        Lines without line endings.
    path
        Path to store in the results. No file is opened here.
    """
    reader = _Reader(path)
    for number, line in enumerate(lines, 1):
        for text in _pieces(line):
            reader.feed(text, number)
    reader.close()
    return reader.tables


def _pieces(line: str) -> Iterator[str]:
    """Split lines that were joined, and remove prefixes, Markdown backslashes, and quotes."""
    for piece in _GLUED.split(line[: 4 * _LONGEST]):
        text = split(piece)[1].lstrip(" \t>")
        if len(text) <= _LONGEST:
            yield _MARKDOWN.sub(r"\1", text) if "\\" in text else text


class _Reader:
    """The tables read so far, and the current table."""

    def __init__(self, path: Path) -> None:
        self.tables: list[Microbenchmark] = []
        self._path = path
        self._title: re.Match[str] | None = None
        self._datatype = ""
        self._name = ""
        self._heading: Heading | None = None
        self._ended = True
        self._wide: list[tuple[list[str], int]] = []

    def feed(self, text: str, number: int) -> None:
        """Process the next line."""
        if matched := osu.TITLE.fullmatch(text.strip()):
            self.close()
            self._title, self._datatype = matched, ""
        elif matched := osu.DATATYPE.fullmatch(text.strip()):
            self._take_datatype(matched["datatype"])
        elif matched := nccl.NAME.match(text):
            self._take_name(matched["place"], matched["name"])
        elif columns := nccl.heading(text):
            self._open(Microbenchmark(self._path, "nccl-tests", self._name, "", number, ()), columns)
            self._title, self._ended = None, False
        elif self._title and (parsed := osu.heading(text, self._datatype)):
            name, version = self._title["name"], self._title["version"] or ""
            table = Microbenchmark(self._path, "OSU micro-benchmarks", name, version, number, ())
            self._open(table, parsed[0])
            self._row(parsed[1], number)
        elif self.tables and self._heading is not None:
            self._within(text, number)

    def close(self) -> None:
        """Finish the current table."""
        if self._heading is None:
            return
        table = self.tables[-1]
        if self._wide and not table.sizes:
            self._take_wide(table)
        table.quantities = self._heading.quantities
        if unknown := self._heading.unknown:
            table.remarks.append(f"columns that were skipped: {', '.join(dict.fromkeys(unknown))}")
        if not self._ended:
            table.remarks.append(
                "the table is incomplete, because the two lines of totals below the table are missing: check whether "
                "the benchmark was stopped"
            )
        self._heading, self._ended, self._wide = None, True, []

    def _open(self, table: Microbenchmark, columns: Heading) -> None:
        self.close()
        self.tables.append(table)
        self._heading = columns

    def _take_datatype(self, datatype: str) -> None:
        """Set the data type of the following rows.

        Some programs print the data type below the heading, others above it.
        """
        if self._heading is not None and not self.tables[-1].sizes:
            self._heading = replace(self._heading, datatype=datatype)
        else:
            self.close()
            self._datatype = datatype

    def _take_name(self, place: str, name: str) -> None:
        if place == "starting":
            self.close()
            self._name = name
            return
        if self.tables and self.tables[-1].tool == "nccl-tests":
            self.tables[-1].name = self.tables[-1].name or name
        self._name = ""

    def _within(self, text: str, number: int) -> None:
        """Parse a line below a heading."""
        assert self._heading is not None
        table = self.tables[-1]
        if table.tool == "nccl-tests":
            if (matched := nccl.END.fullmatch(text)) is not None:
                table.failed |= matched["failed"] is not None
                self._ended = True
                return
            if not table.sizes and (columns := nccl.with_units(self._heading, text)) is not None:
                self._heading = columns
                return
        elif (matched := osu.FAILED.search(text)) is not None:
            table.failed = True
            table.remarks.append(matched[0].strip())
            return
        self._row(text, number)

    def _row(self, text: str, number: int) -> None:
        assert self._heading is not None
        table, cells = self.tables[-1], text.split()
        if self._heading.fits(cells):
            if (size := self._heading.read(cells, number)) is not None:
                table.sizes.append(size)
        elif self._heading.begins(cells):
            table.remarks.append(f"line {number} was skipped, because the row looks truncated")
        elif len(cells) > len(self._heading.columns) and _first(self._heading, cells, number):
            self._wide.append((cells, number))

    def _take_wide(self, table: Microbenchmark) -> None:
        """Read rows that contain more words than the heading contains columns.

        The first quantity is always read. Later quantities are read only if the column order of the tool is known.
        """
        assert self._heading is not None
        widths = [len(cells) for cells, _ in self._wide]
        width = max(widths, key=widths.count)
        rows = [(cells, line) for cells, line in self._wide if len(cells) == width]
        full = osu.widened(self._heading, rows) if table.tool == "OSU micro-benchmarks" else None
        if full is not None:
            self._heading = full
            table.sizes += [size for cells, line in rows if (size := full.read(cells, line))]
            return
        table.sizes += [size for cells, line in rows if (size := _first(self._heading, cells, line))]
        extra = width - len(self._heading.columns)
        self._heading = Heading(_leading(self._heading), self._heading.datatype)
        table.remarks.append(
            f"the rows have more columns than the heading ({extra} more): only the first quantity was read"
        )


def _leading(heading: Heading) -> tuple[BenchmarkColumn, ...]:
    """Return the columns up to the first quantity."""
    names = [column.name for column in heading.columns]
    at = next(i for i, name in enumerate(names) if name in heading.quantities)
    return heading.columns[: at + 1]


def _first(heading: Heading, cells: list[str], line: int) -> TableRow | None:
    """Return a row with only the first quantity and, if present, the result of its check."""
    leading = _leading(heading)
    verdicts = [cell for cell in cells if cell in ("Pass", "Fail")]
    figures = [cell for cell in cells[len(leading) :] if cell not in (*verdicts, "N/A")]
    if heading.columns[0].name != SIZE or not all(map(NUMBER.fullmatch, figures)):
        return None
    size = Heading(leading, heading.datatype).read(cells, line)
    has_verdict = any(column.name == VALIDATION for column in heading.columns) and len(verdicts) == 1
    return replace(size, wrong=int(verdicts[0] == "Fail")) if size and has_verdict else size
