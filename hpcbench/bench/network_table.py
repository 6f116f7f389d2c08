"""Document with network measurements."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench.bench.network import Level, MeasuredNetwork
from hpcbench.bench.options import format_size
from hpcbench.comm.links import SCHEMA, Speed
from hpcbench.present.document import Document, Field, Sentences, Table, make_chapter, tabulate
from hpcbench.present.notation import figure_column, microseconds, rate, text_column
from hpcbench.present.results import RowResults


@dataclass(frozen=True)
class NetworkResults(RowResults):
    """Measurements of links, codecs and the MPI library."""

    network: MeasuredNetwork
    left_out: Sequence[str]
    """Reasons for missing measurements."""
    title: str
    about: Mapping[str, Any]
    """Additional keys of the file."""

    def document(self, *, figures: bool = False) -> Document:
        """Return tables of links, codecs, and library collectives."""
        tables = (_tabulate_links(self.network), _tabulate_codecs(self.network), _tabulate_native(self.network))
        left_out = Sentences(tuple(f"Not measured: {reason}" for reason in self.left_out), "warning")
        return Document("Network", (make_chapter(self.title, "", (*tables, left_out)),))

    def content(self) -> dict[str, Any]:
        """Return the links in the format of `hpcbench.comm.links.load`."""
        return {"schema": SCHEMA, **self.network.to_links(), **self.about}

    def rows(self) -> list[dict[str, Any]]:
        """Return an object for each library collective."""
        return [
            {"operation": operation, "bytes": nbytes, "seconds": seconds}
            for operation, nbytes, seconds in self.network.native
        ]


def _tabulate_links(network: MeasuredNetwork) -> Table | None:
    levels = {"within nodes, per rank": network.within, "between nodes, per node": network.between}
    measured = [(name, level) for name, level in levels.items() if level]

    def rate_of(nbytes: int) -> Callable[[tuple[str, Level]], float]:
        return lambda item: item[1].rate(nbytes)

    fields: list[Field[tuple[str, Level]]] = [
        text_column("links", lambda item: item[0]),
        figure_column("latency us", lambda item: item[1].latency_s, microseconds),
        *(
            figure_column(f"GB/s at {format_size(nbytes)}", rate_of(nbytes), rate)
            for nbytes in sorted({nbytes for _, level in measured for nbytes in level.seconds})
        ),
    ]
    return tabulate("links", "Links", measured, fields)


def _tabulate_codecs(network: MeasuredNetwork) -> Table | None:
    fields: list[Field[tuple[str, Speed]]] = [
        text_column("codec, a rank", lambda item: item[0]),
        figure_column("encode GB/s", lambda item: item[1].encode_bytes_per_s, rate),
        figure_column("decode+add GB/s", lambda item: item[1].decode_bytes_per_s, rate),
        figure_column("call us", lambda item: item[1].call_s, microseconds),
        figure_column("wire/values", lambda item: item[1].ratio, "{:.3f}".format),
    ]
    return tabulate("codecs", "Codecs", list(network.codecs.items()), fields)


def _tabulate_native(network: MeasuredNetwork) -> Table | None:
    seconds = {(operation, nbytes): taken for operation, nbytes, taken in network.native}

    def seconds_of(operation: str) -> Callable[[int], float | None]:
        return lambda nbytes: seconds.get((operation, nbytes))

    fields: list[Field[int]] = [
        text_column("bytes", format_size),
        *(figure_column(name, seconds_of(name), microseconds) for name in dict.fromkeys(name for name, _ in seconds)),
    ]
    return tabulate("native", "MPI library, us", sorted({nbytes for _, nbytes in seconds}), fields)
