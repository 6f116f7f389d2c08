"""Document with codec measurements."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hpcbench.bench.codecs import CodecRow, Result
from hpcbench.bench.plot import figure
from hpcbench.present.document import Column, Document, Entry, Field, Sentences, Table, make_chapter, tabulate
from hpcbench.present.notation import error, figure_column, short, text_column
from hpcbench.present.results import RowResults

_SPEEDS = {
    "encode": "encode",
    "decode": "decode",
    "decode+add": "decode_add",
    "dec+add+enc": "decode_add_encode",
}
"""Operations, keyed by column heading."""


@dataclass(frozen=True)
class CodecResults(RowResults):
    """Measurements of codecs on the same values."""

    result: Result
    title: str
    machine: Mapping[str, Any]
    settings: Mapping[str, Any]
    left_out: Sequence[str] = ()
    """Codecs that the device does not support."""

    def document(self, *, figures: bool = False) -> Document:
        """Return the table, with a sentence for each codec whose error exceeds its bound."""
        broken = (describe_broken(row) for row in self.result.rows if row.broken)
        absent = [f"Not available on this device: {', '.join(self.left_out)}"] if self.left_out else []
        blocks = [
            _table(self.result),
            Sentences(tuple(absent), "warning"),
            Sentences(tuple(broken), "bad"),
            figure(self.result, self.title) if figures else None,
        ]
        about = f"GB/s of values, best of {self.settings['repeats']} (median)"
        return Document("Codecs", (make_chapter(self.title, about, blocks),))

    def content(self) -> dict[str, Any]:
        """Return all measurements with the machine and the settings."""
        return {
            "schema": 1,
            "machine": dict(self.machine),
            "settings": dict(self.settings),
            "memcpy": asdict(self.result.memcpy),
            "rows": self.rows(),
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return an object for each codec."""
        return [{**asdict(row), "broken": row.broken} for row in self.result.rows]


def describe_broken(row: CodecRow) -> str:
    """Return a sentence about a codec whose error exceeds the codec's bound."""
    return f"{row.codec}: its error {row.max_error:.3g} is above its bound {row.error_bound:.3g}: a defect of the codec"


def _table(result: Result) -> Table | None:
    copy = result.memcpy
    fields: list[Field[CodecRow]] = [
        text_column("codec", lambda row: row.codec),
        figure_column("ratio", lambda row: row.ratio, "{:.3f}".format),
        figure_column("bits/value", lambda row: row.bits_per_value, "{:.2f}".format),
        *(_speed(head, operation) for head, operation in _SPEEDS.items()),
        figure_column("encode/copy", lambda row: row.speeds["encode"].best / copy.best, short, group=1),
        figure_column("decode/copy", lambda row: row.speeds["decode"].best / copy.best, short, group=1),
        figure_column("rel. RMSE", lambda row: row.relative_rmse, error, group=2),
        (Column("max_error", "max error", group=2), _max_error),
        figure_column("bound", lambda row: row.error_bound, error, group=2),
        (Column("nan_inf", "NaN, Inf", text=True, group=2), _survival),
    ]
    note = f"A copy of the values runs at {short(copy.best)} ({short(copy.median)}) GB/s."
    return tabulate("codecs", "", result.rows, fields, notes=[note])


def _speed(head: str, operation: str) -> Field[CodecRow]:
    def entry(row: CodecRow) -> Entry:
        speed = row.speeds[operation]
        return Entry(f"{short(speed.best)} ({short(speed.median)})", speed.best)

    return Column(operation, head, group=1), entry


def _max_error(row: CodecRow) -> Entry:
    return Entry(error(row.max_error), row.max_error, "bad" if row.broken else "")


def _survival(row: CodecRow) -> Entry:
    return Entry(row.non_finite, row.non_finite, "warning" if row.non_finite == "lost" else "")
