"""File content that a page shows word for word: the lines that it cites, and the files that a submission keeps."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup, escape

from hpcbench.collect.submission import RunResult, Submission
from hpcbench.contract.events import End, Evaluation, Event
from hpcbench.contract.values import member
from hpcbench.files import read_json
from hpcbench.present.document import Document, Sentences, Table
from hpcbench.present.page.safe import visible
from hpcbench.report.provenance import Provenance

MOST_LINES = 4000
"""Most lines that a page holds: four for each of a thousand runs."""
LONGEST = 400
"""Most characters of a line that are shown."""
_CHUNK = 1 << 16
_CITED_EVENTS: tuple[type[Event], ...] = (Evaluation, End)
_CITED = re.compile(r"(?P<source>[^\s(]\S*:[0-9]+)")


@dataclass(frozen=True)
class RawLine:
    """A line of a file."""

    anchor: str
    """Id of the line in the page."""
    number: int
    text: str
    omitted: int
    """Number of bytes at its end that are not shown."""


@dataclass(frozen=True)
class RawFile:
    """A file with its cited lines."""

    name: str
    href: str
    """Relative link from the page to the file; empty if the file does not lie beside it."""
    lines: tuple[RawLine, ...]


class Citations:
    """The citations of a page: the lines at ``file:line``, their names and links.

    Parameters
    ----------
    document, submissions
        Content with citations. The reasons of runs that are no measurement, and places in sentences, come first. Then
        come the sources of provenance and figures, and then the ends of all runs.
    provenance
        Provenance of the submissions.
    directory
        Directory of the page; None if it is not known.
    """

    def __init__(
        self,
        document: Document,
        submissions: Sequence[Submission],
        provenance: Sequence[Provenance],
        directory: Path | None,
    ) -> None:
        self._roots = [submission.root for submission in submissions if submission.root is not None]
        self._directory = directory
        self._anchors: dict[str, str] = {}
        self.files: list[RawFile] = []
        wanted: dict[str, set[int]] = {}
        cited = [
            *(run.verdict.where for run in _runs(submissions) if run.verdict.where),
            *_sentences(document, submissions),
            *_facts(provenance),
            *_figures(document),
            *_ends(submissions),
        ]
        places = [place for source in dict.fromkeys(cited) if (place := _place(source))]
        self.left_out = max(0, len(places) - MOST_LINES)
        """Number of cited places that are not shown, because there are too many."""
        for path, line in places[:MOST_LINES]:
            wanted.setdefault(path, set()).add(line)
        for path, numbers in wanted.items():
            self._read(path, numbers)

    def name(self, source: str) -> str:
        """A place or a path in the form that readers see: from the submission's directory on."""
        for root in self._roots:
            if source.startswith(f"{root}{os.sep}"):
                inside = source[len(str(root)) + 1 :]
                return inside if len(self._roots) == 1 else str(Path(root.name) / inside)
        return source

    def href(self, path: Path) -> str:
        """Relative link to a file below the page's directory; empty for any other."""
        if self._directory is None:
            return ""
        try:
            inside = path.resolve().relative_to(self._directory.resolve())
        except (OSError, ValueError):
            return ""
        return "./" + quote(os.fsencode(inside.as_posix())) if path.is_file() else ""  # a name may be no UTF-8

    def target(self, source: str) -> str:
        """Link to a place: to its line within the page, else to its file beside the page; empty if there is neither."""
        if anchor := self._anchors.get(source):
            return f"#{anchor}"
        place = _place(source)
        return self.href(Path(place[0] if place else source))

    def linked(self, sentence: str) -> Markup:
        """A sentence in which each place with a line in the page is a link to it."""
        parts = []
        end = 0
        for found in _CITED.finditer(sentence):
            source = found["source"]
            if anchor := self._anchors.get(source):
                link = Markup('<a href="#{}">{}</a>').format(anchor, visible(self.name(source)))
                parts += [escape(visible(sentence[end : found.start()])), link]
                end = found.end()
        return Markup("").join([*parts, escape(visible(sentence[end:]))])

    def _read(self, path: str, numbers: set[int]) -> None:
        lines = []
        for number, raw, omitted in _lines(Path(path), numbers):
            anchor = f"line-{len(self._anchors) + 1}"
            self._anchors[f"{path}:{number}"] = anchor
            text = raw.decode("utf-8", "replace").rstrip("\r\n")
            lines.append(RawLine(anchor, number, text[:LONGEST], omitted + len(text[LONGEST:].encode())))
        if lines:
            self.files.append(RawFile(self.name(path), self.href(Path(path)), tuple(lines)))


def _place(source: str) -> tuple[str, int] | None:
    """File and line; None for a file alone."""
    path, _, line = source.rpartition(":")
    return (path, int(line)) if path and re.fullmatch("[0-9]{1,12}", line) else None


def _runs(submissions: Sequence[Submission]) -> Iterator[RunResult]:
    return (run for submission in submissions for run in submission.runs)


def _sentences(document: Document, submissions: Sequence[Submission]) -> Iterator[str]:
    """Places in sentences, of the runs' own logs only, because a sentence may quote anything."""
    logs = {str(run.log.path) for run in _runs(submissions) if run.log}
    blocks = (block for chapter in document.chapters for block in chapter.blocks)
    for sentence in (line for block in blocks if isinstance(block, Sentences) for line in block.lines):
        for found in _CITED.finditer(sentence):
            place = _place(found["source"])
            if place and place[0] in logs:
                yield found["source"]


def _figures(document: Document) -> Iterator[str]:
    blocks = (block for chapter in document.chapters for block in chapter.blocks)
    for table in (block for block in blocks if isinstance(block, Table)):
        yield from (entry.source for row in table.rows for entry in row if entry.source)


def _ends(submissions: Sequence[Submission]) -> Iterator[str]:
    for log in (run.log for run in _runs(submissions) if run.log):
        if log.last_step is not None:
            yield log.where(log.last_step.line)
        yield from (log.where(event.line) for kind in _CITED_EVENTS if (event := log.event(kind)))


def _facts(provenance: Sequence[Provenance]) -> Iterator[str]:
    facts = (fact for one in provenance for group in one.groups for fact in group.facts)
    yield from (fact.source for fact in facts if fact.source)


def _lines(path: Path, numbers: Iterable[int]) -> Iterator[tuple[int, bytes, int]]:
    """The wanted lines of a file, each with its number and the number of omitted bytes."""
    wanted = set(numbers)
    last = max(wanted)
    try:
        with path.open("rb") as stream:
            for number in range(1, last + 1):
                raw = stream.readline(_CHUNK)
                if not raw:
                    return
                omitted = 0
                end = raw
                while not end.endswith(b"\n") and (end := stream.readline(_CHUNK)):
                    omitted += len(end.rstrip(b"\r\n"))
                if number in wanted:
                    yield number, raw, omitted
    except (OSError, ValueError):
        return


LONGEST_FILE = 20_000
"""Most characters of a file that are shown."""
_FILES = {"study.yaml": "Study file", "site.json": "Site file, as resolved"}


@dataclass(frozen=True)
class Kept:
    """A file of the submission, or the text for one."""

    title: str
    text: str
    path: Path


def kept(submission: Submission) -> list[Kept]:
    """The files that a submission keeps.

    Environment variables stay in their files, because no filter knows all secrets and a page is passed on.
    """
    return list(_kept(submission.root)) if submission.root else []


def _kept(root: Path) -> Iterator[Kept]:
    for name, title in _FILES.items():
        if words := _read(root / name):
            yield Kept(title, words, root / name)
    path = root / "provenance" / "submit.json"
    packages = member(read_json(path), "packages")
    if isinstance(packages, dict) and packages:
        words = "".join(f"{name} {version}\n" for name, version in packages.items())
        yield Kept("Packages beside hpcbench", words[:LONGEST_FILE], path)


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            words = stream.read(LONGEST_FILE + 1)
    except OSError:
        return ""
    return words if len(words) <= LONGEST_FILE else words[:LONGEST_FILE] + "\n[the rest is in the file]"
