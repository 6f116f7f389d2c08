"""Results of ``hpcbench diagnose``, as a document and as data."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from hpcbench.diagnose import plots
from hpcbench.diagnose.diagnosis import Diagnosis, KindRow
from hpcbench.diagnose.gains import CODECS, FREE
from hpcbench.diagnose.show import answer, notes, sentences
from hpcbench.present.document import Column, Document, Entry, Field, Sentences, Table, make_chapter, tabulate
from hpcbench.present.notation import figure_column, percent, quantity, text_column
from hpcbench.present.results import RowResults

VERSION = 1
"""Version of the data format."""


@dataclass(frozen=True)
class Diagnosed(RowResults):
    """A diagnosis that can be written in all formats."""

    diagnosis: Diagnosis

    def document(self, *, figures: bool = False) -> Document:
        """Return a document with the conclusion, the kinds of calls, and the maximum gains."""
        diagnosis = self.diagnosis
        title = f"Diagnosis of {', '.join(path.name for path in diagnosis.paths[:3])}"
        blocks = (
            Sentences(tuple(answer(diagnosis)), "strong"),
            tabulate_calls(diagnosis),
            tabulate_gains(diagnosis),
            Sentences(tuple(notes(diagnosis))),
            *(plots.figures(diagnosis) if figures else ()),
        )
        return Document(title, (make_chapter("", "", blocks),))

    def content(self) -> dict[str, Any]:
        """Return the diagnosis as JSON data."""
        content = asdict(self.diagnosis)
        content["paths"] = [str(path) for path in self.diagnosis.paths]
        return {"version": VERSION, **content, "answer": sentences(self.diagnosis)}

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each kind of call."""
        rows: list[dict[str, Any]] = self.content()["rows"]
        return rows


def tabulate_calls(diagnosis: Diagnosis) -> Table | None:
    """Return a table with a row for each kind of call, in descending order of exposed time."""
    fields: list[Field[KindRow]] = [
        text_column("dimension", lambda row: row.kind.dimension),
        text_column("operation", lambda row: row.kind.operation),
        text_column("type", lambda row: row.kind.dtype),
        text_column("group", lambda row: f"{row.kind.description or '-'} x {row.kind.group_size or '?'}"),
        figure_column("calls", lambda row: row.calls),
        _scaled("MB", lambda row: row.message_bytes, 1e-6, "Bytes of the whole vectors."),
        _scaled("ms", lambda row: row.seconds, 1e3, "Time within calls."),
        _scaled("exposed ms", lambda row: row.exposed, 1e3, "Time that no computation covers."),
        _scaled("waiting ms", lambda row: row.waiting, 1e3, "Time until the last rank began the call."),
        _scaled("Gbit/s", lambda row: row.bandwidth, 8e-9, "Bytes on the wire of a rank divided by the transfer time."),
    ]
    if link := diagnosis.link_gbit:
        share = "Bytes on the wire divided by the capacity of the link (--link) in that time."
        fields.append(figure_column("of the link", partial(_share_of_link, link), percent, help=share))
    per = "step" if diagnosis.steps else "trace"
    title = f"Calls per {per} and rank, the most exposed first"
    return tabulate("calls", title, diagnosis.rows, fields)


def tabulate_gains(diagnosis: Diagnosis) -> Table | None:
    """Return a table with the exposed fraction of each dimension, and the maximum gain of each codec."""
    exposed = diagnosis.by_dimension()
    fields: list[Field[str]] = [
        text_column("dimension", lambda dimension: dimension),
        figure_column("exposed", exposed.__getitem__, percent, help="Fraction of the step."),
        *(_gain_column(diagnosis, codec.name) for codec in (*CODECS, FREE)),
        figure_column("int8 below Gbit/s", _break_even(diagnosis), help="Bandwidth per rank below which int8 pays."),
    ]
    return tabulate("gains", "Largest possible gain by dimension", list(exposed), fields)


def _share_of_link(link_gbit: float, row: KindRow) -> float | None:
    return None if row.bandwidth is None else 8e-9 * row.bandwidth / link_gbit


def _gain_column(diagnosis: Diagnosis, codec: str) -> Field[str]:
    def entry(dimension: str) -> Entry:
        gain = diagnosis.gain(dimension, codec)
        return quantity(gain.factor if gain else None, "{:.2f}x".format)

    name = codec.replace(" ", "_")
    return Column(name, codec, help="Step time divided by the shortest possible step time."), entry


def _break_even(diagnosis: Diagnosis) -> Callable[[str], float | None]:
    def bandwidth(dimension: str) -> float | None:
        gain = diagnosis.gain(dimension, "int8")
        return gain.break_even if gain else None

    return bandwidth


def _scaled(head: str, of: Callable[[KindRow], float | None], scale: float, help: str) -> Field[KindRow]:
    def value(row: KindRow) -> float | None:
        unscaled = of(row)
        return None if unscaled is None else unscaled * scale

    return figure_column(head, value, "{:.3g}".format, help=help)
