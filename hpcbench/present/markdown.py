"""Markdown output, for web pages or tickets."""

from collections.abc import Iterable, Sequence

from hpcbench.present.document import Chapter, Document, Sentences, Table

_SPECIAL = str.maketrans({special: "\\" + special for special in "\\`*_|<>[]&~$"})
_FIRST = tuple("#+-=")


def write(document: Document) -> str:
    """Write each chapter under a bold title, and each table followed by its sentences as a list."""
    return "\n".join(line for chapter in document.chapters for line in _chapter(chapter)).rstrip() + "\n"


def _chapter(chapter: Chapter) -> Iterable[str]:
    yield f"**{'; '.join(escape(text) for text in (chapter.title, chapter.subtitle) if text)}**"
    yield ""
    listed, group = False, ""
    for block in chapter.blocks:
        if block.group != group:
            group = block.group
            yield from [*([""] if listed else []), f"**{escape(group)}**", ""]
            listed = False
        if isinstance(block, Table):
            yield from [""] if listed else []
            yield from _table(block)
            listed = False
        lines = block.notes if isinstance(block, Table) else block.lines if isinstance(block, Sentences) else ()
        yield from (f"- {escape(line)}" for line in lines)
        listed = listed or bool(lines)
    yield from [""] if listed else []


def _table(table: Table) -> Iterable[str]:
    if table.title:
        yield f"**{escape(table.title)}**"
        yield ""
    yield _line([escape(column.head) for column in table.columns])
    yield _line(["---" if column.text else "---:" for column in table.columns])
    yield from (_line([escape(entry.shown) for entry in row]) for row in table.rows)
    yield ""


def escape(text: str) -> str:
    """Escape text so that it is shown unchanged and does not start a list or heading or end a table cell."""
    clean = "".join(c if c.isprintable() else " " for c in text).translate(_SPECIAL)
    return "\\" + clean if len(clean) > 1 and clean.startswith(_FIRST) and not clean[1].isdigit() else clean


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
