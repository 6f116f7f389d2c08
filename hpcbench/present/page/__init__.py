"""Self-contained HTML page of a document.

The page needs no network access, and the document's content is treated as untrusted.
"""

import base64
import hashlib
import math
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

import hpcbench
from hpcbench.present.document import Block, Chapter, Document, Entry, Figure, Sentences, Table
from hpcbench.present.page.safe import Stylesheet, finalize, inline, visible

if TYPE_CHECKING:
    from jinja2 import Environment


_DIRECTORY = Path(__file__).parent
_ORDER = ("answer", "figure", "table", "trouble", "notes", "findings")
"""Kinds of blocks, in page order."""
_OF_TONE = {"bad": ("trouble", "Trouble"), "warning": ("notes", "Notes")}
"""Kind of block and heading of sentences, by tone."""


@dataclass(frozen=True)
class Placed:
    """A block and its position on the page."""

    block: Block
    id: str
    kind: str
    heading: str
    """Heading of the block, or an empty string for sentences without a tone."""
    drawing: str = ""


def _place(block: Block, id: str, styles: Stylesheet, *, is_answer: bool) -> Placed:
    if isinstance(block, Figure):
        from hpcbench.present.figures import svg  # only pages with figures need matplotlib

        return Placed(block, id, "figure", block.title, inline(svg(block), id, visible(block.title), styles))
    if isinstance(block, Table):
        return Placed(block, id, "table", block.title or block.name.replace("_", " ").capitalize())
    return Placed(block, id, *_OF_TONE.get(block.tone, ("answer" if is_answer else "findings", "")))


@dataclass(frozen=True)
class BlockGroup:
    """Blocks of a chapter that are shown together: the untitled blocks at the top, or a collapsed group of details."""

    title: str
    id: str
    blocks: list[Placed]

    @property
    def content(self) -> str:
        """Summary of the group's content."""
        counts = Counter(placed.kind for placed in self.blocks if placed.kind in ("figure", "table"))
        return ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items())


def _arrange(chapter: Chapter, id: str, styles: Stylesheet) -> list[BlockGroup]:
    """Group the blocks of a chapter. The order within each group is: answer, plots, tables, trouble, notes."""
    answer = next(
        (block for block in chapter.blocks if isinstance(block, Sentences) and block.tone not in _OF_TONE), None
    )
    placed = [
        _place(block, f"{id}-{i}", styles, is_answer=block is answer and not block.group)
        for i, block in enumerate(chapter.blocks, 1)
    ]
    titles = dict.fromkeys(["", *(block.group for block in chapter.blocks)])
    return [
        BlockGroup(
            title,
            f"{id}-{title.lower().replace(' ', '-')}",
            sorted((item for item in placed if item.block.group == title), key=lambda item: _ORDER.index(item.kind)),
        )
        for title in titles
    ]


FILTERS = {"scheme": "Scheme", "state": "State"}
"""Columns with a row filter, and the label of each filter."""
_MOST_CHOICES = 200


def write(document: Document, template: Path | None = None, **context: Any) -> str:
    """Return a document as HTML.

    Parameters
    ----------
    document
        The document.
    template
        Template that extends ``page.html.j2``, or None for ``page.html.j2`` itself.
    context
        Additional template variables. `linked` turns file locations in sentences into links, and `citations` does the
        same for the sources of entries.
    """
    styles = Stylesheet()
    ids = [f"chapter-{i}" for i, _ in enumerate(document.chapters, 1)]
    chapters = [
        (chapter, id, _arrange(chapter, id, styles)) for chapter, id in zip(document.chapters, ids, strict=True)
    ]
    style, script = Markup(f"{_file('page.css')}{styles.css}\n"), Markup(_file("page.js"))
    variables = {
        "chapters": chapters,
        "choices": _choices(document),
        "document": document,
        "key": sort_key,
        "linked": str,
        "now": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "policy": _policy(style, script),
        "script": script,
        "style": style,
        "version": hpcbench.__version__,
    }
    path = template or _DIRECTORY / "page.html.j2"
    return _environment(path.parent).get_template(path.name).render(variables | context)


def sort_key(entry: Entry) -> str | None:
    """Return the sort key of an entry for the page's script, or None if the value is unknown or NaN."""
    value = entry.value
    if value is None or isinstance(value, str):
        return value
    if math.isnan(value):
        return None
    return repr(value) if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def _choices(document: Document) -> list[tuple[str, str, list[str]]]:
    """Return the name, header and values of each column with a row filter."""
    values_by_column: dict[str, dict[str, None]] = {name: {} for name in FILTERS}
    for table in (block for chapter in document.chapters for block in chapter.blocks if isinstance(block, Table)):
        for i, column in enumerate(table.columns):
            if column.name in values_by_column:
                values_by_column[column.name].update(dict.fromkeys(row[i].shown for row in table.rows))
    choices = [(name, FILTERS[name], list(values)[:_MOST_CHOICES]) for name, values in values_by_column.items()]
    return [choice for choice in choices if len(choice[2]) > 1]


def _policy(style: str, script: str) -> str:
    """Return a Content Security Policy that allows only this style and this script."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


@cache
def _environment(directory: Path) -> "Environment":
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([directory, _DIRECTORY]),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _file(name: str) -> str:
    return (_DIRECTORY / name).read_text(encoding="utf-8")
