"""``--export FILE``: the suffix says the kind of file, its name which table; it is there whole, or as it was before."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from hpcbench.bench.progress import Show, progress
from hpcbench.collect.lines import printable
from hpcbench.collect.submission import Submission
from hpcbench.errors import UserError
from hpcbench.report.export import writers
from hpcbench.report.export.rows import rows
from hpcbench.report.export.schema import RECORDS, TABLES, Row, Table

_ONE: Mapping[str, Callable[[Path, Table, Iterable[Row]], None]] = {
    ".csv": writers.write_csv,
    ".jsonl": writers.write_json_lines,
    ".parquet": writers.write_parquet,
}
"""Suffix -> what writes a table."""
_ALL: Mapping[str, Callable[[Path, Mapping[Table, Iterable[Row]]], None]] = {
    ".sqlite": writers.write_sqlite,
    ".db": writers.write_sqlite,
}
"""Suffix -> what writes all tables."""


@dataclass(frozen=True)
class Target:
    """A file to export to."""

    path: Path
    tables: tuple[Table, ...]

    @classmethod
    def of(cls, path: Path) -> "Target":
        """What a path asks for.

        Raises
        ------
        UserError
            Its suffix is unknown, its directory is missing or may not be written to, or a package is missing.
        """
        name, suffix = f"--export {printable(str(path))}", path.suffix.lower()
        if suffix not in _ONE and suffix not in _ALL:
            raise UserError(f"{name}: the suffix says the kind of file: use one of {', '.join((*_ONE, *_ALL))}")
        if suffix == ".parquet" and find_spec("pyarrow") is None:
            raise UserError(f"{name}: Parquet needs pyarrow: pip install 'hpcbench[parquet]', or use .sqlite or .csv")
        try:
            if not path.parent.is_dir():
                raise UserError(f"{name}: there is no directory {printable(str(path.parent))}: make it first")
            if path.is_dir():
                raise UserError(f"{name}: is a directory: name a file in it")
        except OSError as error:
            raise UserError(f"{name}: cannot be written: {error.strerror}") from None
        if not os.access(path.parent, os.W_OK):
            raise UserError(f"{name}: cannot be written: {printable(str(path.parent))} is not yours to write to")
        return cls(path, tuple(TABLES.values()) if suffix in _ALL else (TABLES.get(path.stem, RECORDS),))

    def write(self, submissions: Sequence[Submission]) -> None:
        """Write all rows; what is done is told on standard error.

        Raises
        ------
        UserError
            The file cannot be written.
        """
        temporary = self.path.with_name(f"hpcbench.{os.getpid()}.{os.urandom(4).hex()}.tmp")
        runs = [(submission, run) for submission in submissions for run in submission.runs]
        written = dict.fromkeys(self.tables, 0)

        def all_of(table: Table, show: Show) -> Iterator[Row]:
            before = list(self.tables).index(table) * len(runs)
            for i, (submission, run) in enumerate(runs):
                show(before + i, len(self.tables) * len(runs), printable(run.id, 60))
                for row in rows(table, submission, run):
                    written[table] += 1
                    yield row

        try:
            with progress(unit="runs") as show:
                self._write(temporary, {table: all_of(table, show) for table in self.tables})
            temporary.replace(self.path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UserError(f"--export {printable(str(self.path))}: cannot be written: {printable(reason)}") from None
        finally:
            temporary.unlink(missing_ok=True)
        said = ", ".join(f"{table.name} {count}" for table, count in written.items())
        print(f"hpcbench: {printable(str(self.path))}: rows written: {said}", file=sys.stderr)

    def _write(self, path: Path, contents: Mapping[Table, Iterable[Row]]) -> None:
        suffix = self.path.suffix.lower()
        if suffix in _ALL:
            _ALL[suffix](path, contents)
            return
        for table, found in contents.items():
            _ONE[suffix](path, table, found)
