"""Report formats and their writers, which are imported on demand."""

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
"""File suffixes of each format."""
ALL_TABLES = ("html",)
"""Formats that show all tables by default."""
ONLY_RUNS = ("csv", "junit")
"""Formats that show only individual runs and schemes."""
ALL_FIGURES = ("csv", "junit", "json")
"""Formats for which tables cannot be selected, because they contain the values of all tables or of none."""


@dataclass(frozen=True)
class ReportRequest(Results):
    """A requested report."""

    sections: Sequence[Section]
    tables: Sequence[str]
    """Names of the tables."""
    output: Path | None
    """Output file, or None for standard output."""
    microbenchmarks: Sequence[Microbenchmark] = ()

    def document(self, *, figures: bool = False) -> Document:
        """Return the report as a document, optionally with figures."""
        return build(self.sections, self.tables, figures=figures, microbenchmarks=self.microbenchmarks)

    def content(self) -> dict[str, Any]:
        """Return the report as machine-readable data."""
        from hpcbench.report.formats import json_document

        return json_document.content(self.sections, self.microbenchmarks)

    def csv(self) -> str:
        """Return CSV with one row per scheme and cell."""
        from hpcbench.report.formats import csv_rows

        return csv_rows.write(self.sections)

    def html(self) -> str:
        """Return the report as an HTML page, including provenance and cited log lines."""
        from hpcbench.report.page import write

        directory = self.output.parent if self.output else None
        submissions = split_pooled([submission for submission, _ in self.sections])
        return write(self.document(figures=True), submissions, directory)

    def write(self, format: str) -> str:
        """Return the report in a format of `FORMATS`."""
        if format == "junit":
            from hpcbench.report.formats import junit

            return junit.write(self.sections)
        return super().write(format)
