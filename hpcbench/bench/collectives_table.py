"""Document with collective measurements."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hpcbench.bench.collectives_plot import figure
from hpcbench.bench.options import format_size
from hpcbench.bench.schemes import CollectiveRow
from hpcbench.present.document import Column, Document, Entry, Field, Sentences, Table, make_chapter, tabulate
from hpcbench.present.notation import column_name, error, figure_column, microseconds, rate, short, text_column
from hpcbench.present.results import RowResults


@dataclass(frozen=True)
class CollectiveResults(RowResults):
    """Measurements of collectives."""

    measured: Sequence[CollectiveRow]
    left_out: Sequence[str]
    """Reasons for missing measurements."""
    title: str
    about: Mapping[str, Any]

    def document(self, *, figures: bool = False) -> Document:
        """Return two tables per operation: times of all schemes, and details of each scheme."""
        blocks = [
            *(table for rows in _split_by_operation(self.measured) for table in (_compare(rows), _list_details(rows))),
            Sentences(tuple(f"Not measured: {reason}" for reason in self.left_out), "warning"),
            figure(self.measured, self.title) if figures else None,
        ]
        return Document("Collectives", (make_chapter(self.title, "", blocks),))

    def content(self) -> dict[str, Any]:
        """Return all measurements with the machine and the settings."""
        return {"schema": 1, **self.about, "left_out": list(self.left_out), "rows": self.rows()}

    def rows(self) -> list[dict[str, Any]]:
        """Return an object for each scheme and size."""
        return [{**asdict(row), "wire_share": row.wire_share} for row in self.measured]


def _split_by_operation(rows: Sequence[CollectiveRow]) -> Iterator[list[CollectiveRow]]:
    for operation in dict.fromkeys(row.operation for row in rows):
        yield [row for row in rows if row.operation == operation]


def _compare(rows: Sequence[CollectiveRow]) -> Table | None:
    """Return a table of times in microseconds, with the speed relative to the library in parentheses."""
    operation = rows[0].operation
    measured = {(row.bytes, row.scheme): row for row in rows}

    def scheme_column(scheme: str) -> Field[int]:
        def entry(nbytes: int) -> Entry:
            row = measured.get((nbytes, scheme))
            if row is None:
                return Entry()
            text = f"{microseconds(row.seconds)} ({short(row.speedup)}x)"
            return Entry(text, row.seconds, "good" if row.speedup > 1 else "warning")

        return Column(column_name(scheme), scheme), entry

    fields: list[Field[int]] = [
        text_column(operation, format_size),
        figure_column("native us", lambda nbytes: measured[nbytes, "native"].seconds, microseconds),
        *(scheme_column(row) for row in dict.fromkeys(row.scheme for row in rows) if row != "native"),
    ]
    sizes = list(dict.fromkeys(row.bytes for row in rows))
    return tabulate(f"time-{operation}", f"{operation}: us, and how many times as fast as native", sizes, fields)


def _list_details(rows: Sequence[CollectiveRow]) -> Table | None:
    operation = rows[0].operation
    fields: list[Field[CollectiveRow]] = [
        text_column("size", lambda row: format_size(row.bytes)),
        text_column("scheme", lambda row: row.scheme),
        text_column("carried out by", lambda row: row.how),
        figure_column("alg GB/s", lambda row: row.algorithm_bandwidth, rate),
        figure_column("bus GB/s", lambda row: row.bus_bandwidth, rate),
        figure_column("x native", lambda row: row.speedup, "{:.2f}".format),
        figure_column("rel. error", lambda row: row.relative_error, error),
        figure_column("wire/message", lambda row: row.wire_share, "{:.3f}".format),
    ]
    return tabulate(f"details-{operation}", f"{operation}: bandwidth and error", rows, fields)
