"""A report as one file for a browser, which asks nothing of a network and trusts nothing that it shows."""

import base64
import hashlib
import math
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

import hpcbench
from hpcbench.collect.submission import Submission
from hpcbench.report.document import Document, Entry, Figure, Table
from hpcbench.report.page.citations import Citations
from hpcbench.report.page.figure import Stylesheet, inline
from hpcbench.report.page.kept import kept
from hpcbench.report.page.layout import Placed, arrange
from hpcbench.report.page.visible import finalize, visible
from hpcbench.report.provenance import provenance
from hpcbench.report.surroundings import some

if TYPE_CHECKING:
    from jinja2 import Environment

FILTERS = {"scheme": "Scheme", "state": "State"}
"""Columns by whose values rows can be chosen, with what the choice is called."""
_MOST_CHOICES = 200


def write(document: Document, submissions: Sequence[Submission], directory: Path | None = None) -> str:
    """Write a report as HTML.

    Parameters
    ----------
    document
        What it says.
    submissions
        What it says that of: their provenance and the lines that are cited are made part of the page.
    directory
        Where the page will lie; files below it are linked. None where that is not known.
    """
    chapters = arrange(document)
    plots = _Plots([placed for chapter in chapters for placed in chapter.blocks])
    origins = [provenance(submission) for submission in submissions]
    citations = Citations(document, submissions, origins, directory)
    style, script = Markup(f"{_file('page.css')}{plots.css}\n"), Markup(_file("page.js"))
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            chapters=chapters,
            choices=_choices(document),
            citations=citations,
            document=document,
            drawings=plots.drawings,
            key=sort_key,
            now=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            origins=[(one, origin, kept(one)) for one, origin in zip(submissions, origins, strict=True)],
            policy=_policy(style, script),
            script=script,
            some=some,
            style=style,
            version=hpcbench.__version__,
        )
    )


class _Plots:
    """The figures of a page, drawn, by their ids; only a page that has some needs matplotlib."""

    def __init__(self, blocks: Sequence[Placed]) -> None:
        self.drawings: dict[str, Markup] = {}
        styles = Stylesheet()
        for placed in blocks:
            if isinstance(placed.block, Figure):
                from hpcbench.report.plots.save import svg

                self.drawings[placed.id] = inline(svg(placed.block), placed.id, visible(placed.heading), styles)
        self.css = styles.css


def sort_key(entry: Entry) -> str | None:
    """What an entry is ordered by, as the script reads it; None where nothing is known, a NaN included."""
    value = entry.value
    if value is None or isinstance(value, str):
        return value
    if math.isnan(value):
        return None
    return repr(value) if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def _choices(document: Document) -> list[tuple[str, str, list[str]]]:
    """Column, its name and the values that occur in it, for each column that rows can be chosen by."""
    found: dict[str, dict[str, None]] = {name: {} for name in FILTERS}
    for table in (block for chapter in document.chapters for block in chapter.blocks if isinstance(block, Table)):
        for i, column in enumerate(table.columns):
            if column.name in found:
                found[column.name].update(dict.fromkeys(row[i].shown for row in table.rows))
    choices = [(name, FILTERS[name], list(values)[:_MOST_CHOICES]) for name, values in found.items()]
    return [choice for choice in choices if len(choice[2]) > 1]


def _policy(style: str, script: str) -> str:
    """What a browser may do with the page: apply this style, run this script, and no more."""
    hashes = [base64.b64encode(hashlib.sha256(words.encode()).digest()).decode() for words in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


@cache
def _environment() -> "Environment":
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _file(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
