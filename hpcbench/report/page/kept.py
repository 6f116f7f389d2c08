"""What a submission keeps and a page shows word for word: its study, its site, the packages beside hpcbench."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpcbench.collect.lines import member
from hpcbench.collect.submission import Submission
from hpcbench.files import read_json

LONGEST = 20_000
"""Characters of a file that are shown."""
_FILES = {"study.yaml": "Study file", "site.json": "Site file, as resolved"}


@dataclass(frozen=True)
class Kept:
    """A file, or what one says."""

    title: str
    text: str
    path: Path


def kept(submission: Submission) -> list[Kept]:
    """What there is of it.

    Variables of an environment stay in their files: no filter knows all secrets, and a page is passed on.
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
        yield Kept("Packages beside hpcbench", words[:LONGEST], path)


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            words = stream.read(LONGEST + 1)
    except OSError:
        return ""
    return words if len(words) <= LONGEST else words[:LONGEST] + "\n[the rest is in the file]"
