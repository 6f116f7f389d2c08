"""Results in each format, and the files that hold them."""

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hpcbench.contract.text import make_printable
from hpcbench.errors import UserError
from hpcbench.present.document import Document
from hpcbench.present.records import encode, flatten, write_csv

TERMINAL = "table"
FORMATS = {
    TERMINAL: (".txt",),
    "md": (".md", ".markdown"),
    "latex": (".tex",),
    "csv": (".csv",),
    "json": (".json",),
    "html": (".html", ".htm"),
}
"""Suffixes of the files of each format."""


class Results(ABC):
    """Results of a command, which each format shows in its own way."""

    @abstractmethod
    def document(self, *, figures: bool = False) -> Document:
        """Return the document for readers, with figures if the format shows some."""

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Return the data for programs."""

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of a CSV file: objects of the data."""
        raise NotImplementedError

    def csv(self) -> str:
        """Return the rows as CSV, with a column for each nested key."""
        return write_csv(flatten(self.rows()))

    def html(self) -> str:
        """Return the document as a page."""
        from hpcbench.present.page import write

        return write(self.document(figures=True))

    def write(self, format: str) -> str:
        """Return the results in one of `FORMATS`."""
        if format == "csv":
            return self.csv()
        if format == "json":
            return encode(self.content())
        if format == "html":
            return self.html()
        from hpcbench.present import latex, markdown, rich_text

        writers = {TERMINAL: rich_text.write, "md": markdown.write, "latex": latex.write}
        return writers[format](self.document())

    def show(self, format: str = TERMINAL, output: Path | None = None) -> None:
        """Print the results, or save them to a file. On a terminal, tables are fitted to its width."""
        if format == TERMINAL and output is None:
            from hpcbench.present import rich_text

            rich_text.show(self.document())
        elif output is None:
            sys.stdout.write(_clean(self.write(format)))
        else:
            save(output, self.write(format))

    def save(self, outputs: Iterable[Path], plots: Path | None = None) -> None:
        """Write files, each in the format of its suffix, and the figures to a directory."""
        for path in outputs:
            save(path, self.write(resolve_format(None, path)))
        if plots is not None:
            from hpcbench.present.figures import write

            write(self.document(figures=True), plots)


def resolve_format(wanted: str | None, output: Path | None, formats: Mapping[str, tuple[str, ...]] = FORMATS) -> str:
    """Return the format by its name, or by the suffix of the file; without either, the terminal's.

    Raises
    ------
    UserError
        No format has this name or suffix.
    """
    if wanted is not None and wanted not in formats:
        raise UserError(f"--format {make_printable(wanted, 40)}: unknown value: use one of {', '.join(formats)}")
    suffix = output.suffix.lower() if output else ""
    if wanted or not output or not suffix:
        return wanted or TERMINAL
    for name, suffixes in formats.items():
        if suffix in suffixes:
            return name
    suffix_list = ", ".join(suffix for suffixes in formats.values() for suffix in suffixes)
    raise UserError(
        f"--output {make_printable(str(output))}: {make_printable(suffix, 20)} is not the suffix of a format: "
        f"use {suffix_list}, or add --format"
    )


def save(path: Path, text: str, option: str = "--output") -> None:
    """Write a file completely or not at all; a device or a pipe is written to.

    Raises
    ------
    UserError
        The file cannot be written.
    """
    replaced = path.is_file() or not path.exists()
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp") if replaced else path
    try:
        temporary.write_text(_clean(text), encoding="utf-8")
        if replaced:
            temporary.replace(path)
    except OSError as error:
        raise UserError(f"{option} {make_printable(str(path))}: cannot be written: {error.strerror}") from None
    finally:
        if replaced:
            temporary.unlink(missing_ok=True)


def _clean(text: str) -> str:
    """Replace what is not UTF-8, such as bytes of a file's name."""
    return text.encode("utf-8", "replace").decode()
