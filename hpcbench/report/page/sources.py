"""File content quoted by a page: cited lines, and the study and site files of a submission."""

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
"""Maximum number of quoted lines per page: four lines for each of a thousand runs."""
LONGEST = 400
"""Maximum length of a quoted line in characters."""
_CHUNK = 1 << 16
_CITED = re.compile(r"[^\s(]\S*:[0-9]+")


@dataclass(frozen=True)
class RawLine:
    """A quoted line of a file."""

    anchor: str
    """HTML id of the line."""
    number: int
    text: str
    omitted: int
    """Number of bytes omitted at the end of the line."""


class Citations:
    """Citations of a page: locations like ``file:line`` become links, and the linked lines are collected.

    `directory` is the directory of the page, or None if unknown.
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
        """Number of citations without a quoted line, because a page quotes at most `MOST_LINES` lines."""

    def name(self, source: str) -> str:
        """Shorten a location or path to the part relative to the submission directory."""
        for root in self._roots:
            if source.startswith(f"{root}{os.sep}"):
                inside = source[len(str(root)) + 1 :]
                return inside if len(self._roots) == 1 else str(Path(root.name) / inside)
        return source

    def href(self, path: Path) -> str:
        """Return a relative link to a file below the page's directory, or an empty string for other files."""
        if self._directory is None:
            return ""
        try:
            inside = path.resolve().relative_to(self._directory.resolve())
        except (OSError, ValueError):
            return ""
        return "./" + quote(os.fsencode(inside.as_posix())) if path.is_file() else ""  # names need not be valid UTF-8

    def target(self, source: str) -> str:
        """Return a link to a location: to the line quoted in the page or, if the line is not quoted, to the file.

        The link may be empty.
        """
        path, number = _split_place(source)
        anchor = self._find_anchor(path, number) if number is not None else ""
        return f"#{anchor}" if anchor else self.href(Path(path))

    def linked(self, sentence: str) -> Markup:
        """Turn the locations in a sentence into links."""
        parts = []
        end = 0
        for match in _CITED.finditer(sentence):
            path, number = _split_place(match[0])
            if number is None or not (path in self._logs or match[0] in self._reasons):
                continue
            if anchor := self._find_anchor(path, number):
                link = Markup('<a href="#{}">{}</a>').format(anchor, visible(self.name(match[0])))
                parts += [escape(visible(sentence[end : match.start()])), link]
                end = match.end()
        return Markup("").join([*parts, escape(visible(sentence[end:]))])

    def files(self) -> Iterator[tuple[Path, list[RawLine]]]:
        """Yield each log and each other cited file, with the linked lines."""
        yield from ((Path(path), list(_read_lines(Path(path), anchors))) for path, anchors in self._anchors.items())

    def _find_anchor(self, path: str, number: int) -> str:
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


def _split_place(source: str) -> tuple[str, int | None]:
    """Split a location into file and line. The line is None if the location contains only a file."""
    path, _, line = source.rpartition(":")
    return (path, int(line)) if path and re.fullmatch("[0-9]{1,12}", line) else (source, None)


def _read_lines(path: Path, anchors: Mapping[int, str]) -> Iterator[RawLine]:
    """Read the lines that have anchors, in file order."""
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
            text = raw.decode("utf-8", "replace").rstrip("\r\n") if raw else "[the file does not contain this line]"
            yield RawLine(anchors[wanted], wanted, text[:LONGEST], omitted + len(text[LONGEST:].encode()))


LONGEST_FILE = 20_000
"""Maximum length of a quoted file in characters."""
_FILES = {"study.yaml": "Study file", "site.json": "Site file, as resolved"}


@dataclass(frozen=True)
class QuotedFile:
    """A quoted file of a submission."""

    title: str
    text: str
    path: Path


def list_files(submission: Submission) -> list[QuotedFile]:
    """List the files of a submission to quote.

    The file with environment variables is excluded, because no filter can remove all secrets and pages are shared.
    """
    return list(_yield_files(submission.root)) if submission.root else []


def _yield_files(root: Path) -> Iterator[QuotedFile]:
    for name, title in _FILES.items():
        if text := _read(root / name):
            yield QuotedFile(title, text, root / name)
    path = root / "provenance" / "submit.json"
    packages = get_member(read_json(path), "packages")
    if isinstance(packages, dict) and packages:
        text = "".join(f"{name} {version}\n" for name, version in packages.items())
        yield QuotedFile("Other installed packages", text[:LONGEST_FILE], path)


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            text = stream.read(LONGEST_FILE + 1)
    except OSError:
        return ""
    return text if len(text) <= LONGEST_FILE else text[:LONGEST_FILE] + "\n[truncated: see the file for the rest]"
