"""How a report is shown: one writer a format, loaded when it is asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.collect.lines import printable
from hpcbench.errors import UserError
from hpcbench.report.build import Section, build

TERMINAL = "table"


@dataclass(frozen=True)
class Format:
    """A way to write a report."""

    write: Callable[[Sequence[Section], Sequence[str]], str]
    """From sections and the names of the tables that are wanted to what stands in the file."""
    suffixes: tuple[str, ...] = ()
    """Of files that hold it."""


def _text(sections: Sequence[Section], tables: Sequence[str]) -> str:
    from hpcbench.report.formats import rich_text

    return rich_text.write(build(sections, tables))


def _markdown(sections: Sequence[Section], tables: Sequence[str]) -> str:
    from hpcbench.report.formats import markdown

    return markdown.write(build(sections, tables))


def _latex(sections: Sequence[Section], tables: Sequence[str]) -> str:
    from hpcbench.report.formats import latex

    return latex.write(build(sections, tables))


def _csv(sections: Sequence[Section], tables: Sequence[str]) -> str:
    from hpcbench.report.formats import csv_rows

    return csv_rows.write(sections)


def _json(sections: Sequence[Section], tables: Sequence[str]) -> str:
    from hpcbench.report.formats import json_document

    return json_document.write(sections)


FORMATS = {
    TERMINAL: Format(_text, (".txt",)),
    "md": Format(_markdown, (".md", ".markdown")),
    "latex": Format(_latex, (".tex",)),
    "csv": Format(_csv, (".csv",)),
    "json": Format(_json, (".json",)),
}
"""By the name that ``--format`` takes."""


def format_name(wanted: str | None, output: Path | None) -> str:
    """Name of the format that is asked for, in words or by the suffix of the file to write; else the terminal's.

    Raises
    ------
    UserError
        There is no format of that name.
    """
    if wanted is not None and wanted not in FORMATS:
        raise UserError(f"--format {printable(wanted, 40)}: not known: use one of {', '.join(FORMATS)}")
    suffix = output.suffix.lower() if output else ""
    return wanted or next((name for name, one in FORMATS.items() if suffix in one.suffixes), TERMINAL)
