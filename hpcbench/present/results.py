"""Results in each output format, and output files."""

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
"""File suffixes of each format."""


class Results(ABC):
    """Results of a command, in any output format."""

    @abstractmethod
    def document(self, *, figures: bool = False) -> Document:
        """Return the document, optionally with figures."""

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Return the machine-readable data."""

    @abstractmethod
    def csv(self) -> str:
        """Return the data as CSV."""

    def html(self) -> str:
        """Return the document as an HTML page."""
        from hpcbench.present.page import write

        return write(self.document(figures=True))

    def write(self, format: str) -> str:
        """Return the results in a format of `FORMATS`."""
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
        """Print the results, or save them to a file. Tables fit the terminal width."""
        if format == TERMINAL and output is None:
            from hpcbench.present import rich_text

            rich_text.show(self.document())
        elif output is None:
            sys.stdout.write(_clean(self.write(format)))
        else:
            save(output, self.write(format))

    def save(self, outputs: Iterable[Path], plots: Path | None = None) -> None:
        """Write each file in the format of its suffix, and the figures to a directory."""
        for path in outputs:
            save(path, self.write(resolve_suffix(path)))
        if plots is not None:
            from hpcbench.present.figures import write

            write(self.document(figures=True), plots)


class RowResults(Results):
    """Results whose CSV has one row per dictionary."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries."""

    def csv(self) -> str:
        """Return the rows as CSV, with one column per nested key."""
        return write_csv(flatten(self.rows()))


def resolve_format(wanted: str | None, output: Path | None, formats: Mapping[str, tuple[str, ...]] = FORMATS) -> str:
    """Return the format selected by name or by file suffix. The default is the terminal format.

    Raises
    ------
    UserError
        If no format has this name or suffix.
    """
    if wanted is None:
        return resolve_suffix(output, formats, remedy=", or add --format")
    if wanted not in formats:
        raise UserError(f"--format {make_printable(wanted, 40)}: unknown value: use one of {', '.join(formats)}")
    return wanted


def resolve_suffix(output: Path | None, formats: Mapping[str, tuple[str, ...]] = FORMATS, *, remedy: str = "") -> str:
    """Return the format selected by a file suffix. The default is the terminal format.

    Raises
    ------
    UserError
        If no format has this suffix. The message ends with `remedy`.
    """
    suffix = output.suffix.lower() if output else ""
    if not suffix:
        return TERMINAL
    for name, suffixes in formats.items():
        if suffix in suffixes:
            return name
    suffix_list = ", ".join(suffix for suffixes in formats.values() for suffix in suffixes)
    raise UserError(
        f"--output {make_printable(str(output))}: {make_printable(suffix, 20)} is not the suffix of a format: "
        f"use {suffix_list}{remedy}"
    )


def check_output(option: str, path: Path | None) -> None:
    """Reject an output file to which results could not be written after the work.

    Raises
    ------
    UserError
        The path is a directory, or its directory does not exist or is not writable.
    """
    if path is None:
        return
    name, parent = f"{option} {make_printable(str(path))}", path.absolute().parent
    shown_parent = make_printable(str(path.parent))
    try:
        if path.is_dir():
            raise UserError(f"{name}: is a directory: give a file")
        if not parent.is_dir():
            raise UserError(f"{name}: the directory {shown_parent} does not exist: create it")
        is_device = path.exists() and not path.is_file()  # devices and pipes are written directly
    except OSError as error:
        raise UserError(f"{name}: cannot be written: {error.strerror}") from None
    if not is_device and not os.access(parent, os.W_OK):
        raise UserError(f"{name}: cannot be written: {shown_parent} is not writable")


def save(path: Path, text: str, option: str = "--output") -> None:
    """Write a file atomically. Devices and pipes are written directly.

    Raises
    ------
    UserError
        If the file cannot be written.
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
    """Replace characters that UTF-8 cannot encode, such as undecodable bytes of a file name."""
    return text.encode("utf-8", "replace").decode()
