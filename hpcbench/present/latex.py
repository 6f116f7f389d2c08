r"""LaTeX output for ``\input`` into a paper. The only required package is ``booktabs``."""

import re
from collections.abc import Iterable, Iterator

from hpcbench.present.document import Chapter, Document, Part, Sentences, Table, parts

_WIDTH, _GAP = 78, 2
r"""Characters per line of an article in ``\footnotesize``, and characters between two columns."""
_WRAPS = 30
"""Minimum text length in characters for a paragraph column."""
_SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "`": r"\`{}",
        '"': "''",
        # LaTeX would read a leading star or bracket as an argument of the preceding line end or \item.
        "*": "{*}",
        "[": "{[}",
        "]": "{]}",
        **{special: f"\\{special}" for special in "{}$&#%_"},
    }
)
_ACCENTED = re.compile("[\u00c0-\u00cf\u00d1-\u00d6\u00d8-\u00dd\u00df-\u00ef\u00f1-\u00f6\u00f8-\u00fd\u00ff]")
_UNBROKEN = re.compile(r"\S{25,}")
"""Long words, mostly paths, that LaTeX does not break."""
_MINUS = re.compile(r"(?<![\w-])-(?=\d)")


def write(document: Document) -> str:
    """Write each table as a float, followed by its sentences as a list."""
    lines = ["% Needs \\usepackage{booktabs}."]
    for number, chapter in enumerate(document.chapters, 1):
        lines += ["", *_chapter(chapter, number)]
    return "\n".join(lines) + "\n"


def _chapter(chapter: Chapter, number: int) -> Iterator[str]:
    what = "; ".join(escape(text) for text in (chapter.title, chapter.subtitle) if text)
    for block in chapter.blocks:
        if isinstance(block, Table):
            yield from _table(block, f"{escape(block.title)}: {what}" if block.title else what, number)
            yield from _list(block.notes)
        elif isinstance(block, Sentences):
            yield from _list(block.lines)


def _table(table: Table, caption: str, number: int) -> Iterator[str]:
    yield r"\begin{table}[htbp]"
    yield r"\centering\footnotesize"
    yield rf"\caption{{{caption}.}}"
    yield rf"\label{{tab:{table.name}-{number}}}"
    for i, part in enumerate(parts(table, _WIDTH, _GAP)):
        if i:
            yield r"\par\medskip"
        yield from _tabular(table, part)
    yield r"\end{table}"


def _tabular(table: Table, part: Part) -> Iterator[str]:
    yield rf"\begin{{tabular}}{{@{{}}{''.join(_kind(table, i) for i in part)}@{{}}}}"
    yield r"\toprule"
    yield _row(escape(table.columns[i].head) for i in part)
    yield r"\midrule"
    for row in table.rows:
        yield _row(escape(row[i].shown) if table.columns[i].text else _figure(row[i].shown) for i in part)
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _kind(table: Table, column: int) -> str:
    if not table.columns[column].text:
        return "r"
    longest = max((len(row[column].shown) for row in table.rows), default=0)
    return r"p{0.3\linewidth}" if longest > _WRAPS else "l"


def _row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _list(lines: Iterable[str]) -> Iterator[str]:
    items = [rf"\item {escape(line)}" for line in lines]
    if items:
        yield from (r"\begin{itemize}\raggedright", *items, r"\end{itemize}")


def _figure(text: str) -> str:
    return "--" if text == "-" else _MINUS.sub("$-$", escape(text))


def escape(text: str) -> str:
    """Escape text for LaTeX, using only characters that every LaTeX installation supports."""
    plain = "".join(map(_letter, text)).translate(_SPECIAL).replace("--", "-{}-")
    return _UNBROKEN.sub(lambda found: found[0].replace("/", r"/\allowbreak{}"), plain)


def _letter(letter: str) -> str:
    if letter.isascii():
        return letter if letter.isprintable() else " "
    # Without additional packages, LaTeX fails on most other characters.
    return letter if _ACCENTED.fullmatch(letter) else f"(U+{ord(letter):04X})"
