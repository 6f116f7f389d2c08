"""Where each block of a report stands on the page: the answer first, and each under an id and a heading."""

from dataclasses import dataclass
from typing import Literal

from hpcbench.report.document import Block, Chapter, Document, Figure, Sentences, Table

Kind = Literal["answer", "table", "figure", "trouble", "notes"]
_ORDER: tuple[Kind, ...] = ("answer", "table", "figure", "trouble", "notes")


@dataclass(frozen=True)
class Placed:
    """A block with its place."""

    block: Block
    kind: Kind
    id: str
    heading: str
    """Empty for the answer, which stands under the title of its chapter."""


@dataclass(frozen=True)
class PlacedChapter:
    """A chapter with its blocks in the order that they are read in."""

    chapter: Chapter
    id: str
    blocks: tuple[Placed, ...]

    @property
    def trouble(self) -> Placed | None:
        """What went wrong, which stands far below the answer."""
        return next((placed for placed in self.blocks if placed.kind == "trouble"), None)


def arrange(document: Document) -> tuple[PlacedChapter, ...]:
    """Give each block its place: answer, tables, plots, what went wrong, what to know."""
    return tuple(_chapter(chapter, f"chapter-{i}") for i, chapter in enumerate(document.chapters, 1))


def _chapter(chapter: Chapter, id: str) -> PlacedChapter:
    blocks = sorted(chapter.blocks, key=lambda block: _ORDER.index(_kind(block)))
    placed = tuple(Placed(block, _kind(block), f"{id}-{i}", _heading(block)) for i, block in enumerate(blocks, 1))
    return PlacedChapter(chapter, id, placed)


def _kind(block: Block) -> Kind:
    if isinstance(block, Sentences):
        return "trouble" if block.tone == "bad" else "notes" if block.tone == "warning" else "answer"
    return "table" if isinstance(block, Table) else "figure"


def _heading(block: Block) -> str:
    if isinstance(block, Figure):
        return block.title
    if isinstance(block, Table):
        return block.title or block.name.replace("_", " ").capitalize()
    return {"trouble": "Trouble", "notes": "Notes"}.get(_kind(block), "")
