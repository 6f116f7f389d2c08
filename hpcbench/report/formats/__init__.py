"""The formats of a report, with one writer for each, which is loaded when it is needed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.collect.microbenchmarks import Microbenchmark
from hpcbench.contract.text import printable
from hpcbench.errors import UserError
from hpcbench.report.build import Section, build
from hpcbench.report.document import Document
from hpcbench.report.pooling import parts

TERMINAL = "table"


@dataclass(frozen=True)
class Request:
    """A report that was asked for."""

    sections: Sequence[Section]
    tables: Sequence[str]
    """Names of the tables."""
    output: Path | None
    """File that it is written to; None for standard output."""
    microbenchmarks: Sequence[Microbenchmark] = ()

    def document(self, *, figures: bool = False) -> Document:
        """The report as a document, with figures if the format shows some."""
        return build(self.sections, self.tables, figures=figures, microbenchmarks=self.microbenchmarks)

    def content(self) -> dict[str, Any]:
        """The report as data for programs."""
        from hpcbench.report.formats import json_document

        return json_document.content(self.sections, self.microbenchmarks)


@dataclass(frozen=True)
class Format:
    """A way to write a report."""

    write: Callable[[Request], str]
    suffixes: tuple[str, ...]
    """Suffixes of its files."""
    tables: str = ""
    """Tables that it shows by default, in the form of `table_names`."""
    runs: bool = False
    """Whether it shows only runs and schemes, each by itself."""
    chosen: bool = True
    """Whether its tables can be chosen. If not, it has all figures or none."""


def _text(request: Request) -> str:
    from hpcbench.report.formats import rich_text

    return rich_text.write(request.document())


def _markdown(request: Request) -> str:
    from hpcbench.report.formats import markdown

    return markdown.write(request.document())


def _latex(request: Request) -> str:
    from hpcbench.report.formats import latex

    return latex.write(request.document())


def _csv(request: Request) -> str:
    from hpcbench.report.formats import csv_rows

    return csv_rows.write(request.sections)


def _json(request: Request) -> str:
    from hpcbench.report.formats import json_document

    return json_document.encode(request.content())


def _junit(request: Request) -> str:
    from hpcbench.report.formats import junit

    return junit.write(request.sections)


def _html(request: Request) -> str:
    from hpcbench.report.page import write

    directory = request.output.parent if request.output else None
    submissions = parts([submission for submission, _ in request.sections])
    return write(request.document(figures=True), submissions, directory)


FORMATS = {
    TERMINAL: Format(_text, (".txt",)),
    "md": Format(_markdown, (".md", ".markdown")),
    "latex": Format(_latex, (".tex",)),
    "csv": Format(_csv, (".csv",), runs=True, chosen=False),
    "json": Format(_json, (".json",), chosen=False),
    "html": Format(_html, (".html", ".htm"), tables="all"),
    "junit": Format(_junit, (".xml",), runs=True, chosen=False),
}
"""The formats by their names in ``--format``."""


def format_name(wanted: str | None, output: Path | None) -> str:
    """Name of the wanted format, by its name or by the suffix of the file; without either, the terminal's.

    Raises
    ------
    UserError
        There is no format with this name or suffix.
    """
    if wanted is not None and wanted not in FORMATS:
        raise UserError(f"--format {printable(wanted, 40)}: not known: use one of {', '.join(FORMATS)}")
    suffix = output.suffix.lower() if output else ""
    if wanted or not output or not suffix:
        return wanted or TERMINAL
    for name, one in FORMATS.items():
        if suffix in one.suffixes:
            return name
    known = ", ".join(suffix for one in FORMATS.values() for suffix in one.suffixes)
    raise UserError(
        f"--output {printable(str(output))}: {printable(suffix, 20)} says no format: use {known}, or add --format"
    )
