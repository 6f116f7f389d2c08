"""The formats of a report, with a writer for each, which is loaded when it is needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.collect.microbenchmarks import Microbenchmark
from hpcbench.present.document import Document
from hpcbench.present.results import FORMATS as COMMON_FORMATS
from hpcbench.present.results import Results
from hpcbench.report.build import Section, build
from hpcbench.report.pooling import split_pooled

FORMATS = {**COMMON_FORMATS, "junit": (".xml",)}
"""Suffixes of the files of each format."""
ALL_TABLES = ("html",)
"""Formats that show all tables by default."""
ONLY_RUNS = ("csv", "junit")
"""Formats that show only runs and schemes, each by itself."""
ALL_FIGURES = ("csv", "junit", "json")
"""Formats whose tables cannot be chosen. They have all figures or none."""


@dataclass(frozen=True)
class ReportRequest(Results):
    """A report that was asked for."""

    sections: Sequence[Section]
    tables: Sequence[str]
    """Names of the tables."""
    output: Path | None
    """File that it is written to; None for standard output."""
    microbenchmarks: Sequence[Microbenchmark] = ()

    def document(self, *, figures: bool = False) -> Document:
        """Return the report as a document, with figures if the format shows some."""
        return build(self.sections, self.tables, figures=figures, microbenchmarks=self.microbenchmarks)

    def content(self) -> dict[str, Any]:
        """Return the report as data for programs."""
        from hpcbench.report.formats import json_document

        return json_document.content(self.sections, self.microbenchmarks)

    def csv(self) -> str:
        """Return a row for each scheme and cell."""
        from hpcbench.report.formats import csv_rows

        return csv_rows.write(self.sections)

    def html(self) -> str:
        """Return the report as a page with its provenance and the lines that it cites."""
        from hpcbench.report.page import write

        directory = self.output.parent if self.output else None
        submissions = split_pooled([submission for submission, _ in self.sections])
        return write(self.document(figures=True), submissions, directory)

    def write(self, format: str) -> str:
        """Return the report in one of `FORMATS`."""
        if format == "junit":
            from hpcbench.report.formats import junit

            return junit.write(self.sections)
        return super().write(format)
