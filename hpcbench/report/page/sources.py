"""File content that a page shows word for word: the lines that it cites, and the files that a submission keeps."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup, escape

from hpcbench.collect.submission import Submission
from hpcbench.contract.values import get_member
from hpcbench.files import read_json
from hpcbench.present.page.safe import visible

MOST_LINES = 4000
"""Most lines that a page holds: four for each of a thousand runs."""
LONGEST = 400
"""Most characters of a line that are shown."""
_CHUNK = 1 << 16
_CITED = re.compile(r"[^\s(]\S*:[0-9]+")


@dataclass(frozen=True)
class RawLine:
    """A line of a file."""

    anchor: str
    """Id of the line in the page."""
    number: int
    text: str
    omitted: int
    """Number of bytes at its end that are not shown."""


class Citations:
    """The citations of a page: links to lines at ``file:line``, and then the lines that were linked to.

    Parameters
    ----------
    submissions
        Submissions of the page.
    directory
        Directory of the page; None if it is not known.
    """

    def __init__(self, submissions: Sequence[Submission], directory: Path | None) -> None:
        self._roots = [submission.root for submission in submissions if submission.root is not None]
        self._directory = directory
        runs = [run for submission in submissions for run in submission.runs]
        self._logs = {str(run.log.path) for run in runs if run.log}
        self._reasons = {run.verdict.where for run in runs if run.verdict.where}
        self._anchors: dict[str, dict[int, str]] = {path: {} for path in sorted(self._logs)}
        self._count = 0
        self.left_out = 0
        """Number of citations without their line, because there are too many."""

    def name(self, source: str) -> str:
        """Return a place or path in the form that readers see: from the submission's directory on."""
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
        """Link to a place: to its line in the page, else to its file beside the page; empty if there is neither."""
        path, number = _place(source)
        anchor = self._anchor(path, number) if number is not None else ""
        return f"#{anchor}" if anchor else self.href(Path(path))

    def linked(self, sentence: str) -> Markup:
        """Return a sentence with links to the reasons and log lines that it names."""
        parts = []
        end = 0
        for match in _CITED.finditer(sentence):
            path, number = _place(match[0])
            if number is None or not (path in self._logs or match[0] in self._reasons):
                continue
            if anchor := self._anchor(path, number):
                link = Markup('<a href="#{}">{}</a>').format(anchor, visible(self.name(match[0])))
                parts += [escape(visible(sentence[end : match.start()])), link]
                end = match.end()
        return Markup("").join([*parts, escape(visible(sentence[end:]))])

    def files(self) -> Iterator[tuple[Path, list[RawLine]]]:
        """Yield each log and each other cited file, with its lines that were linked to."""
        yield from ((Path(path), list(_lines(Path(path), anchors))) for path, anchors in self._anchors.items())

    def _anchor(self, path: str, number: int) -> str:
        if not _is_file(path):
            return ""
        anchors = self._anchors.setdefault(path, {})
        if number not in anchors:
            if self._count == MOST_LINES:
                self.left_out += 1
                return ""
            self._count += 1
            anchors[number] = f"line-{self._count}"
        return anchors[number]


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def _place(source: str) -> tuple[str, int | None]:
    """File and line; the line of a file alone is None."""
    path, _, line = source.rpartition(":")
    return (path, int(line)) if path and re.fullmatch("[0-9]{1,12}", line) else (source, None)


def _lines(path: Path, anchors: Mapping[int, str]) -> Iterator[RawLine]:
    """Read the lines that have anchors, in the order of the file."""
    if not anchors:
        return
    number = 0
    with path.open("rb") as stream:
        for wanted in sorted(anchors):
            raw, omitted = b"", 0
            while number < wanted and (raw := stream.readline(_CHUNK)):
                number, omitted, end = number + 1, 0, raw
                while not end.endswith(b"\n") and (end := stream.readline(_CHUNK)):
                    omitted += len(end.rstrip(b"\r\n"))
            text = raw.decode("utf-8", "replace").rstrip("\r\n") if raw else "[the file has no such line]"
            yield RawLine(anchors[wanted], wanted, text[:LONGEST], omitted + len(text[LONGEST:].encode()))


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
    """Return the files that a submission keeps.

    Environment variables stay in their files, because no filter knows all secrets and a page is passed on.
    """
    return list(_kept(submission.root)) if submission.root else []


def _kept(root: Path) -> Iterator[Kept]:
    for name, title in _FILES.items():
        if words := _read(root / name):
            yield Kept(title, words, root / name)
    path = root / "provenance" / "submit.json"
    packages = get_member(read_json(path), "packages")
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
